"""Delivery as one value: who owns queues, and what they share.

Owns: the order in which its parts are built and recover. Never: decides anything for them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.broker.delivery.cursors import Cursors
from holdfast.broker.delivery.groups import Groups
from holdfast.broker.delivery.losses import Losses
from holdfast.broker.delivery.parties import Parties
from holdfast.broker.delivery.queue_names import QueueNames
from holdfast.broker.delivery.queues import Queues
from holdfast.broker.delivery.redrives import Redrives
from holdfast.broker.environments import Environments
from holdfast.broker.stages import KernelStages
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.tables import QueueRecord
from holdfast.core.config import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryParts:
    """One of each."""

    losses: Losses
    parties: Parties
    queue_names: QueueNames
    queues: Queues
    redrives: Redrives
    groups: Groups
    cursors: Cursors

    def recover(self, is_there: Callable[[int], bool], now_us: int) -> list[QueueRecord]:
        """Finds the queues on record that several take from, and returns them; `is_there` says of a
        party whether its losses may still be driven again."""
        shared = self.queues.recover(now_us)
        self.groups.recover(shared, now_us)
        self.redrives.recover(shared, is_there, now_us)
        self.cursors.recover(shared, now_us)
        return shared


def assemble_delivery(
    config: Config, kernel: KernelStages, records: ControlRecords, environments: Environments
) -> DeliveryParts:
    """Its parts, each handed what it calls."""
    losses = Losses(records, environments.of_owner)
    parties, names = Parties(records), QueueNames(config)
    queues = Queues(config, kernel, records, losses)
    redrives = Redrives(kernel, losses, parties, queues)
    return DeliveryParts(
        losses=losses,
        parties=parties,
        queue_names=names,
        queues=queues,
        redrives=redrives,
        groups=Groups(config, kernel, records, losses, parties, names, queues, redrives),
        cursors=Cursors(config, kernel, records, parties, names, queues),
    )
