"""A short run of the crash rounds: what is acknowledged survives kill -9."""

import asyncio
import secrets
from pathlib import Path

import pytest

from tests.crash.rounds import run


@pytest.mark.slow
@pytest.mark.accepts("S0.1", "S0.3", "S0.17", "S0.58", "S0.59", "S2.8", "S2.9", "S2.10", "S2.13")
def test_nothing_acknowledged_is_lost_over_three_kills(tmp_path: Path) -> None:
    seed = secrets.randbelow(1 << 32)
    report = asyncio.run(run(tmp_path, rounds=3, seed=seed, say=print))
    assert report.holds, report.text()
    assert report.acknowledged > 100, report.text()
