"""A processor beside a broker in virtual time: what is in the sink, and what the broker has still,
after each thing that can go wrong."""

from typing import Any

import pytest

from holdfast.testing.rehearsal import Rehearsal, rehearse
from tests.builders.readings import Readings, reading


def values(stage: Rehearsal) -> list[int]:
    return [row["value"] for row in stage.rows()]


def play(story: Any, **settings: Any) -> None:
    rehearse(Readings(), story, topics=("readings/+",), **settings)


@pytest.mark.accepts("S3.4", "S3.33")
@pytest.mark.parametrize("qos", [1, 2])
def test_what_came_is_committed_and_acknowledged(qos: int) -> None:
    async def story(stage: Rehearsal) -> None:
        await stage.publish("readings/7", *map(reading, range(100)), qos=qos)
        await stage.settle()
        assert values(stage) == list(range(100))
        assert stage.number("messages_received_total") == 100
        assert stage.number("messages_committed_total") == 100
        assert stage.number("rows_written_total") == 100
        # Nothing is the broker's any more.
        stage.kill()
        await stage.start()
        await stage.settle()
        assert stage.number("messages_received_total") == 100

    play(story, qos=qos)


def test_pubrec_leaves_after_the_commit() -> None:
    async def story(stage: Rehearsal) -> None:
        seen: list[int] = []
        stage.sink.committed = lambda: seen.append(stage.link.of_kind("pubrec"))
        await stage.publish("readings/7", *map(reading, range(20)))
        await stage.settle()
        assert seen[0] == 0
        assert stage.link.of_kind("pubrec") == 20

    play(story)


@pytest.mark.accepts("S3.36")
def test_a_row_is_there_once_although_the_process_is_killed_before_pubrec() -> None:
    async def story(stage: Rehearsal) -> None:
        stage.kill_before("pubrec")
        await stage.publish("readings/7", reading(1))
        await stage.start_again()
        assert values(stage) == [1]
        assert stage.number("rows_repeated_total") == 1

    play(story)


def test_a_row_is_there_once_although_the_process_is_killed_in_its_commit() -> None:
    async def story(stage: Rehearsal) -> None:
        stage.kill_after_commit()
        await stage.publish("readings/7", reading(1), reading(2))
        await stage.start_again()
        assert values(stage) == [1, 2]

    play(story)
