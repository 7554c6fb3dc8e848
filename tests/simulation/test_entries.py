"""Services that speak Pulsar's protocol and devices on one topic, at the whole broker in virtual
time."""

from dataclasses import replace

import pytest

from holdfast.broker.pulsar import consumers, producers
from holdfast.broker.turn import Turn
from holdfast.testing.hardships import Hardships
from holdfast.testing.loop import SimulationFailedError
from tests.simulation import whole
from tests.simulation.parts import devices
from tests.simulation.whole import ENTRIES

SEEDS = range(8)
POWER_CUTS = Hardships(power_cut_after_s=5.0, disk_latency_s=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.accepts("S4.1", "S4.2", "S4.24", "S4.25", "S4.130", "S4.177", "S4.190", "S4.221")
def test_every_promise_to_services_and_devices_holds_whatever_fails(seed: int) -> None:
    whole.run(seed, plan=ENTRIES)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [205, 206, 209, 217])
@pytest.mark.accepts("S4.190")
def test_order_holds_over_a_disk_that_was_full(seed: int) -> None:
    """An entry finds no room, and there is room again before those behind it have come."""
    full = Hardships(
        small_disk_bytes=512 * 1024, power_cut_after_s=20.0, delay_s=0.05, disk_latency_s=0.001
    )
    whole.run(seed, full, ENTRIES)


@pytest.mark.slow
def test_a_receipt_before_the_disk_has_the_entry_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: nothing is synced, and the power fails. What was acknowledged is as little
    there as what was receipted, and either is noticed first."""
    monkeypatch.setattr(whole, "CONFIG", replace(whole.CONFIG, durability="memory"))
    found = "acknowledged before|which was acknowledged|its acknowledgement was answered"
    with pytest.raises(SimulationFailedError, match=found):
        whole.run(1, POWER_CUTS, ENTRIES)


@pytest.mark.slow
def test_an_acknowledgement_that_is_answered_and_not_there_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted fault: what was acknowledged is answered, and written nowhere."""

    def forget(self: Turn, now_us: int) -> None:
        kernel = self._stages.kernel
        if kernel.deliveries.take_progress() is not None:
            kernel.deliveries.progressed(kernel.log.end_position())
        self._stages.moments.take(now_us)

    monkeypatch.setattr(Turn, "_remember", forget)
    with pytest.raises(SimulationFailedError, match="its acknowledgement was answered"):
        whole.run(1, POWER_CUTS, ENTRIES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("publishers", "found"),
    [
        (devices.PUBLISHERS, r"alone never got \[\('device-0', \d+\)"),
        (0, r"panel-\d never got Message\(publisher='p\d'"),
    ],
    ids=["devices to services", "services to devices"],
)
def test_services_that_are_apart_from_devices_are_found(
    monkeypatch: pytest.MonkeyPatch, publishers: int, found: str
) -> None:
    """The planted fault: services meet each other on a topic that devices do not know. With devices
    that publish, consumers are noticed first."""
    monkeypatch.setattr(devices, "PUBLISHERS", publishers)
    for door in (consumers, producers):
        monkeypatch.setattr(door, "log_name", lambda _topic: "apart")
    with pytest.raises(SimulationFailedError, match=found):
        whole.run(1, Hardships(), ENTRIES)
