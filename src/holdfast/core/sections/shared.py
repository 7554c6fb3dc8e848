"""Shared subscriptions: how the members of a group share its messages."""

import re
from dataclasses import dataclass
from typing import Final

from holdfast.core.settings import Kind, choice, duration, setting, texts

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
    """The table `shared`."""

    shared_strategy: str = setting(
        "shared.strategy",
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
        "shared.strategies",
        texts(_is_rule, "a share name, in which * stands for anything, then = and a strategy"),
        "",
        """Other strategies for groups by their share names, such as orders-*=key:topic; the first
        that fits decides.""",
        reloadable=True,
    )
    shared_group_expiry_s: int = setting(
        "shared.group_expiry_s",
        duration(0, 10 * 365 * 86_400),
        "0s",
        """How long a group of shared subscriptions that no session subscribes to any more keeps its
        queue. 0: it ends with its last subscription. Workers that come under new names each time
        need more, or what was published while none was there is not kept.""",
        reloadable=True,
    )
    shared_session_ended: str = setting(
        "shared.session_ended",
        choice("standard", "redeliver"),
        "standard",
        """What becomes of a message of QoS 2 that a group has sent to a member whose session ends
        without PUBREC. standard: nobody else may get it [MQTT-4.8.2-5], so it goes to the loss
        ledger. redeliver: it goes back to the group, and is told to be perhaps a second time
        (holdfast-redelivered). For workers that come under new names each time.""",
        reloadable=True,
    )
