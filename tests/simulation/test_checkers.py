"""Each checker passes a good history and finds the fault that is planted for it."""

import pytest

from holdfast.testing.checkers import (
    CHECKERS,
    Checker,
    check_marks_never_move_back,
    check_nothing_acknowledged_is_lost,
    check_nothing_is_invented,
    check_order_is_kept,
    check_qos_2_never_twice,
    check_qos_is_the_lower_one,
    check_retained_is_the_last,
    check_sessions_are_kept,
    check_windows_are_kept,
    judge,
)
from holdfast.testing.expectations import filter_matches
from holdfast.testing.history import (
    Acknowledged,
    Broken,
    Event,
    History,
    Mark,
    Message,
    Received,
    Refused,
    RetainedRead,
    Sent,
    SessionLost,
    Subscribed,
    Unsubscribing,
    Window,
    parse_payload,
)

ONE, TWO, THREE = (Message("p", "a/b", number, qos=2, retain=True) for number in (1, 2, 3))


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

PLANTED: list[tuple[Checker, list[Event]]] = [
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
]


def test_a_good_history_passes() -> None:
    judge(History(GOOD))


@pytest.mark.parametrize(("checker", "events"), PLANTED)
def test_a_planted_fault_is_found(checker: Checker, events: list[Event]) -> None:
    assert checker(History(events))
    with pytest.raises(AssertionError, match=checker.__name__):
        judge(History(events))


def test_every_checker_has_a_planted_fault() -> None:
    assert {checker for checker, _ in PLANTED} == set(CHECKERS)


def test_what_was_sent_before_the_subscription_or_after_its_end_is_not_owed() -> None:
    events: list[Event] = [Sent(ONE), Acknowledged(ONE), Subscribed("s", "a/b", 1)]
    events += [Unsubscribing("s", "a/b"), Sent(TWO), Acknowledged(TWO)]
    assert not check_nothing_acknowledged_is_lost(History(events))


def test_a_repeated_delivery_at_qos_1_does_not_break_the_order() -> None:
    events: list[Event] = [_received(ONE, 1), _received(TWO, 1), _received(ONE, 1, dup=True)]
    assert not check_order_is_kept(History(events))


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
