"""A few rounds of the journey: whatever dies, the table has what the devices counted."""

import asyncio
from pathlib import Path

import pytest

from holdfast import system
from tests.journey import victims
from tests.journey.judge import compare
from tests.journey.rounds import release_first, run


@pytest.fixture
def seed() -> int:
    return system.seed() % (1 << 32)


@pytest.mark.slow
def test_a_table_has_each_message_once_over_three_rounds_of_kills(
    tmp_path: Path, seed: int
) -> None:
    report = asyncio.run(run(tmp_path, rounds=3, seed=seed, say=print))
    assert report.holds, report.text()
    assert report.rows == report.published > 0, report.text()
    assert report.log_begins_at > 0, "retention was at work"


@pytest.mark.long
def test_a_cursor_that_is_released_before_the_table_has_the_rows_is_found(
    tmp_path: Path, seed: int
) -> None:
    problems = asyncio.run(release_first(tmp_path, seed=seed))
    assert any("lacks" in problem for problem in problems), problems


def test_the_judge_names_what_is_missing_doubled_and_foreign(tmp_path: Path) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    numbers = [1, 2, 2, 4]
    rows = pa.table(
        {
            "topic": ["a"] * 4 + ["b"],
            "offset": [10, 11, 12, 13, 13],
            "value": [b'{"number": %d}' % number for number in [*numbers, 1]],
        }
    )
    write_deltalake(str(tmp_path / "table"), rows)
    assert compare(tmp_path / "table", {"a": 4}).problems == [
        "b is not a device's",
        "offset 13 is there 2 times",
        "a lacks 1: [3]",
        "a has twice 1: [2]",
    ]


def test_only_processes_below_the_driver_are_victims() -> None:
    assert victims.descendants(2**30) == []
