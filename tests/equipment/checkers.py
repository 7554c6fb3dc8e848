"""Judges of a run, one question each.

Owns: what "nothing is lost", "exactly once", "in order" and the like mean, told only by what
clients saw.
Never: asks the broker, and shares no code with it: not even the matching of topics.

Each function returns a sentence for each violation it found; none is a pass.
"""

from collections import Counter
from collections.abc import Callable

from tests.equipment.expectations import Expectations
from tests.equipment.groups import (
    check_groups_give_each_message_to_one,
    check_keyed_groups_keep_order,
)
from tests.equipment.history import (
    Acknowledged,
    Broken,
    Connecting,
    Displaced,
    Held,
    History,
    LifeEnded,
    Mark,
    Message,
    Received,
    RetainedAsked,
    RetainedRead,
    Sent,
    SessionLost,
    Stepped,
    Window,
)
from tests.equipment.ledger import (
    check_every_loss_is_in_the_ledger,
    check_queues_overflow_only_when_full,
)
from tests.equipment.lifetimes import (
    check_messages_expire,
    check_sessions_expire,
    check_wills_are_published_when_due,
)
from tests.equipment.packs import (
    check_packs_are_kept,
    check_repeats_are_marked,
    check_transmissions_are_bounded,
    check_what_is_given_up_is_in_the_ledger,
)
from tests.equipment.twin import check_recovery_equals_the_twin

SHOWN_MAXIMUM = 10
"""Violations that a failure shows; the rest are counted."""

Checker = Callable[[History], list[str]]


def check_nothing_acknowledged_is_lost(history: History) -> list[str]:
    """Did every subscriber get every acknowledged message that it was owed at QoS 1 or 2?"""
    expectations = Expectations(history)
    return [
        f"{subscriber} never got {message}, which was acknowledged"
        for subscriber in expectations.subscribers()
        for message in sorted(expectations.acknowledged, key=_by_place)
        if expectations.effective_qos(subscriber, message)
        and not expectations.received[subscriber][message]
        and not expectations.may_be_lost(subscriber, message)
    ]


def check_nothing_is_invented(history: History) -> list[str]:
    """Was everything that arrived sent before, by the publisher and to the topic it names?"""
    sent: set[Message] = set()
    violations = []
    for event in history.events:
        if isinstance(event, Sent):
            sent.add(event.message)
        elif isinstance(event, Connecting):
            sent |= {event.will} if event.will is not None else set()
        elif isinstance(event, Received) and event.message not in sent:
            violations.append(f"{event.subscriber} got {event.message}, which nobody had sent")
    return violations


def check_nothing_comes_unasked(history: History) -> list[str]:
    """Was everything that arrived asked for by a subscription of this very session, and none that
    had ended before it was sent?"""
    expectations = Expectations(History())
    violations = []
    for place, event in enumerate(history.events):
        expectations.take(place, event)
        if isinstance(event, Received) and not event.retain:
            subscriber, message = event.subscriber, event.message
            if not expectations.is_allowed(subscriber, message):
                violations.append(f"{subscriber} got {message} without a subscription")
    return violations


def check_qos_2_never_twice(history: History) -> list[str]:
    """Was no message handed twice to a subscriber that gets it at QoS 2?"""
    return _twice(history, qos=2)


def check_qos_0_never_twice(history: History) -> list[str]:
    """Was no message handed twice to a subscriber that gets it at QoS 0?"""
    return _twice(history, qos=0)


def _twice(history: History, qos: int) -> list[str]:
    violations = []
    counts: Counter[tuple[str, Message]] = Counter()
    for event in history.events:
        if isinstance(event, LifeEnded) and not qos:
            # A copy at QoS 0 does not wait for the disk, and who sent the message may have to send
            # it to the next life.
            counts.clear()
        if not isinstance(event, Received) or event.retain or event.qos != qos:
            continue
        # Who sends at QoS 1 may send twice, and each is a message of its own.
        if qos or event.message.qos != 1:
            counts[event.subscriber, event.message] += 1
            if counts[event.subscriber, event.message] == 2:
                violations.append(f"{event.subscriber} got {event.message} twice at QoS {qos}")
    return violations


def check_qos_is_the_lower_one(history: History) -> list[str]:
    """Did everything arrive at the lower of the QoS it was sent with and the one subscribed
    with?"""
    expectations = Expectations(history)
    violations = []
    for event in history.events:
        if isinstance(event, Received) and not event.retain:
            expected = expectations.effective_qos(event.subscriber, event.message)
            if expected is not None and expected != event.qos:
                violations.append(f"{event} should have had QoS {expected}")
    return violations


def check_order_is_kept(history: History) -> list[str]:
    """Did the messages of a publisher on a topic come first in the order they were sent, per
    QoS? What a member of a group gives back comes to another when it may."""
    expectations = Expectations(History())
    violations = []
    newest: dict[tuple[str, str, str, int], int] = {}
    seen: set[tuple[str, Message]] = set()
    for place, event in enumerate(history.events):
        expectations.take(place, event)
        if not isinstance(event, Received) or event.retain:
            continue
        message = event.message
        if expectations.is_by_group(event.subscriber, message):
            continue
        if expectations.may_come_late(event.subscriber, message):
            continue
        if (event.subscriber, message) in seen:
            continue  # Sent again: the order of first receipts is what is promised (section 4.6).
        seen.add((event.subscriber, message))
        key = (event.subscriber, message.publisher, message.topic, message.qos)
        if message.sequence < newest.get(key, -1):
            violations.append(f"{event.subscriber} got {message} after number {newest[key]}")
        newest[key] = max(message.sequence, newest.get(key, -1))
    return violations


