"""Short runs of the rounds: what Pulsar's own client has a receipt for survives kill -9."""

import asyncio
from pathlib import Path

import pytest

from holdfast import system
from holdfast.core.layout import LOG_DIRECTORY
from tests.crash import segments
from tests.crash.pulsar.rounds import run


@pytest.fixture
def seed() -> int:
    return system.seed() % (1 << 32)


@pytest.mark.slow
@pytest.mark.accepts("S4.1", "S4.2")
def test_nothing_with_a_receipt_is_lost_over_two_kills(tmp_path: Path, seed: int) -> None:
    report = asyncio.run(run(tmp_path, rounds=2, seed=seed, say=print))
    assert report.holds, report.text()
    assert report.drained >= report.receipts > 100, report.text()


@pytest.mark.long
def test_a_broker_that_forgets_what_had_a_receipt_is_found(tmp_path: Path, seed: int) -> None:
    """The planted fault: half of the newest file is gone after a kill."""

    def forget(data_directory: Path) -> None:
        newest = segments.files(data_directory / LOG_DIRECTORY)[-1]
        with newest.path.open("r+b") as file:
            file.truncate(newest.used_end // 2)

    found = run(tmp_path, rounds=1, seed=seed, say=print, meanwhile=forget, drained_within_s=3.0)
    report = asyncio.run(found)
    lost = [each for each in report.violations if "counted" in each and "is lost" in each]
    assert lost, report.text()
