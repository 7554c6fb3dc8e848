"""What a delivery has besides where it tells which message it is, said in plain Python."""

from collections.abc import Sequence

from tests.property.twins.rewriting import Pair, encode


def tell(name: str, prefix: str, pairs: Sequence[Pair], offset: int | None) -> bytes:
    """The user properties that are sent."""
    kept = [pair for pair in pairs if pair[0] != name]
    if offset is not None:
        kept.append((name, f"{prefix}{offset}"))
    return encode(kept)
