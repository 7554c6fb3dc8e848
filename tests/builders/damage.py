"""Damage to a log that lies on a real disk."""

from pathlib import Path

from holdfast.core.layout import LOG_DIRECTORY


def damage(data_dir: Path, value: bytes) -> None:
    """Changes a byte of the one message that has this value."""
    for path in (data_dir / LOG_DIRECTORY).glob("segment-*.log"):
        content = path.read_bytes()
        if content.count(value) == 1:
            path.write_bytes(content.replace(value, value[:-1] + b"?"))
            return
    raise AssertionError(f"no message has the value {value!r}")
