"""Short runs: what is acknowledged at one end of a bridge arrives at the other over kill -9."""

import asyncio
from pathlib import Path

import pytest

from holdfast import system
from tests.crash.bridge.rounds import run


@pytest.mark.slow
@pytest.mark.accepts("S1.13", "S1.39", "S1.42", "S1.70")
def test_nothing_is_lost_and_nothing_of_qos_2_comes_twice_over_kills_of_either_end(
    tmp_path: Path,
) -> None:
    seed = system.seed() % (1 << 32)
    report = asyncio.run(run(tmp_path, rounds=4, seed=seed, say=print))
    assert report.holds, report.text()
    assert report.acknowledged > 100, report.text()


@pytest.mark.slow
def test_a_bridge_that_forgets_what_waits_is_found(tmp_path: Path) -> None:
    """The planted fault: with `IN_MEMORY` a bridge begins at the end of the log at each start."""
    found = run(tmp_path, rounds=4, seed=2, say=print, storage="IN_MEMORY", drained_within_s=5.0)
    report = asyncio.run(found)
    assert report.violations["lost"], report.text()
