"""The command line."""


def main() -> int:
    """Run it."""
    return 0
