"""What one topic filter has in common with another [MQTT 5 section 4.7].

Owns: coverage and overlap. Never: sees a topic name; the kernel matches those.

Invariants, for all valid filters:
1. `covers(wide, narrow)`: every topic that `narrow` matches, `wide` matches.
2. not `overlap(one, other)`: no topic is matched by both.
"""


def covers(wide: str, narrow: str) -> bool:
    """True if `wide` matches every topic that `narrow` matches."""
    if _is_reserved(narrow) and wide[0] in "+#":
        return False  # Wildcards do not reach topics that begin with $ [MQTT-4.7.2-1].
    wide_levels, narrow_levels = _levels(wide), _levels(narrow)
    for at, level in enumerate(wide_levels):
        if level == "#":
            return True
        if at == len(narrow_levels):
            return False
        if narrow_levels[at] == "#" or level not in ("+", narrow_levels[at]):
            return False
    return len(wide_levels) == len(narrow_levels)


def overlap(one: str, other: str) -> bool:
    """True if some topic is matched by both."""
    for first, second in ((one, other), (other, one)):
        if _is_reserved(first) and second[0] in "+#":
            return False
    levels, others = _levels(one), _levels(other)
    for level, another in zip(levels, others, strict=False):
        if "#" in (level, another):
            return True
        if "+" not in (level, another) and level != another:
            return False
    shorter, longer = sorted((levels, others), key=len)
    if len(shorter) == len(longer):
        return True
    # What is longer may only go on with #, which matches its parent too; that of /# would be the
    # empty topic, which there is not [MQTT-4.7.3-1].
    return longer[len(shorter)] == "#" and longer[: len(shorter)] != [""]


def _is_reserved(topic_filter: str) -> bool:
    return topic_filter.startswith("$")


def _levels(topic_filter: str) -> list[str]:
    # Both match every topic, and only this way does one cover the other.
    return ["#"] if topic_filter == "+/#" else topic_filter.split("/")
