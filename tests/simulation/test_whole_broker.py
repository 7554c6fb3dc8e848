"""The whole broker in virtual time: some seeds for every change, and proofs that a run can fail."""

from dataclasses import replace

import pytest

from holdfast.testing.hardships import Hardships
from holdfast.testing.loop import SimulationFailedError
from tests.simulation import whole

SEEDS = range(20)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.accepts("S0.1", "S0.3", "S0.17", "S0.58", "S0.59", "S2.1", "S2.8", "S2.9", "S2.10")
def test_every_promise_holds_whatever_fails(seed: int) -> None:
    outcome, _ = whole.run(seed)
    assert outcome.sent > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", [9, 29])
def test_a_run_of_the_whole_broker_repeats_exactly(seed: int) -> None:
    assert whole.run(seed) == whole.run(seed)


@pytest.mark.slow
def test_a_broker_that_acknowledges_before_the_disk_has_it_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted fault: nothing is synced, and the power fails."""
    monkeypatch.setattr(whole, "CONFIG", replace(whole.CONFIG, durability="memory"))
    with pytest.raises(SimulationFailedError, match=r"never got|session lost"):
        whole.run(1, Hardships(power_cut_after_s=5.0, disk_latency_s=0.01))


@pytest.mark.slow
def test_a_disk_that_fills_up_refuses_publishers_and_loses_nothing() -> None:
    outcome, _ = whole.run(2, Hardships(small_disk_bytes=whole.SMALL_DISK_BYTES))
    assert outcome.refused > 0, "the disk was not full"
