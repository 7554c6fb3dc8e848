"""How long the steps of the loop are is measured, and what was over its budget is told."""

import asyncio
import logging

import pytest

from holdfast.broker.steps import BUDGET_NS, LATELY_S, Steps

MS = 1_000_000


class Clock:
    """Nanoseconds that pass when a test says so."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


def test_the_longest_step_of_late_is_forgotten_after_a_minute() -> None:
    steps = Steps(Clock(), lambda: 0)
    steps.ended("turn", "scan", 8 * MS)
    steps.ended("turn", "scan", 3 * MS)
    turns = steps.lengths["turn"]
    for _ in range(LATELY_S):
        assert turns.lately_ns == 8 * MS
        steps.next_second()
    steps.ended("turn", "scan", 1 * MS)
    steps.next_second()
    assert turns.lately_ns == 1 * MS
    assert turns.longest_ns == 8 * MS
    assert turns.sum_ns == 12 * MS


def test_a_step_over_its_budget_is_counted_and_logged_with_its_stage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    steps = Steps(Clock(), lambda: 0)
    with caplog.at_level(logging.INFO):
        steps.ended("sweep", "watch", BUDGET_NS)
        assert not steps.over_budget
        assert not caplog.records
        steps.ended("sweep", "watch", BUDGET_NS + 1)
    assert steps.over_budget == {("sweep", "watch"): 1}
    (line,) = caplog.records
    assert line.__dict__["fields"] == {"step": "sweep", "ms": 10, "stage": "watch", "stage_ms": 10}


def test_an_answer_is_measured_from_wait_to_wait() -> None:
    clock = Clock()
    steps = Steps(clock, lambda: 0)

    async def answer() -> str:
        clock.ns += 2 * MS
        await asyncio.sleep(0)
        # What passes while it waits is nobody's step.
        clock.ns += 4 * MS
        return "found"

    async def ask() -> str:
        return await steps.answering("rows", answer())

    assert asyncio.run(ask()) == "found"
    assert steps.lengths["answer"].sum_ns == 6 * MS
    assert steps.lengths["answer"].longest_ns == 4 * MS


def test_an_answer_that_fails_or_is_left_is_what_it_would_have_been() -> None:
    steps = Steps(Clock(), lambda: 0)
    seen = []

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("no such row")

    async def lasts() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def ask() -> None:
        with pytest.raises(ValueError, match="no such row"):
            await steps.answering("fails", fails())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await steps.answering("lasts", lasts())

    asyncio.run(ask())
    assert seen == ["cancelled"]
