"""SUBSCRIBE and UNSUBSCRIBE in; reason codes and the session's new subscriptions out.

Owns: what is granted, which subscription replaces which, and whose retained messages are due.
Never: stores or routes.

Invariants:
1. At most one subscription per filter is in force.
2. A subscription that is replaced by different terms ends where the new one begins, so that what
   was stored before is delivered on the terms that held then. A shared one has no past: what was
   stored is its group's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from holdfast.core.limits import (
    SHARED_PER_SESSION_MAXIMUM,
    SUBSCRIPTION_BYTES_PER_SESSION_MAXIMUM,
    SUBSCRIPTIONS_PER_SESSION_MAXIMUM,
)
from holdfast.core.share_name import SHARED_PREFIX, parse_shared
from holdfast.core.subscription import Subscription, shared_of
from holdfast.kernel import LIMITS, is_valid_topic_filter
from holdfast.protocols.mqtt.packets import SubscriptionRequest
from holdfast.protocols.mqtt.reason_code import ReasonCode

RETAIN_ALWAYS: Final = 0
RETAIN_IF_NEW: Final = 1


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The outcome of a SUBSCRIBE."""

    reason_codes: tuple[int, ...]
    subscriptions: tuple[Subscription, ...]
    """All of the session's, past ones included."""
    granted: tuple[Subscription, ...]
    """Those of this packet, to be routed."""
    retained: tuple[Subscription, ...]
    """Those whose retained messages are due."""


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """The outcome of an UNSUBSCRIBE."""

    reason_codes: tuple[int, ...]
    subscriptions: tuple[Subscription, ...]
    removed: tuple[str, ...]


def plan_subscribe(
    requests: Sequence[SubscriptionRequest],
    current: tuple[Subscription, ...],
    *,
    offset: int,
    protocol_version: int,
    is_allowed: Callable[[str], bool],
    is_mixed: Callable[[str], bool],
    has_room: Callable[[str, int], bool],
) -> Subscribed:
    """Decide about a SUBSCRIBE whose subscriptions hold from `offset` on. `is_allowed` knows which
    filters the client may use, `is_mixed` which groups nobody may; `has_room` says whether a group
    takes one more member, while so many others are joined."""
    in_force = {item.topic_filter: item for item in current if item.in_force}
    past = [item for item in current if not item.in_force]
    reason_codes: list[int] = []
    granted: dict[str, Subscription] = {}
    retained: dict[str, Subscription] = {}
    joined, new = len(shared_of(tuple(in_force.values()))), 0
    room_bytes = SUBSCRIPTION_BYTES_PER_SESSION_MAXIMUM
    room_bytes -= sum([len(item.topic_filter.encode()) for item in current])
    for request in requests:
        # There may be thousands of them: nothing is looked up, or encoded, twice.
        topic_filter = request.topic_filter
        encoded = topic_filter.encode()
        before, shared = in_force.get(topic_filter), topic_filter.startswith(SHARED_PREFIX)
        count = len(in_force) + len(past)
        if not _is_valid(topic_filter, encoded, shared):
            reason_code: ReasonCode | None = ReasonCode.TOPIC_FILTER_INVALID
        # A replaced subscription may leave a past one behind, so both cases add one.
        elif len(encoded) > room_bytes or count >= SUBSCRIPTIONS_PER_SESSION_MAXIMUM * (
            1 if before is None else 2
        ):
            reason_code = ReasonCode.QUOTA_EXCEEDED
        elif not is_allowed(topic_filter):
            reason_code = ReasonCode.NOT_AUTHORIZED
        elif shared and is_mixed(topic_filter):
            reason_code = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
        elif (shared and before is None) and (
            joined + new >= SHARED_PER_SESSION_MAXIMUM or not has_room(topic_filter, new)
        ):
            reason_code = ReasonCode.QUOTA_EXCEEDED
        else:
            reason_code = None
        if reason_code is not None:
            # 3.1.1 knows one failure [MQTT-3.9.3-2].
            reason_codes.append(reason_code if protocol_version == 5 else 0x80)
            continue
        subscription = _subscription(request, offset)
        if before is not None and replace(before, from_offset=offset) == subscription:
            subscription = before
        elif before is not None and before.from_offset < offset and not shared:
            past.append(replace(before, until_offset=offset))
        new += shared and before is None
        in_force[topic_filter] = subscription
        room_bytes -= len(encoded)
        granted[topic_filter] = subscription
        is_due = request.retain_handling == RETAIN_ALWAYS or (
            request.retain_handling == RETAIN_IF_NEW and before is None
        )
        # A group gets no retained messages [MQTT 5 section 4.8.2].
        if is_due and not shared:
            retained[topic_filter] = subscription
        reason_codes.append(request.qos)
    return Subscribed(
        tuple(reason_codes),
        (*past, *in_force.values()),
        tuple(granted.values()),
        tuple(retained.values()),
    )


def plan_unsubscribe(
    topic_filters: Sequence[str], current: tuple[Subscription, ...], *, offset: int
) -> Unsubscribed:
    """Decide about an UNSUBSCRIBE; the subscriptions it names hold for nothing from `offset` on."""
    in_force = {item.topic_filter: item for item in current if item.in_force}
    past = [item for item in current if not item.in_force]
    reason_codes: list[int] = []
    removed: list[str] = []
    for topic_filter in topic_filters:
        subscription = in_force.pop(topic_filter, None)
        if subscription is None:
            reason_codes.append(ReasonCode.NO_SUBSCRIPTION_EXISTED)
            continue
        if subscription.from_offset < offset and not subscription.shared:
            # What was queued before still goes out [MQTT-3.10.4-3].
            past.append(replace(subscription, until_offset=offset))
        removed.append(topic_filter)
        reason_codes.append(ReasonCode.SUCCESS)
    return Unsubscribed(tuple(reason_codes), (*past, *in_force.values()), tuple(removed))


def _is_valid(topic_filter: str, encoded: bytes, shared: bool) -> bool:
    if topic_filter.count("/") >= LIMITS["topic_levels_maximum"]:
        return False
    if not shared:
        return is_valid_topic_filter(encoded)
    parts = parse_shared(topic_filter)
    return parts is not None and is_valid_topic_filter(parts.topic_filter.encode())


def _subscription(request: SubscriptionRequest, offset: int) -> Subscription:
    return Subscription(
        topic_filter=request.topic_filter,
        qos=request.qos,
        no_local=request.no_local,
        retain_as_published=request.retain_as_published,
        identifier=request.identifier,
        from_offset=offset,
    )
