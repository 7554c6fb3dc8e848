"""A short soak: nothing is lost and nothing stays open, whatever comes and goes."""

import asyncio
from pathlib import Path

import pytest

from holdfast import system
from tests.soak.fleet import Size
from tests.soak.samples import QUANTITIES, Sample, growth
from tests.soak.soak import soak

SECONDS = 8.0
MIB = 1024 * 1024
SMALL = Size(sessions=100, topics=2_000)


@pytest.mark.slow
def test_mixed_load_with_churn_loses_nothing_and_leaves_nothing_open(tmp_path: Path) -> None:
    seed = system.seed() % (1 << 32)
    soaked = asyncio.run(soak(tmp_path, seconds=SECONDS, seed=seed, say=print, size=SMALL))
    assert soaked.kept_its_promises, soaked.text()
    assert soaked.samples[-1].acknowledged > 100, soaked.text()
    assert soaked.passers_by > 10, soaked.text()
    assert soaked.visits > 10, soaked.text()


def _samples(memory_mib: list[float]) -> list[Sample]:
    return [
        Sample(float(at), int(mib * MIB), 20, 10 * MIB, 0, 0, 0)
        for at, mib in enumerate(memory_mib)
    ]


@pytest.mark.parametrize(
    ("memory_mib", "flat"),
    [
        ([50.0] * 5 + [100.0] * 15, True),
        ([100.0 + number for number in range(100)], False),
        ([100.0 + number % 3 for number in range(100)], True),
    ],
)
def test_what_grows_after_the_warm_up_is_not_flat(memory_mib: list[float], *, flat: bool) -> None:
    assert growth(_samples(memory_mib), QUANTITIES[0])[2] is flat
