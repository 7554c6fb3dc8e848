"""Shared subscriptions: how the members of a group share its messages."""

import re
from dataclasses import dataclass
from typing import Final

from holdfast.core.settings import Kind, setting, texts

_STRATEGY: Final = re.compile(r"round_robin|least_in_flight|sticky|key:(topic|client|property:.+)")
_EXPECTS: Final = (
    "round_robin, least_in_flight, sticky, key:topic, key:client or key:property:<user property>"
)


def _strategy() -> Kind:
    def parse(value: object) -> str:
        if not isinstance(value, str) or not _STRATEGY.fullmatch(value):
            raise ValueError(f"{value!r} is none of them")
        return value

    return Kind(_EXPECTS, parse)


def _is_rule(item: str) -> bool:
    pattern, equals, strategy = item.partition("=")
    return bool(pattern and equals and _STRATEGY.fullmatch(strategy))


@dataclass(frozen=True, kw_only=True)
class SharedSection:
    """How groups share."""

    shared_strategy: str = setting(
        _strategy(),
        "round_robin",
        """Which member of a group gets the next message: each in its turn (round_robin), who has
        least in flight (least_in_flight), the same one as long as it has room (sticky), or always
        the same one for the same key: the topic, the publisher's client identifier, or a user
        property. Each message may go to anybody by default, so that no member waits for another.
        A running broker divides keys by the new strategy once what is in flight has been
        acknowledged.""",
        reloadable=True,
    )
    shared_strategies: tuple[str, ...] = setting(
        texts(_is_rule, "a share name, in which * stands for anything, then = and a strategy"),
        "",
        """Other strategies for groups by their share names, such as orders-*=key:topic; the first
        that fits decides.""",
        reloadable=True,
    )
