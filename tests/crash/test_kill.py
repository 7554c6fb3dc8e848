"""Short runs of the crash rounds: what is acknowledged survives kill -9, and damage costs only what
was damaged."""

import asyncio
from pathlib import Path

import pytest

from holdfast import system
from holdfast.core.layout import LOG_DIRECTORY
from tests.crash import damage, segments
from tests.crash.rounds import run
from tests.load import Pace


@pytest.fixture
def seed() -> int:
    return system.seed() % (1 << 32)


@pytest.mark.slow
@pytest.mark.accepts("S0.1", "S0.3", "S0.17", "S0.58", "S0.59", "S2.8", "S2.9", "S2.10", "S2.13")
def test_nothing_acknowledged_is_lost_over_three_kills(tmp_path: Path, seed: int) -> None:
    report = asyncio.run(run(tmp_path, rounds=3, seed=seed, say=print))
    assert report.holds, report.text()
    assert report.acknowledged > 100, report.text()
    assert report.greeted, report.text()


@pytest.mark.slow
def test_a_broker_that_forgets_what_it_acknowledged_is_found(tmp_path: Path, seed: int) -> None:
    """The planted fault: a third of the newest file is gone after a kill."""

    def forget(data_directory: Path) -> None:
        newest = segments.files(data_directory / LOG_DIRECTORY)[-1]
        with newest.path.open("r+b") as file:
            file.truncate(newest.used_end * 2 // 3)

    pace = Pace(drained_within_s=3.0)
    found = run(tmp_path, rounds=1, seed=seed, say=print, meanwhile=forget, pace=pace)
    report = asyncio.run(found)
    assert not report.holds, report.text()


@pytest.mark.slow
@pytest.mark.parametrize("kind", damage.KINDS)
def test_damage_costs_only_what_was_damaged(tmp_path: Path, seed: int, kind: str) -> None:
    found = asyncio.run(damage.run(tmp_path, kind=kind, trials=1, seed=seed, say=print))
    assert not found.failures, found.text()
