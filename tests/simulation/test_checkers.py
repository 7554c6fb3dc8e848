"""Each checker passes a good history and finds the fault that is planted for it."""

from dataclasses import replace

import pytest

from tests.equipment.checkers import (
    CHECKERS,
    Checker,
    check_a_taken_over_connection_is_told,
    check_marks_never_move_back,
    check_nothing_acknowledged_is_lost,
    check_nothing_comes_unasked,
    check_nothing_is_invented,
    check_order_is_kept,
    check_qos_0_never_twice,
    check_qos_2_never_twice,
    check_qos_is_the_lower_one,
    check_retained_is_the_last,
    check_sessions_are_kept,
    check_steps_of_the_loop_are_short,
    check_the_broker_holds_a_bounded_amount,
    check_windows_are_kept,
    judge,
)
from tests.equipment.expectations import filter_matches
from tests.equipment.groups import (
    check_groups_give_each_message_to_one,
    check_keyed_groups_keep_order,
)
from tests.equipment.history import (
    Acknowledged,
    Answered,
    Applied,
    Broken,
    Closed,
    Connecting,
    Damaged,
    Displaced,
    Event,
    GivenUp,
    Held,
    History,
    Keyed,
    Ledger,
    LifeEnded,
    Mark,
    Message,
    Opened,
    QueueLimited,
    Received,
    Recovered,
    Refused,
    RetainedRead,
    Sent,
    SessionLost,
    Stepped,
    Subscribed,
    Subscribing,
    Transmitted,
    Unsubscribed,
    Unsubscribing,
    Window,
    parse_payload,
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

ONE, TWO, THREE = (Message("p", "a/b", number, qos=2, retain=True) for number in (1, 2, 3))
FOUR = Message("p", "a/b", 4, qos=2)


def _received(message: Message, qos: int = 2, *, dup: bool = False) -> Received:
    return Received("s", message, qos, dup, retain=False)


GOOD: list[Event] = [
    Subscribed("s", "a/#", 2),
    Sent(ONE),
    Sent(TWO),
    Window("s", 2, 2),
    _received(ONE),
    Acknowledged(ONE),
    Mark("s", 1),
    Acknowledged(TWO),
    _received(TWO),
    Mark("s", 2),
    RetainedRead("a/b", TWO),
    Unsubscribing("s", "a/#"),
    Sent(THREE),
    Refused(THREE, 0x97),
]

BRIEF = Message("p", "a/b", 9, qos=2, expiry_s=5)
LIGHT = Message("p", "a/b", 5, qos=0)
GROUP = "$share/g/a/#"
SHARED: list[Event] = [Subscribing("s", GROUP), Subscribed("s", GROUP, 2), *GOOD[1:2]]
SHARED += [Acknowledged(ONE)]
TOLD: list[Event] = [Opened("s", present=False), Subscribing("s", "a/#"), *GOOD[:2]]
TOLD += [Acknowledged(ONE)]

LIVE = Opened("s", present=False)
OLD = Opened("s", present=False, protocol_version=4)
AGAIN = Opened("s", present=True)


def _applied(*, transmissions: int = 4, reason: str | None = "retries_used_up") -> Applied:
    """Packs of two."""
    return Applied(frozenset({"s"}), 2, transmissions, 1, reason)


def _sent(message: Message, identifier: int, *, dup: bool = False) -> Transmitted:
    return Transmitted("s", message, identifier, dup)


PACK: list[Event] = [_applied(), LIVE, _sent(ONE, 1), _sent(TWO, 2)]
OWED: list[Event] = [Subscribing("s", "a/#"), Subscribed("s", "a/#", 2), Sent(ONE), Sent(TWO)]
OVERFLOW: list[Event] = [QueueLimited(1), *OWED]

PLANTED: list[tuple[Checker, list[Event]]] = [
    (check_packs_are_kept, [*PACK, _sent(THREE, 3)]),
    (check_packs_are_kept, [*PACK, Answered("s", ONE), _sent(THREE, 3), _sent(FOUR, 4)]),
    (check_transmissions_are_bounded, [LIVE, _sent(ONE, 1), _sent(ONE, 1, dup=True)]),
    (check_transmissions_are_bounded, [*PACK, _sent(ONE, 1, dup=True)]),
    (
        check_transmissions_are_bounded,
        [_applied(), OLD, _sent(ONE, 1), *[_sent(ONE, 1, dup=True)] * 4],
    ),
    (check_repeats_are_marked, [LIVE, _sent(ONE, 1), AGAIN, _sent(ONE, 1)]),
    (check_repeats_are_marked, [LIVE, _sent(ONE, 1), AGAIN, _sent(ONE, 2, dup=True)]),
    (check_what_is_given_up_is_in_the_ledger, [*PACK, Answered("s", ONE), GivenUp("s")]),
    (
        check_what_is_given_up_is_in_the_ledger,
        [*PACK, Answered("s", ONE), Ledger("s", "skipped", 1)],
    ),
    (check_what_is_given_up_is_in_the_ledger, [LIVE, Ledger("s", "skipped", 1)]),
    (check_queues_overflow_only_when_full, [*OVERFLOW, Ledger("s", "overflow", 2)]),
    (check_queues_overflow_only_when_full, [*OWED, Ledger("s", "overflow", 1)]),
    (check_nothing_acknowledged_is_lost, [e for e in GOOD if e != _received(TWO)]),
    (check_nothing_is_invented, [*GOOD, _received(Message("p", "a/b", 4, qos=2))]),
    (check_qos_2_never_twice, [*GOOD, _received(TWO, dup=True)]),
    (check_qos_is_the_lower_one, [_received(ONE, 1) if e == _received(ONE) else e for e in GOOD]),
    (
        check_order_is_kept,
        [_received(TWO) if e == _received(ONE) else e for e in GOOD[:8]] + [_received(ONE)],
    ),
    (check_windows_are_kept, [*GOOD, Window("s", 3, 2)]),
    (check_marks_never_move_back, [*GOOD, Mark("s", 1)]),
    (check_retained_is_the_last, [*GOOD, RetainedRead("a/b", ONE)]),
    (check_retained_is_the_last, [*GOOD, RetainedRead("a/b", None)]),
    (check_sessions_are_kept, [*GOOD, SessionLost("s")]),
    (check_sessions_are_kept, [*GOOD, Broken("s", "nonsense")]),
    (check_nothing_comes_unasked, [*GOOD, Unsubscribed("s", "a/#"), Sent(FOUR), _received(FOUR)]),
    (check_nothing_comes_unasked, [Opened("s", present=False), *GOOD[1:]]),
    (check_qos_0_never_twice, [*GOOD, Sent(LIGHT), _received(LIGHT, 0), _received(LIGHT, 0)]),
    (check_a_taken_over_connection_is_told, [*GOOD, Displaced("s", 0x82)]),
    (check_the_broker_holds_a_bounded_amount, [*GOOD, Held("things", 3, 2)]),
    (check_steps_of_the_loop_are_short, [*GOOD, Stepped("turn", 3, 2)]),
    (check_groups_give_each_message_to_one, [*SHARED, _received(ONE), _received(ONE)]),
    (check_groups_give_each_message_to_one, SHARED),
    (
        check_keyed_groups_keep_order,
        [Keyed(), *SHARED, Subscribing("t", GROUP), _received(TWO, 1), _received(ONE, 1)],
    ),
    (check_every_loss_is_in_the_ledger, [*GOOD[:2], Acknowledged(ONE)]),
    (check_every_loss_is_in_the_ledger, [*GOOD, Ledger("s", "expired", 1)]),
    (check_every_loss_is_in_the_ledger, [*GOOD, Sent(BRIEF), Ledger("s", "too_large", 1)]),
    (check_every_loss_is_in_the_ledger, [*GOOD, Ledger("s", "session_ended", 1)]),
    (check_recovery_equals_the_twin, [*TOLD, Recovered({}, {}, frozenset({"a/b"}))]),
    (check_recovery_equals_the_twin, [*TOLD, Recovered({"s": {}}, {"s": 1}, frozenset({"a/b"}))]),
    (
        check_recovery_equals_the_twin,
        [*TOLD, Recovered({"s": {"a/#": 2, "b": 1}}, {"s": 1}, frozenset({"a/b"}))],
    ),
    (
        check_recovery_equals_the_twin,
        [*TOLD, Recovered({"s": {"a/#": 2}}, {"s": 0}, frozenset({"a/b"}))],
    ),
    (check_recovery_equals_the_twin, [*TOLD, Recovered({"s": {"a/#": 2}}, {"s": 1}, frozenset())]),
]

Timed = list[tuple[float, Event]]

WILL = Message("m", "w", 1, qos=1)
BORN = Opened("m", present=False, expiry_s=60, will=WILL, will_delay_s=40)
WATCHED: Timed = [(0, Subscribed("s", "#", 1)), (1, Connecting("m", WILL)), (1, BORN)]
GONE: Timed = [(100, Closed("m", 100, said=False))]
SAID: Timed = [(100, Closed("m", 100, said=True))]
BRIEF = Message("p", "a", 1, qos=1, expiry_s=5)
TAKEN: Timed = [
    (0, Opened("s", present=False)),
    (0, Subscribing("s", "#")),
    (0, Subscribed("s", "#", 1)),
    (1, Sent(BRIEF)),
    (1, Acknowledged(BRIEF)),
]


def _will(at_s: float) -> Timed:
    return [(at_s, _received(WILL, 1))]


def _opened(at_s: float, *, present: bool) -> Timed:
    return [(at_s, Opened("m", present=present, expiry_s=60))]


def _brief(at_s: float, left_s: int | None) -> Timed:
    return [(at_s, Received("s", BRIEF, 1, dup=False, retain=False, expires_in_s=left_s))]


GOOD_TIMES: list[Timed] = [
    WATCHED + GONE + _will(141),
    WATCHED + SAID + [(500, Mark("s", 1))],
    WATCHED + GONE + _opened(110, present=True) + [(500, Mark("s", 1))],
    WATCHED + GONE + _opened(300, present=False) + _will(141),
    TAKEN + _brief(4, 2),
]

PLANTED_IN_TIME: list[tuple[Checker, Timed]] = [
    (check_wills_are_published_when_due, WATCHED + GONE + _will(141) + _will(142)),
    (check_wills_are_published_when_due, WATCHED + GONE + _will(110)),
    (check_wills_are_published_when_due, WATCHED + SAID + _will(141)),
    (check_wills_are_published_when_due, WATCHED + _will(50)),
    (check_wills_are_published_when_due, WATCHED + GONE + [(500, Mark("s", 1))]),
    (check_wills_are_published_when_due, WATCHED + GONE + _opened(110, present=True) + _will(141)),
    (check_messages_expire, TAKEN + _brief(20, 2)),
    (check_messages_expire, TAKEN + _brief(2, 6)),
    (check_messages_expire, TAKEN + _brief(2, None)),
    (check_sessions_expire, WATCHED + GONE + _opened(300, present=True)),
    (check_sessions_expire, WATCHED + GONE + _opened(110, present=False)),
    (check_sessions_expire, _opened(1, present=True)),
]


def test_a_good_history_passes() -> None:
    judge(History(GOOD))


@pytest.mark.parametrize(("checker", "events"), PLANTED)
def test_a_planted_fault_is_found(checker: Checker, events: list[Event]) -> None:
    assert checker(History(events))
    with pytest.raises(AssertionError, match=checker.__name__):
        judge(History(events))


def _history(timed: Timed) -> History:
    return History([event for _, event in timed], times_s=[at_s for at_s, _ in timed])


@pytest.mark.parametrize("timed", GOOD_TIMES)
def test_what_is_right_in_time_passes(timed: Timed) -> None:
    history = _history(timed)
    for checker in (
        check_wills_are_published_when_due,
        check_messages_expire,
        check_sessions_expire,
    ):
        assert not checker(history)


@pytest.mark.parametrize(("checker", "timed"), PLANTED_IN_TIME)
def test_a_fault_planted_in_time_is_found(checker: Checker, timed: Timed) -> None:
    assert checker(_history(timed))


def test_a_recovery_that_equals_the_twin_passes() -> None:
    found = Recovered({"s": {"a/#": 2}}, {"s": 1}, frozenset({"a/b"}))
    assert not check_recovery_equals_the_twin(History([*TOLD, found]))


PATIENT: list[list[Event]] = [
    [*PACK, *[Answered("s", item) for item in (ONE, TWO)], _sent(THREE, 3), Answered("s", THREE)],
    [*PACK, GivenUp("s"), _sent(THREE, 3), Ledger("s", "retries_used_up", 3)],
    [_applied(), OLD, _sent(ONE, 1), *[_sent(ONE, 1, dup=True)] * 3, Answered("s", ONE)],
    [_applied(transmissions=0, reason=None), OLD, *[_sent(ONE, 1, dup=True)] * 9, AGAIN],
    [*OVERFLOW, Ledger("s", "overflow", 1)],
]


@pytest.mark.parametrize("events", PATIENT)
def test_an_application_that_is_delivered_to_as_it_should_be_passes(events: list[Event]) -> None:
    history = History(events)
    assert not check_packs_are_kept(history)
    assert not check_transmissions_are_bounded(history)
    assert not check_repeats_are_marked(history)
    assert not check_queues_overflow_only_when_full(history)
    if events[-1] != AGAIN:
        assert not check_what_is_given_up_is_in_the_ledger(history)


def test_what_the_disk_has_damaged_is_owed_to_nobody() -> None:
    lost = [*OWED, Acknowledged(ONE), Damaged(ONE)]
    assert not check_nothing_acknowledged_is_lost(History(lost))
    assert not check_every_loss_is_in_the_ledger(History(lost))


def test_every_checker_has_a_planted_fault() -> None:
    planted = {checker for checker, _ in (*PLANTED, *PLANTED_IN_TIME)}
    assert planted == set(CHECKERS)


def test_what_was_sent_before_the_subscription_or_after_its_end_is_not_owed() -> None:
    events: list[Event] = [Sent(ONE), Acknowledged(ONE), Subscribed("s", "a/b", 1)]
    events += [Unsubscribing("s", "a/b"), Sent(TWO), Acknowledged(TWO)]
    assert not check_nothing_acknowledged_is_lost(History(events))


def test_a_repeated_delivery_at_qos_1_does_not_break_the_order() -> None:
    events: list[Event] = [_received(ONE, 1), _received(TWO, 1), _received(ONE, 1, dup=True)]
    assert not check_order_is_kept(History(events))


def test_a_message_whose_first_record_is_of_no_use_does_not_break_the_order() -> None:
    one, two = (replace(message, qos=1) for message in (ONE, TWO))
    events: list[Event] = [_received(two, 1), _received(one, 1)]
    assert check_order_is_kept(History(events))
    assert not check_order_is_kept(History([Damaged(one), *events]))
    expiring = replace(one, expiry_s=1)
    assert not check_order_is_kept(History([_received(two, 1), _received(expiring, 1)]))


def test_who_may_have_begun_anew_unheard_is_owed_nothing_from_before() -> None:
    def events(connects: int) -> History:
        back = [Connecting("s")] * connects + [Opened("s", present=True, expiry_s=15)]
        begun = [Connecting("s"), Opened("s", present=False, expiry_s=15)]
        return History([*begun, Subscribed("s", "a/b", 1), Sent(ONE), Acknowledged(ONE), *back])

    assert check_every_loss_is_in_the_ledger(events(1))
    assert not check_every_loss_is_in_the_ledger(events(2))


def test_a_copy_at_qos_0_may_come_again_in_the_next_life() -> None:
    copies: list[Event] = [_received(ONE, 0), _received(ONE, 0)]
    assert check_qos_0_never_twice(History(copies))
    assert not check_qos_0_never_twice(History([copies[0], LifeEnded(), copies[1]]))


def test_retention_owes_nothing_to_a_session_that_ends_with_its_connection() -> None:
    told = [Sent(ONE), Ledger("s", "retention", 1)]
    for expiry_s, is_honest in ((86_400, False), (0, True)):
        opened = Opened("s", present=False, expiry_s=expiry_s)
        history = History([opened, Subscribed("s", "a/b", 1), *told])
        assert bool(check_every_loss_is_in_the_ledger(history)) is not is_honest


@pytest.mark.parametrize(
    ("topic_filter", "topic", "matches"),
    [
        ("a/b", "a/b", True),
        ("a/+", "a/b", True),
        ("a/+", "a", False),
        ("a/#", "a", True),
        ("#", "a/b", True),
        ("#", "$SYS/a", False),
        ("+/b", "/b", True),
        ("a/b", "a/b/c", False),
    ],
)
def test_filters_match_as_the_standard_says(topic_filter: str, topic: str, matches: bool) -> None:
    assert filter_matches(topic_filter, topic) is matches


def test_a_payload_tells_its_message_and_a_damaged_one_is_noticed() -> None:
    message = Message("p", "t", 7, 1, retain=True, padding_bytes=30)
    assert parse_payload("t", message.payload()) == message
    with pytest.raises(ValueError, match="padding"):
        parse_payload("t", message.payload()[:-1] + b"x")
