"""The whole broker in virtual time: some seeds for every change, and proofs that a run can fail."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from holdfast.broker.delivery import queues
from holdfast.broker.delivery.losses import Losses
from holdfast.broker.delivery.selection import Strategy
from holdfast.broker.mqtt import sessions
from holdfast.broker.mqtt.packs import Packs
from holdfast.broker.mqtt.retained import Retained
from holdfast.broker.mqtt.session import Session
from holdfast.broker.mqtt.wills import DueWill, Wills
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.tables import Loss, Table
from holdfast.client.mqtt import Delivery
from holdfast.kernel import Selection
from holdfast.protocols.mqtt.packets import Will
from holdfast.protocols.mqtt.will import Ending
from holdfast.testing.hardships import Hardships
from holdfast.testing.loop import SimulationFailedError
from tests.equipment.clients import Client
from tests.equipment.packs import GIVE_UPS
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
    "a copy that retention made hides the newest control record": 822413747,
    "a full disk forgets what was deleted since the checkpoint": 3090764722,
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
    outcome, _ = whole.run(7, Hardships(small_disk_bytes=whole.SMALL_DISK_BYTES), Plan())
    assert outcome.refused > 0, "the disk was not full"


Patch = Callable[[pytest.MonkeyPatch], None]


def _publish_wills_twice(patch: pytest.MonkeyPatch) -> None:
    owe = Wills.owe

    def twice(self: Wills, due: DueWill) -> None:
        owe(self, due)
        owe(self, replace(due, client_identifier="somebody else's"))

    patch.setattr(Wills, "owe", twice)


def _take_every_end_for_abnormal(patch: pytest.MonkeyPatch) -> None:
    def plan(will: Will | None, _expiry_s: int | None, _ending: Ending, now_us: int) -> int | None:
        return None if will is None else now_us

    patch.setattr(sessions, "plan_will", plan)


def _keep_sessions_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Session, "expired", lambda _session, _now_us: False)


def _write_no_subscriptions(patch: pytest.MonkeyPatch) -> None:
    put = ControlRecords.put

    def forgetful(self: ControlRecords, table: Table, key: bytes, value: bytes, now_us: int) -> int:
        return put(self, table, key, b"" if table is Table.QUEUES else value, now_us)

    patch.setattr(ControlRecords, "put", forgetful)


def _write_no_losses(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Losses, "add", lambda _losses, _loss: None)


def _forget_what_is_retained(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Retained, "send", lambda *_arguments: 0)


def _let_members_swallow(patch: pytest.MonkeyPatch) -> None:
    """A message that a member of a group answers, and that nobody gets."""
    note = Client._note_message

    def swallow(self: Client, delivery: Delivery) -> None:
        if delivery.payload.split(b" ")[1] != b"7":
            note(self, delivery)

    patch.setattr(Client, "_note_message", swallow)


def _open_no_packs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Session, "application", property(lambda _session: False))


def _send_again_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Packs, "_reason_to_give_up", lambda _packs, _rounds: None)


def _give_up_without_a_word(patch: pytest.MonkeyPatch) -> None:
    add = Losses.add

    def forgetful(losses: Losses, loss: Loss) -> None:
        if loss.reason not in GIVE_UPS:
            add(losses, loss)

    patch.setattr(Losses, "add", forgetful)


def _hide_dup(patch: pytest.MonkeyPatch) -> None:
    """A repeat that says that it is none."""
    note = Client._note_transmission

    def hide(self: Client, delivery: Delivery) -> None:
        note(self, replace(delivery, dup=False))

    patch.setattr(Client, "_note_transmission", hide)


def _keep_less_than_may_be_kept(patch: pytest.MonkeyPatch) -> None:
    decide = queues.quota_of
    patch.setattr(queues, "quota_of", lambda *a, **k: replace(decide(*a, **k), messages=0))


def _share_keys_in_turns(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Strategy, "compile", lambda _strategy, _owners: Selection("turns"))


IMPATIENT = whole.Packs(maximum=3, timeout_s=1, retries=1)
PLANTED: list[tuple[Patch, str | Plan, str]] = [
    (_publish_wills_twice, "mortals", r"was published \d+ times"),
    (_take_every_end_for_abnormal, "mortals", r"after DISCONNECT|before it was due|came back"),
    (_keep_sessions_for_ever, "mortals", r"check_sessions_expire|sessions of mortal"),
    (_write_no_subscriptions, "talk", r"check_recovery_equals_the_twin|never got"),
    (_write_no_losses, "talk", "check_every_loss_is_in_the_ledger"),
    (_forget_what_is_retained, "notices", "check_retained_is_the_last"),
    (_let_members_swallow, "work", "check_groups_give_each_message_to_one"),
    (_open_no_packs, Plan(0, ("services",), IMPATIENT), "check_packs_are_kept"),
    (_send_again_for_ever, Plan(0, ("services",), IMPATIENT), "check_transmissions_are_bounded"),
    (_give_up_without_a_word, Plan(0, ("services",), IMPATIENT), "check_what_is_given_up"),
    (_hide_dup, Plan(0, ("services",), IMPATIENT), "check_repeats_are_marked"),
    (_keep_less_than_may_be_kept, "talk", "check_queues_overflow_only_when_full"),
    (_share_keys_in_turns, Plan(0, ("work",), strategy="key:topic"), "check_keyed_groups"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "part", "found"), PLANTED)
def test_a_broker_with_a_planted_fault_is_found(
    monkeypatch: pytest.MonkeyPatch, plant: Patch, part: str | Plan, found: str
) -> None:
    plant(monkeypatch)
    plan = part if isinstance(part, Plan) else Plan(0, (part,))
    with pytest.raises(SimulationFailedError, match=found):
        _run_a_few(plan)


def _run_a_few(plan: Plan) -> None:
    for seed in range(1, 6):
        whole.run(seed, Hardships(power_cut_after_s=20.0), plan)
