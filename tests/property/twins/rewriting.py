"""What messages become that a bridge carries, said in plain Python."""

from collections.abc import Sequence

USER_PROPERTY = 0x26
FIELD_BYTES_MAXIMUM = 65_535

Pair = tuple[str, str]
Rule = tuple[list[bytes], list[bytes | int] | None, list[Pair]]
LEFT_OUT: Rule = ([], None, [])
"""What no rule is about."""


def matches(topic_filter: bytes, topic: bytes) -> bool:
    """Section 4.7, level by level."""
    if topic.startswith(b"$") and topic_filter[:1] in (b"+", b"#"):
        return False
    wanted, levels = topic_filter.split(b"/"), topic.split(b"/")
    for place, part in enumerate(wanted):
        if part == b"#":
            return True
        if place >= len(levels) or part not in (b"+", levels[place]):
            return False
    return len(wanted) == len(levels)


def encode(pairs: Sequence[Pair]) -> bytes:
    """User properties as MQTT 5 has them."""
    return b"".join(
        bytes([USER_PROPERTY]) + _binary(name.encode()) + _binary(value.encode())
        for name, value in pairs
    )


def apply(
    rules: Sequence[Rule], hops: tuple[str, int] | None, topic: bytes, pairs: Sequence[Pair]
) -> tuple[bytes, bytes] | None:
    """What becomes of a message; `None` if it is left out or lost."""
    rule = next(
        (rule for rule in rules if any(matches(each, topic) for each in rule[0])),
        LEFT_OUT,
    )
    _, parts, added = rule
    if parts is None:
        return None
    carried, kept = 0, list(pairs)
    if hops is not None:
        for name, value in pairs:
            if name == hops[0] and value.isascii() and value.isdigit():
                carried = int(value)
        if carried >= hops[1]:
            return None
        kept = [pair for pair in pairs if pair[0] != hops[0]]
    kept += added
    if hops is not None:
        kept.append((hops[0], str(carried + 1)))
    levels, made = topic.split(b"/"), b""
    for part in parts:
        if isinstance(part, int) and part > len(levels):
            return None
        made += part if isinstance(part, bytes) else levels[part - 1] if part else topic
    if not made or len(made) > FIELD_BYTES_MAXIMUM:
        return None
    return made, encode(kept)


def _binary(data: bytes) -> bytes:
    return len(data).to_bytes(2, "big") + data
