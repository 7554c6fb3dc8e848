"""Pulsar as one value: its parts, in the order in which they are built.

Owns: what a turn, a sweep and a change of settings ask of all of them. Never: decides anything.
"""

import logging
from collections.abc import Iterable

from holdfast.broker.access.access import Access
from holdfast.broker.chores import Chores
from holdfast.broker.counts import Event
from holdfast.broker.delivery.parts import DeliveryParts
from holdfast.broker.ground import Ground
from holdfast.broker.pulsar.admission import PulsarAdmission
from holdfast.broker.pulsar.answers import Answers
from holdfast.broker.pulsar.clients import Client, Clients
from holdfast.broker.pulsar.closing import EndReason, PulsarClosing
from holdfast.broker.pulsar.commands import Commands
from holdfast.broker.pulsar.consumers import Consumers
from holdfast.broker.pulsar.keep_alive import KeepAlive
from holdfast.broker.pulsar.lookups import Lookups
from holdfast.broker.pulsar.pace import Pace
from holdfast.broker.pulsar.producers import Producers
from holdfast.broker.pulsar.rights import Rights
from holdfast.broker.pulsar.subscriptions import Subscriptions
from holdfast.broker.pulsar.topics import Topics
from holdfast.broker.sockets.codec import Codec
from holdfast.broker.sockets.connection import Connections
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.tables import QueueRecord
from holdfast.core.config import Config
from holdfast.protocols.pulsar.handshake import COMMAND_ROOM_BYTES

log = logging.getLogger(__name__)


class PulsarDoor:
    """All of it."""

    def __init__(
        self,
        ground: Ground,
        access: Access,
        records: ControlRecords,
        connections: Connections,
        delivery: DeliveryParts,
        chores: Chores,
    ) -> None:
        kernel = ground.kernel
        self._now_us = ground.world.now_us
        self._counts = ground.counts
        self.codec = Codec(
            protocol="pulsar",
            inbox=kernel.pulsar_inbox,
            outboxes=kernel.pulsar_outboxes,
            frame_bytes_maximum=ground.config.pulsar_max_message_bytes + COMMAND_ROOM_BYTES,
        )
        self._connections = connections
        self.clients = Clients()
        answers = Answers(ground)
        self.pace = Pace(kernel, self.clients)
        self.rights = Rights(ground, access, self.pace)
        self.topics = Topics(kernel, records)
        self.subscriptions = Subscriptions(
            kernel, delivery.parties, delivery.queue_names, delivery.queues
        )
        self.producers = Producers(
            ground, delivery.parties, self.rights, self.topics, self.subscriptions, answers
        )
        self.consumers = Consumers(
            ground, self.rights, self.topics, self.subscriptions, answers, chores
        )
        self.closing = PulsarClosing(
            kernel,
            connections,
            self.clients,
            self.producers,
            self.consumers,
            answers,
            ground.counts,
        )
        self._keep_alive = KeepAlive(ground.config, self.clients, answers)
        self.admission = PulsarAdmission(
            ground,
            access,
            connections,
            self.clients,
            self._keep_alive,
            self.rights,
            answers,
        )
        self._lookups = Lookups(ground, self.rights, self.topics, answers)
        self.commands = Commands(
            ground,
            connections,
            self.clients,
            self.admission,
            self.closing,
            self.pace,
            self._lookups,
            self.producers,
            self.consumers,
            answers,
        )
        access.watchers.append(self._renew)

    def reconfigure(self, config: Config) -> None:
        """Other settings hold from now on."""
        self.rights.reconfigure(config)
        for client in self.clients.all():
            self.rights.limit(client)
            self._end_denied(client, self._now_us())
        self.admission.reconfigure(config)
        self._keep_alive.reconfigure(config)
        self._lookups.reconfigure(config)

    def recover(self, queues: Iterable[QueueRecord]) -> None:
        """Finds topics and subscriptions on record."""
        self.topics.recover()
        self.subscriptions.recover(queues)

    def sweep(self, now_us: int) -> None:
        """Once a second: logins that have failed, who is asked whether it is there, and who goes on
        that was too fast."""
        self.admission.sweep(now_us)
        self._keep_alive.sweep(now_us)
        self.pace.sweep(now_us)

    def _renew(self, user_name: str | None) -> None:
        """Something about a user has changed, or about everybody."""
        for client in self.clients.all():
            if user_name is None or client.identity.user_name == user_name:
                self._renew_one(client, self._now_us())

    def _renew_one(self, client: Client, now_us: int) -> None:
        if not self.rights.renew(client):
            self._counts.add(Event.CONNECTIONS_NO_LONGER_ALLOWED)
            self.closing.expel(client.connection, EndReason.NO_LONGER_ALLOWED, now_us)
            return
        self._end_denied(client, now_us)

    def _end_denied(self, client: Client, now_us: int) -> None:
        denied = self.producers.end_denied(client) + self.consumers.end_denied(client, now_us)
        if denied:
            fields = {"peer": client.connection.peer, "ended": denied}
            log.info("Pulsar client may no longer do what it did", extra={"fields": fields})