def check_windows_are_kept(history: History) -> list[str]:
    """Were never more messages unanswered than the subscriber's Receive Maximum?"""
    return [
        f"{event.subscriber} had {event.unanswered} unanswered of {event.receive_maximum} allowed"
        for event in history.events
        if isinstance(event, Window) and event.unanswered > event.receive_maximum
    ]


def check_marks_never_move_back(history: History) -> list[str]:
    """Did every queue's mark only move forward?"""
    violations = []
    newest: dict[str, int] = {}
    for event in history.events:
        if isinstance(event, Mark):
            if event.offset < newest.get(event.party, 0):
                violations.append(f"the mark of {event.party} fell to {event.offset}")
            newest[event.party] = event.offset
    return violations


def check_retained_is_the_last(history: History) -> list[str]:
    """Is what a topic retains the newest retained message acknowledged before somebody asked, or
    one sent after it?

    It asks only topics with one publisher, whose order is known.
    """
    violations = []
    sent: dict[str, list[Message]] = {}
    newest: dict[str, int] = {}
    asked: dict[int, dict[str, int]] = {}
    for event in history.events:
        match event:
            case Sent(message) if message.retain:
                sent.setdefault(message.topic, []).append(message)
            case Acknowledged(message) if message.retain:
                newest[message.topic] = max(message.sequence, newest.get(message.topic, -1))
            case RetainedAsked(number):
                asked[number] = newest.copy()
            case RetainedRead(topic, found, number):
                least = asked.get(number, newest).get(topic, -1)
                candidates = [item for item in sent.get(topic, []) if item.sequence >= least]
                if found is None:
                    right = least < 0 or any(item.empty for item in candidates)
                else:
                    right = found in candidates
                if not right:
                    violations.append(f"{topic} retains {found}, {least} was acknowledged before")
            case _:
                pass
    return violations


def check_sessions_are_kept(history: History) -> list[str]:
    """Was no confirmed session forgotten, and did no client see what no specification allows?"""
    lost = [f"{e.client}: session lost" for e in history.events if isinstance(e, SessionLost)]
    return lost + [f"{e.client}: {e.what}" for e in history.events if isinstance(e, Broken)]


LAST_WORDS = (None, 0x8B, 0x8D, 0x8E)
"""What a connection may end with whose session is taken over: nothing (the network may take the
words away), that the broker stops, that nothing came of it any more, or that it is taken over."""


def check_a_taken_over_connection_is_told(history: History) -> list[str]:
    """Did no connection end with a wrong reason when its session was taken over?"""
    return [
        f"{event.client} was taken over and told {event.reason_code:#x}"
        for event in history.events
        if isinstance(event, Displaced) and event.reason_code not in LAST_WORDS
    ]


def check_the_broker_holds_a_bounded_amount(history: History) -> list[str]:
    """Was there never more of anything inside the broker than its limits allow?"""
    return [
        f"{event.what}: {event.amount} of {event.maximum} allowed"
        for event in history.events
        if isinstance(event, Held) and event.amount > event.maximum
    ]


def check_steps_of_the_loop_are_short(history: History) -> list[str]:
    """Did the loop never do more at one go than may hold up the others?"""
    return [
        f"{event.step} did {event.effort} of {event.maximum} allowed"
        for event in history.events
        if isinstance(event, Stepped) and event.effort > event.maximum
    ]


CHECKERS: tuple[Checker, ...] = (
    check_nothing_acknowledged_is_lost,
    check_nothing_is_invented,
    check_nothing_comes_unasked,
    check_qos_2_never_twice,
    check_qos_0_never_twice,
    check_qos_is_the_lower_one,
    check_order_is_kept,
    check_windows_are_kept,
    check_marks_never_move_back,
    check_retained_is_the_last,
    check_sessions_are_kept,
    check_a_taken_over_connection_is_told,
    check_the_broker_holds_a_bounded_amount,
    check_steps_of_the_loop_are_short,
    check_wills_are_published_when_due,
    check_messages_expire,
    check_sessions_expire,
    check_groups_give_each_message_to_one,
    check_keyed_groups_keep_order,
    check_every_loss_is_in_the_ledger,
    check_queues_overflow_only_when_full,
    check_recovery_equals_the_twin,
    check_packs_are_kept,
    check_transmissions_are_bounded,
    check_repeats_are_marked,
    check_what_is_given_up_is_in_the_ledger,
)


def judge(history: History) -> None:
    """Asks every question; raises `AssertionError` with what was found."""
    found = {checker.__name__: checker(history) for checker in CHECKERS}
    lines = []
    for name, violations in found.items():
        if violations:
            lines.append(f"{name}: {len(violations)} violations")
            lines += [f"  {violation}" for violation in violations[:SHOWN_MAXIMUM]]
    if lines:
        raise AssertionError("\n".join(lines))


def _by_place(message: Message) -> tuple[str, str, int]:
    return message.publisher, message.topic, message.sequence
