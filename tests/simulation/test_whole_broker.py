"""The whole broker in virtual time: some seeds for every change, and proofs that a run can fail."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from holdfast.broker.dispatch import sessions
from holdfast.broker.dispatch.losses import Losses
from holdfast.broker.dispatch.wills import DueWill, Wills
from holdfast.broker.route.retained import Retained
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.tables import Table
from holdfast.protocols.mqtt.session import Session
from holdfast.protocols.mqtt.will import Ending
from holdfast.testing.clients import Client
from holdfast.testing.hardships import Hardships
from holdfast.testing.loop import SimulationFailedError
from tests.simulation import whole
from tests.simulation.whole import Plan

SEEDS = range(20)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.accepts("S0.1", "S0.3", "S0.17", "S0.58", "S0.59", "S2.1", "S2.8", "S2.9", "S2.10")
def test_every_promise_holds_whatever_fails(seed: int) -> None:
    outcome, _ = whole.run(seed)
    assert outcome.events > 100


FOUND = {
    "retention forgets that a retained message was deleted": 17,
    "a crash keeps the progress over a message too large, and forgets the loss": 7,
    "a crash keeps the progress over an expired message, and forgets the loss": 9,
    "an alias is told in a repeated message": 1006,
}
"""Seeds by which a fault was found."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", FOUND.values(), ids=FOUND)
def test_what_was_found_stays_mended(seed: int) -> None:
    whole.run(seed)


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
        whole.run(1, Hardships(power_cut_after_s=5.0, disk_latency_s=0.01), Plan())


@pytest.mark.slow
def test_a_disk_that_fills_up_refuses_publishers_and_loses_nothing() -> None:
    outcome, _ = whole.run(2, Hardships(small_disk_bytes=whole.SMALL_DISK_BYTES), Plan())
    assert outcome.refused > 0, "the disk was not full"


Patch = Callable[[pytest.MonkeyPatch], None]


def _publish_wills_twice(patch: pytest.MonkeyPatch) -> None:
    owe = Wills.owe

    def twice(self: Wills, due: DueWill) -> None:
        owe(self, due)
        owe(self, DueWill(due.will, None, due.due_at_us))

    patch.setattr(Wills, "owe", twice)


def _take_every_end_for_abnormal(patch: pytest.MonkeyPatch) -> None:
    def plan(session: Session, _ending: Ending, now_us: int) -> int | None:
        return None if session.will is None else now_us

    patch.setattr(sessions, "plan_will", plan)


def _keep_sessions_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Session, "expired", lambda _session, _now_us: False)


def _write_no_subscriptions(patch: pytest.MonkeyPatch) -> None:
    put = ControlRecords.put

    def forgetful(self: ControlRecords, table: Table, key: bytes, value: bytes, now_us: int) -> int:
        return put(self, table, key, b"" if table is Table.SUBSCRIPTIONS else value, now_us)

    patch.setattr(ControlRecords, "put", forgetful)


def _write_no_losses(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Losses, "add", lambda _losses, _loss: None)


def _forget_what_is_retained(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Retained, "send", lambda _retained, _queue, _subscriptions: None)


def _let_members_swallow(patch: pytest.MonkeyPatch) -> None:
    """A message that a member of a group answers, and that nobody gets."""
    note = Client._note_message

    def swallow(self: Client, fields: dict[str, Any], qos: int) -> None:
        if fields["payload"].split(b" ")[1] != b"7":
            note(self, fields, qos)

    patch.setattr(Client, "_note_message", swallow)


PLANTED: list[tuple[Patch, str, str]] = [
    (_publish_wills_twice, "mortals", r"was published \d+ times"),
    (_take_every_end_for_abnormal, "mortals", r"after DISCONNECT|before it was due|came back"),
    (_keep_sessions_for_ever, "mortals", r"check_sessions_expire|sessions of mortal"),
    (_write_no_subscriptions, "talk", r"check_recovery_equals_the_twin|never got"),
    (_write_no_losses, "talk", "check_every_loss_is_in_the_ledger"),
    (_forget_what_is_retained, "notices", "check_retained_is_the_last"),
    (_let_members_swallow, "work", "check_groups_give_each_message_to_one"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "part", "found"), PLANTED)
def test_a_broker_with_a_planted_fault_is_found(
    monkeypatch: pytest.MonkeyPatch, plant: Patch, part: str, found: str
) -> None:
    plant(monkeypatch)
    with pytest.raises(SimulationFailedError, match=found):
        _run_a_few(part)


def _run_a_few(part: str) -> None:
    for seed in range(1, 6):
        whole.run(seed, Hardships(power_cut_after_s=20.0), Plan(0, (part,)))
