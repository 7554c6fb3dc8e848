"""What counts as movement on the connection of a bridge."""

from collections.abc import Iterable

import pytest

from holdfast.broker.bridge.movement import Movement, Seen
from holdfast.broker.sockets.taken import Taken

PING_BYTES = 2


def still_s(seen: Iterable[Seen], movement: Movement | None = None) -> int:
    """How long nothing has moved when all of this has been seen, one a second."""
    movement, last = movement or Movement(0), 0
    for last, each in enumerate(seen, 1):
        movement.saw(each, last)
    return last - movement.at_us


def waiting(taken: int, left: int, answered: int = 0) -> Seen:
    """The remote has something to answer."""
    return Seen((7, answered), is_waiting=True, bytes=Taken(taken, left))


def idle(taken: int = 0) -> Seen:
    return Seen((7, 0), is_waiting=False, bytes=Taken(taken, 0))


@pytest.mark.parametrize(("grows", "still"), [(True, 0), (False, 59)])
def test_acknowledgements_are_progress_although_the_mark_stays(*, grows: bool, still: int) -> None:
    assert still_s(waiting(0, 0, second * grows) for second in range(60)) == still


def test_who_has_nothing_to_answer_stands_still_for_no_time() -> None:
    assert still_s(idle() for _ in range(60)) == 0


def test_a_large_message_moves_as_long_as_bytes_of_it_are_taken() -> None:
    message = [waiting(taken, 300 - taken) for taken in range(300)]
    assert still_s([idle(), *message]) == 0
    assert still_s([idle(), *message, *[message[-1]] * 50]) == 50
    assert still_s([idle(), *message, *[waiting(300, 0)] * 50]) == 49


def test_what_comes_behind_the_message_that_is_not_answered_proves_nothing() -> None:
    pings = [waiting(300 + PING_BYTES * number, 0) for number in range(50)]
    assert still_s([idle(), waiting(0, 300), waiting(300, 0), *pings]) == 50
    others = [waiting(300 + 10 * number, 1_000) for number in range(50)]
    assert still_s([idle(), waiting(0, 300), waiting(300, 0), *others]) == 50


def test_an_answer_to_one_message_lets_the_bytes_of_the_next_ones_count() -> None:
    first = [waiting(0, 400), waiting(100, 300)]
    next_ones = [waiting(taken, 400 - taken, answered=1) for taken in range(101, 160)]
    assert still_s([idle(), *first, *next_ones]) == 0


def test_what_is_given_later_counts_although_it_was_in_flight_before() -> None:
    held = [waiting(10, 0)] * 20
    movement = Movement(0)
    assert still_s([idle(10), *held], movement) == 20
    movement.given()
    for second in range(30):
        movement.saw(waiting(10 + second, 90 - second), 21 + second)
    assert movement.at_us == 50


def test_pings_are_no_bytes_that_move() -> None:
    movement = Movement(0)
    for second in range(60):
        movement.saw(idle(PING_BYTES * second), second)
    assert (movement.at_us, movement.taken_at_us) == (59, 0)


def test_an_answer_to_a_question_is_movement() -> None:
    movement = Movement(0)
    assert still_s([waiting(0, 0)] * 20, movement) == 19
    movement.answered(20)
    assert movement.at_us == 20
