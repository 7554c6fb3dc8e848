"""A few rounds of the kill matrix, and a fault that it has to find."""

import asyncio
from pathlib import Path

import pytest

from holdfast import system
from tests.crash.processors.rounds import run


@pytest.fixture
def seed() -> int:
    return system.seed() % (1 << 32)


@pytest.mark.slow
@pytest.mark.accepts("S3.1", "S3.2", "S3.4", "S3.36", "S3.66")
def test_each_read_is_in_each_table_once_whoever_is_killed(tmp_path: Path, seed: int) -> None:
    report = asyncio.run(run(tmp_path, rounds=4, seed=seed, say=print))
    assert report.holds, report.text()
    assert report.reads > 0


@pytest.mark.slow
def test_a_client_that_acknowledges_before_the_commit_is_found(tmp_path: Path, seed: int) -> None:
    found = run(tmp_path, rounds=3, seed=seed, say=print, early=True, drained_within_s=5.0)
    report = asyncio.run(found)
    assert any("lacks rows" in problem for problem in report.problems), report.text()
