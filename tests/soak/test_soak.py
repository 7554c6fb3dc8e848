"""A short soak: nothing is lost and nothing stays open, whatever comes and goes."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast import system
from tests.soak.fleet import Size
from tests.soak.samples import QUANTITIES, Sample, growth, judged
from tests.soak.soak import Soaked, soak

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


def _samples(memory_mib: list[float], *, descriptors: int = 0, rounds: float = 9.0) -> list[Sample]:
    """One each second; `descriptors` says how many more there are with each, and `rounds` how often
    the fleet has come in the end."""
    last = len(memory_mib) - 1
    return [
        Sample(
            at_s=float(at),
            resident_bytes=int(mib * MIB),
            descriptors=100 + at * descriptors,
            disk_bytes=10 * MIB,
            remembered_bytes=0,
            rounds=rounds * at / last,
            acknowledged=0,
            arrived=0,
            passers_by=0,
        )
        for at, mib in enumerate(memory_mib)
    ]


def _verdicts(samples: list[Sample]) -> list[bool]:
    return [growth(judged(samples), quantity)[2] for quantity in QUANTITIES]


@pytest.mark.parametrize(
    ("memory_mib", "flat"),
    [
        ([50.0] * 15 + [100.0] * 25, True),
        ([100.0 + number for number in range(100)], False),
        ([100.0 + number % 3 for number in range(100)], True),
    ],
)
def test_what_grows_after_the_warm_up_is_not_flat(memory_mib: list[float], *, flat: bool) -> None:
    assert _verdicts(_samples(memory_mib)) == [flat, True, True]


def test_one_descriptor_that_is_kept_with_each_sample_is_found() -> None:
    assert _verdicts(_samples([100.0] * 100, descriptors=1)) == [True, False, True]


def test_what_is_remembered_within_a_maximum_is_no_growth_and_all_else_is() -> None:
    grown = _samples([100.0 + number for number in range(100)])
    remembered = [replace(sample, remembered_bytes=sample.resident_bytes // 2) for sample in grown]
    assert not growth(judged(remembered), QUANTITIES[0])[2]
    remembered = [
        replace(sample, remembered_bytes=sample.resident_bytes - 90 * MIB) for sample in grown
    ]
    assert growth(judged(remembered), QUANTITIES[0])[2]


def test_nothing_is_said_of_a_run_in_which_the_fleet_has_not_come_often_enough() -> None:
    soaked = Soaked(1, _samples([100.0] * 100, rounds=4.0))
    assert not soaked.is_flat
    assert "NOT JUDGED" in soaked.text()
    assert Soaked(1, _samples([100.0] * 100)).is_flat
