"""Commands: each kind to whoever decides about it, and the answer back.

Owns: the table of commands. Never: sees an entry, an acknowledgement or a permit.

Invariant: the inbox holds a connection from a command until it is released here, so commands of
one client take effect in the order in which they were sent.

Flow: PulsarInbox.decode -> here -> admission, producers, consumers, answers.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from holdfast.broker.ground import Ground
from holdfast.broker.pulsar.admission import PulsarAdmission
from holdfast.broker.pulsar.answers import Answers
from holdfast.broker.pulsar.clients import Client, Clients
from holdfast.broker.pulsar.closing import EndReason, PulsarClosing
from holdfast.broker.pulsar.consumers import Consumers
from holdfast.broker.pulsar.lookups import Lookups
from holdfast.broker.pulsar.pace import Pace
from holdfast.broker.pulsar.producers import Producers
from holdfast.broker.sockets.connection import Connection, Connections, Phase
from holdfast.kernel import Command as Received
from holdfast.protocols.pulsar.commands import MalformedCommandError, command_name, read_request
from holdfast.protocols.pulsar.fields import (
    CloseConsumer,
    CloseProducer,
    Command,
    Connect,
    GetTopicsOfNamespace,
    Lookup,
    PartitionedMetadata,
    Producer,
    Subscribe,
    Unsubscribe,
)
from holdfast.protocols.pulsar.refusals import UNSERVED


class Commands:
    """Carries out what commands ask for."""

    def __init__(
        self,
        ground: Ground,
        connections: Connections,
        clients: Clients,
        admission: PulsarAdmission,
        closing: PulsarClosing,
        pace: Pace,
        lookups: Lookups,
        producers: Producers,
        consumers: Consumers,
        answers: Answers,
    ) -> None:
        self._inbox = ground.kernel.pulsar_inbox
        self._connections = connections
        self._clients = clients
        self._admission = admission
        self._closing = closing
        self._pace = pace
        self._consumers = consumers
        self._answers = answers
        self._table: dict[type[Any], Callable[[Client, Any, int], None]] = {
            PartitionedMetadata: lookups.partitions,
            Lookup: lookups.where,
            GetTopicsOfNamespace: lookups.topics,
            Producer: producers.make,
            CloseProducer: lambda client, command, _: producers.close(client, command),
            CloseConsumer: consumers.close,
            Unsubscribe: consumers.unsubscribe,
        }

    def take(self, received: Iterable[tuple[int, Received]], now_us: int) -> None:
        """Handles what this turn decoded."""
        for handle, one in received:
            connection = self._connections.get(handle)
            # An earlier command of this turn may have ended it.
            if connection is not None:
                self._take_one(connection, one, now_us)

    def _take_one(self, connection: Connection, received: Received, now_us: int) -> None:
        if received.fault is not None:
            self._closing.expel(connection, EndReason.FAULT, now_us, received.fault)
            return
        client = self._clients.of(connection.handle)
        if received.held_until_us is not None:
            assert client is not None, "nobody has a limit before it is let in"
            self._pace.hold(client, received.held_until_us, now_us)
            return
        try:
            command = read_request(received.data)
        except MalformedCommandError as error:
            self._closing.expel(connection, EndReason.FAULT, now_us, str(error))
            return
        if isinstance(command, Connect) is not (client is None):
            detail = f"{command_name(received.kind)} out of turn"
            self._closing.expel(connection, EndReason.FAULT, now_us, detail)
        elif isinstance(command, Connect):
            self._admission.connect(connection, command, now_us)
        elif client is not None:
            self._carry_out(client, command, now_us)

    def _carry_out(self, client: Client, command: Command, now_us: int) -> None:
        release = partial(self._release, client.connection)
        if isinstance(command, Subscribe):
            self._consumers.subscribe(client, command, now_us, release)
            return
        kind = type(command)
        if kind in self._table:
            self._table[kind](client, command, now_us)
        else:
            self._answers.refuse(client.connection, command, UNSERVED[kind], now_us)
        release()

    def _release(self, connection: Connection) -> None:
        # Its command may have ended it.
        if connection.phase is Phase.ACCEPTED:
            self._inbox.release(connection.handle)
