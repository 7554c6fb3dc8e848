"""What is wrong or doubtful in a bridge although each of its settings is right by itself.

Owns: loops that a bridge would be by itself, topics that become one, and subscriptions that differ
about one topic. Never: changes a bridge.

It tries the rules on topics that the filters match: a word of its own for each wildcard, and once
another one, so that it sees which parts of a topic its destination depends on.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, islice
from typing import Final

from holdfast.broker.bridge import terms
from holdfast.core.bridge import Bridge, BridgeSubscription, LocalSubscription, parse_bridge
from holdfast.core.errors import ConfigurationError
from holdfast.core.limits import BRIDGE_EXCLUDING_MAXIMUM, BRIDGE_FILTERS_MAXIMUM
from holdfast.kernel import LIMITS, Rewriting, is_valid_topic_filter, topic_matches

WORDS: Final = ("x", "y")
"""In place of a wildcard."""
TOPICS_MAXIMUM: Final = 1_000
"""So many topics are tried for each thing that is looked for: whoever asks waits for it, and so do
all. A circle beyond them is found once messages go round in it."""


def is_filter(text: str) -> bool:
    """True of a topic filter."""
    return is_valid_topic_filter(text.encode())


def parse_checked(written: object, where: str) -> Bridge:
    """The bridge that was meant, if the kernel takes its rules and it is none that goes round by
    itself. Raises `ConfigurationError`, which begins with `where` it was written."""
    bridge = parse_bridge(written, is_filter, where)
    try:
        sentence = _excess(bridge) or _loop(bridge)
    except ValueError as error:
        raise ConfigurationError(f"{where}: {error}") from error
    if sentence is not None:
        raise ConfigurationError(f"{where}: {sentence}")
    return bridge


def doubts(bridge: Bridge) -> tuple[str, ...]:
    """What is allowed, and may not be what was meant."""
    found = []
    for name, items, rewriting in _directions(bridge):
        found += [f"{name}: {sentence}" for sentence in _merged(items, rewriting)]
        found += [f"{name} {sentence}" for sentence in _mixed(items)]
    if bridge.loop_prevention and bridge.mqtt_version < 5:
        found.append(
            "loop_prevention: MQTT 3.1.1 has no user properties to count hops in, so what comes"
            " back is not known by them; filters and excludes have to keep it out, and a circle"
            " ends the bridge when it is found"
        )
    if any(not item.persist for item in bridge.local_subscriptions):
        found.append(
            "local_subscriptions: persist = false carries messages of QoS 1 and 2 at QoS 0 too:"
            " what is not sent at once may be lost"
        )
    return tuple(found)


def _directions(
    bridge: Bridge,
) -> Iterator[tuple[str, Sequence[BridgeSubscription], Rewriting]]:
    yield "local_subscriptions", bridge.local_subscriptions, terms.outbound(bridge)
    yield "remote_subscriptions", bridge.remote_subscriptions, terms.inbound(bridge)


def _excess(bridge: Bridge) -> str | None:
    """What of it is more than the stages take."""
    levels_maximum = LIMITS["topic_levels_maximum"]
    for name, items in (
        ("local_subscriptions", bridge.local_subscriptions),
        ("remote_subscriptions", bridge.remote_subscriptions),
    ):
        written = [(number, each) for number, item in enumerate(items, 1) for each in _texts(item)]
        if len(written) > BRIDGE_FILTERS_MAXIMUM:
            return (
                f"{name} have {len(written)} filters and excludes, and can have"
                f" {BRIDGE_FILTERS_MAXIMUM}: take wider filters, or several bridges"
            )
        for number, text in written:
            levels = text.count("/") + 1
            if levels > levels_maximum:
                return (
                    f"{name} {number}: a filter has {levels} levels; it can have {levels_maximum}"
                )
    excluding = sum(1 for item in bridge.local_subscriptions if item.excludes)
    if excluding > BRIDGE_EXCLUDING_MAXIMUM:
        return (
            f"{excluding} of the local_subscriptions have excludes, and {BRIDGE_EXCLUDING_MAXIMUM}"
            " can: those of one hold for all behind it, so write them there"
        )
    return None


def _loop(bridge: Bridge) -> str | None:
    directions = tuple(_directions(bridge))
    if bridge.loop_prevention:
        return None
    for name, items, rewriting in directions:
        for number, item, topic in _tried(items):
            became = _becomes(rewriting, topic)
            if became is not None and _is_carried(item, became):
                return (
                    f"{name} {number}: {topic} becomes {became}, which its filters match"
                    " again, so a message can go round for ever; keep loop_prevention, or"
                    " give it another destination or excludes"
                )
    return None


def _merged(items: Sequence[BridgeSubscription], rewriting: Rewriting) -> Iterator[str]:
    """For each destination that two topics become, one sentence."""
    before: dict[str, str] = {}
    told: set[str] = set()
    for _, item, topic in _tried(items):
        became = _becomes(rewriting, topic)
        if became is None or before.setdefault(became, topic) == topic:
            continue
        if item.destination not in told:
            told.add(item.destination)
            yield (
                f'the destination "{item.destination}" makes one topic of several:'
                f" {before[became]} and {topic} both become {became}"
            )


def _tried(
    items: Sequence[BridgeSubscription],
) -> Iterator[tuple[int, BridgeSubscription, str]]:
    """Topics that each of them is tried on, with it and its number."""
    every = (
        (number, item, topic)
        for number, item in enumerate(items, 1)
        for topic in _topics(item.filters)
    )
    return islice(every, TOPICS_MAXIMUM)


def _texts(item: BridgeSubscription) -> Iterator[str]:
    yield from item.filters
    yield from item.excludes


def _mixed(items: Sequence[BridgeSubscription]) -> Iterator[str]:
    """For each two that have a topic in common and carry it with different QoS, one sentence."""
    ceilings = [_ceiling(item) for item in items]
    if len(set(ceilings)) < 2:
        return
    tried = (
        (pair, topic)
        for pair in combinations(enumerate(items, 1), 2)
        if ceilings[pair[0][0] - 1] != ceilings[pair[1][0] - 1]
        for topic in _topics((*pair[0][1].filters, *pair[1][1].filters))
    )
    told = set()
    for ((first, one), (second, other)), topic in islice(tried, TOPICS_MAXIMUM):
        is_told = (first, second) in told
        if not is_told and _is_carried(one, topic) and _is_carried(other, topic):
            told.add((first, second))
            yield (
                f"{first} and {second}: both are about {topic}; {first} says what becomes of it,"
                f" but it is carried with QoS {max(_ceiling(one), _ceiling(other))}, the higher"
                " one of both"
            )


def _ceiling(item: BridgeSubscription) -> int:
    """The highest QoS that it carries anything with."""
    is_kept = not isinstance(item, LocalSubscription) or item.persist
    return item.max_qos if is_kept else 0


def _is_carried(item: BridgeSubscription, topic: str) -> bool:
    def matches(filters: Iterable[str]) -> bool:
        return any(topic_matches(each.encode(), topic.encode()) for each in filters)

    return matches(item.filters) and not matches(item.excludes)


def _becomes(rewriting: Rewriting, topic: str) -> str | None:
    became = rewriting.apply(topic.encode(), b"")
    return None if became is None else became[0].decode()


def _topics(filters: Iterable[str]) -> Iterator[str]:
    """Topics that filters match: of each one with the first word for every wildcard, one for each
    wildcard with the other word there, and one that is longer where `#` is the last level."""
    for topic_filter in filters:
        levels = topic_filter.split("/")
        yield "/".join(_filled(levels))
        for at, level in enumerate(levels):
            if level in ("+", "#"):
                yield "/".join(_filled(levels, (0,) * at + (1,)))
        if levels[-1] == "#":
            yield "/".join([*_filled(levels), WORDS[1]])


def _filled(levels: Sequence[str], words: Sequence[int] = ()) -> list[str]:
    """The levels with a word for each wildcard: which one by its place; beyond, the first one."""
    return [
        WORDS[words[at] if at < len(words) else 0] if level in ("+", "#") else level
        for at, level in enumerate(levels)
    ]
