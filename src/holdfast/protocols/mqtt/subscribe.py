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
from dataclasses import dataclass
from typing import Final

from holdfast.core.held_subscriptions import HeldSubscriptions
from holdfast.core.limits import (
    SHARED_PER_SESSION_MAXIMUM,
    SUBSCRIPTION_BYTES_PER_SESSION_MAXIMUM,
    SUBSCRIPTIONS_PER_SESSION_MAXIMUM,
)
from holdfast.core.share_name import SHARED_PREFIX, parse_shared
from holdfast.core.subscription import Subscription
from holdfast.kernel import LIMITS, is_valid_topic_filter
from holdfast.protocols.mqtt.packets import SubscriptionRequest
from holdfast.protocols.mqtt.reason_code import ReasonCode

RETAIN_ALWAYS: Final = 0
RETAIN_IF_NEW: Final = 1


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The outcome of a SUBSCRIBE."""

    reason_codes: tuple[int, ...]
    held: HeldSubscriptions
    """All of the session's, past ones included; what it held before, where nothing has changed."""
    granted: tuple[Subscription, ...]
    """Those of this packet, to be routed."""
    retained: tuple[Subscription, ...]
    """Those whose retained messages are due."""


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """The outcome of an UNSUBSCRIBE."""

    reason_codes: tuple[int, ...]
    held: HeldSubscriptions
    removed: tuple[str, ...]


class _Holding:
    """What a session holds while it is changed."""

    def __init__(self, held: HeldSubscriptions) -> None:
        self._held = held
        self._parts = dict(held.own), dict(held.shared)
        self._past = list(held.past)
        self._are_changed = [False, False]
        self._filter_bytes = held.filter_bytes

    def has_room(self, filter_bytes: int, *, is_new: bool) -> bool:
        """Whether one more fits. One that is replaced may leave a past one behind, so that adds one
        too, and has twice the room."""
        own, shared = self._parts
        count = len(own) + len(shared) + len(self._past)
        most = SUBSCRIPTIONS_PER_SESSION_MAXIMUM * (1 if is_new else 2)
        return count < most and (
            self._filter_bytes + filter_bytes <= SUBSCRIPTION_BYTES_PER_SESSION_MAXIMUM
        )

    def get(self, topic_filter: str, is_shared: bool) -> Subscription | None:
        """The one in force with this filter."""
        return self._parts[is_shared].get(topic_filter)

    def put(
        self, new: Subscription, before: Subscription | None, is_shared: bool, filter_bytes: int
    ) -> None:
        """It is in force from its offset on, and what was `before` with this filter until then."""
        if before is None or self._end(before, new.from_offset, is_shared):
            self._filter_bytes += filter_bytes
        self._parts[is_shared][new.topic_filter] = new
        self._are_changed[is_shared] = True

    def remove(self, topic_filter: str, offset: int) -> bool:
        """Holds for nothing from `offset` on; false if there was none."""
        is_shared = topic_filter.startswith(SHARED_PREFIX)
        before = self._parts[is_shared].pop(topic_filter, None)
        if before is None:
            return False
        self._are_changed[is_shared] = True
        if not self._end(before, offset, is_shared):
            self._filter_bytes -= len(topic_filter.encode())
        return True

    def held(self) -> HeldSubscriptions:
        """What it has come to."""
        if not any(self._are_changed):
            return self._held
        before, (own, shared) = self._held, self._parts
        is_own_changed, is_shared_changed = self._are_changed
        return HeldSubscriptions(
            own if is_own_changed else before.own,
            shared if is_shared_changed else before.shared,
            # Nothing but more comes to what is past.
            tuple(self._past) if len(self._past) > len(before.past) else before.past,
            self._filter_bytes,
        )

    def _end(self, before: Subscription, offset: int, is_shared: bool) -> bool:
        """What was queued before still goes out [MQTT-3.8.4-3, MQTT-3.10.4-3]: true if anything
        can have been."""
        has_past = before.from_offset < offset and not is_shared
        if has_past:
            self._past.append(before._replace(until_offset=offset))
        return has_past


def plan_subscribe(
    requests: Sequence[SubscriptionRequest],
    held: HeldSubscriptions,
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
    holding = _Holding(held)
    reason_codes: list[int] = []
    granted: dict[str, Subscription] = {}
    retained: dict[str, Subscription] = {}
    joined, new = len(held.shared), 0
    for request in requests:
        # There may be thousands of them: nothing is looked up, or encoded, twice.
        topic_filter = request.topic_filter
        encoded = topic_filter.encode()
        shared = topic_filter.startswith(SHARED_PREFIX)
        before = holding.get(topic_filter, shared)
        if not _is_valid(topic_filter, encoded, shared):
            reason_code: ReasonCode | None = ReasonCode.TOPIC_FILTER_INVALID
        elif not holding.has_room(len(encoded), is_new=before is None):
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
        if before is not None and before._replace(from_offset=offset) == subscription:
            subscription = before
        else:
            holding.put(subscription, before, shared, len(encoded))
        new += shared and before is None
        granted[topic_filter] = subscription
        is_due = request.retain_handling == RETAIN_ALWAYS or (
            request.retain_handling == RETAIN_IF_NEW and before is None
        )
        # A group gets no retained messages [MQTT 5 section 4.8.2].
        if is_due and not shared:
            retained[topic_filter] = subscription
        reason_codes.append(request.qos)
    return Subscribed(
        tuple(reason_codes), holding.held(), tuple(granted.values()), tuple(retained.values())
    )


def plan_unsubscribe(
    topic_filters: Sequence[str], held: HeldSubscriptions, *, offset: int
) -> Unsubscribed:
    """Decide about an UNSUBSCRIBE; the subscriptions it names hold for nothing from `offset` on."""
    holding = _Holding(held)
    reason_codes: list[int] = []
    removed: list[str] = []
    for topic_filter in topic_filters:
        if holding.remove(topic_filter, offset):
            removed.append(topic_filter)
            reason_codes.append(ReasonCode.SUCCESS)
        else:
            reason_codes.append(ReasonCode.NO_SUBSCRIPTION_EXISTED)
    return Unsubscribed(tuple(reason_codes), holding.held(), tuple(removed))


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
