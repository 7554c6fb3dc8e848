"""Work in pieces: whose piece comes next, and what a chore waits for."""

import asyncio

import pytest

from holdfast.broker.chores import TURN_EFFORT, Chores, Pieces, at_once


def counting(seen: list[str], name: str, pieces: int) -> Pieces[str]:
    for number in range(pieces):
        seen.append(f"{name}{number}")
        yield None
    return name


def test_one_turn_does_one_piece_and_chores_take_turns() -> None:
    asked, seen, outcomes = [], list[str](), list[str]()
    chores = Chores(lambda: asked.append(True))
    chores.begin(counting(seen, "a", 3), outcomes.append)
    chores.begin(counting(seen, "b", 1), outcomes.append)
    assert asked
    for expected in (["a0"], ["a0", "b0"], ["a0", "b0", "a1"]):
        chores.run_piece()
        assert seen == expected
    while chores.is_busy():
        chores.run_piece()
    assert outcomes == ["b", "a"]
    assert len(chores) == 0


def test_a_turn_that_has_done_its_part_leaves_the_piece_once() -> None:
    done, seen, outcomes = [0], list[str](), list[str]()
    chores = Chores(lambda: None, lambda: done[0])
    chores.begin(counting(seen, "a", 5), outcomes.append)
    turns = list[int]()
    for _ in range(4):
        done[0] += TURN_EFFORT
        chores.run_piece()
        assert chores.is_busy()
        turns.append(len(seen))
    assert turns == [0, 1, 1, 2]
    for _ in range(2):
        done[0] += TURN_EFFORT - 1
        chores.run_piece()
    assert seen == ["a0", "a1", "a2", "a3"]


def test_a_chore_that_waits_costs_no_piece_and_goes_on_when_it_may() -> None:
    durable, outcomes = [False], list[int]()

    def waiting() -> Pieces[int]:
        yield lambda: durable[0]
        return 7

    chores = Chores(lambda: None)
    chores.begin(waiting(), outcomes.append)
    chores.run_piece()
    assert not chores.is_busy()
    chores.run_piece()
    assert outcomes == []
    durable[0] = True
    assert chores.is_busy()
    chores.run_piece()
    assert outcomes == [7]


def test_a_coroutine_that_gives_up_does_not_stop_the_chore() -> None:
    seen = list[str]()

    async def run() -> None:
        chores = Chores(lambda: None)
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(chores.outcome(counting(seen, "a", 2)))
            await asyncio.sleep(0)
            chores.run_piece()
            asking.cancel()
        while chores.is_busy():
            chores.run_piece()

    asyncio.run(run())
    assert seen == ["a0", "a1"]


def test_a_coroutine_that_waits_is_told_what_goes_wrong_and_the_turn_goes_on() -> None:
    def failing() -> Pieces[None]:
        yield None
        raise ValueError("there is no queue 1")

    async def run() -> None:
        chores = Chores(lambda: None)
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(_wait_for(chores, failing()))
            await asyncio.sleep(0)
            while chores.is_busy():
                chores.run_piece()
        assert asking.result() == "there is no queue 1"

    asyncio.run(run())


async def _wait_for(chores: Chores, pieces: Pieces[None]) -> str:
    with pytest.raises(ValueError, match="no queue") as raised:
        await chores.outcome(pieces)
    return str(raised.value)


def test_what_a_piece_raises_reaches_the_turn() -> None:
    def failing() -> Pieces[None]:
        yield None
        raise OSError("the disk is gone")

    chores = Chores(lambda: None)
    chores.begin(failing(), lambda _outcome: None)
    chores.run_piece()
    with pytest.raises(OSError, match="the disk is gone"):
        chores.run_piece()
    assert len(chores) == 0


def test_all_pieces_at_once() -> None:
    assert at_once(counting([], "a", 5)) == "a"
