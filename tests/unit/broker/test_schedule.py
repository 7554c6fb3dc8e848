"""One turn for all that ask for one, and none after an error."""

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.broker.schedule import Schedule


def turns(asked: Callable[[Schedule], Awaitable[None]]) -> int:
    """How many turns were taken."""

    async def counted() -> int:
        schedule, taken = Schedule(asyncio.get_running_loop()), []
        schedule.turn = lambda: taken.append(1)
        await asked(schedule)
        for _ in range(3):
            await asyncio.sleep(0)
        return len(taken)

    return asyncio.run(counted())


def test_a_turn_that_is_asked_for_twice_is_one() -> None:
    async def twice(schedule: Schedule) -> None:
        schedule.soon()
        schedule.committed()

    assert turns(twice) == 1


def test_a_turn_is_taken_at_once_where_none_is_on_its_way() -> None:
    async def reading(schedule: Schedule) -> None:
        taken: list[str] = []
        schedule.turn = lambda: taken.append("a turn")
        schedule.at_once()
        assert len(taken) == 1
        schedule.soon()
        schedule.at_once()
        assert len(taken) == 1, "the one that was asked for reads what has come"
        await asyncio.sleep(0)
        assert len(taken) == 2

    assert turns(reading) == 0


def test_what_asks_during_a_turn_gets_another_one() -> None:
    async def within(schedule: Schedule) -> None:
        left = [1, 2]
        counted = schedule.turn

        def turn() -> None:
            counted()
            if left:
                left.pop()
                schedule.soon()

        schedule.turn = turn
        schedule.at_once()

    assert turns(within) == 3


def test_there_is_no_turn_after_an_error() -> None:
    async def failing(schedule: Schedule) -> None:
        schedule.soon()
        schedule.fail(OSError("the disk"))
        schedule.at_once()
        assert isinstance(schedule.ended.exception(), OSError)

    assert turns(failing) == 0
