"""Who is connected and speaks Pulsar, and what each of them has here.

Owns: the table of clients, and the values in it. Never: decides who is let in (admission), or what
a client gets (producers, consumers).

Invariant: a client is here from its CONNECTED until it is ended, whoever ends it.
"""

from dataclasses import dataclass, field

from holdfast.broker.access.access import Identity
from holdfast.broker.delivery.shared_queue import SharedQueue
from holdfast.broker.sockets.connection import Connection
from holdfast.protocols.pulsar.consumers import Subscribing
from holdfast.protocols.pulsar.fields import SubType
from holdfast.protocols.pulsar.producers import Producing
from holdfast.protocols.pulsar.topic_names import log_name


@dataclass(slots=True, eq=False, kw_only=True)
class Client:
    """One connection that was let in."""

    connection: Connection
    identity: Identity
    version: str
    """What it calls itself."""
    producers: dict[int, "ConnectedProducer"] = field(default_factory=dict)
    """By the numbers that the client gave them, and so the next."""
    consumers: dict[int, "ConnectedConsumer"] = field(default_factory=dict)

    @property
    def handle(self) -> int:
        """Its connection, as the kernel knows it."""
        return self.connection.handle


@dataclass(frozen=True, slots=True, eq=False)
class ConnectedProducer:
    """One producer of a client."""

    client: Client
    asked: Producing

    @property
    def topic_name(self) -> str:
        """What its topic is called in the log."""
        return log_name(self.asked.topic)


@dataclass(slots=True, eq=False)
class DurableSubscription:
    """A subscription with those who are connected to it."""

    topic_name: str
    """What its topic is called in the log."""
    name: str
    queue: SharedQueue
    consumers: list["ConnectedConsumer"] = field(default_factory=list)

    @property
    def sub_type(self) -> SubType | None:
        """How its consumers share it; without any it has no type."""
        return self.consumers[0].asked.sub_type if self.consumers else None


@dataclass(slots=True, eq=False)
class ConnectedConsumer:
    """One consumer of a client."""

    client: Client
    asked: Subscribing
    subscription: DurableSubscription
    receiver: int | None = None
    """The kernel's; `None` until the subscription is open."""


class Clients:
    """All of them, by connection."""

    def __init__(self) -> None:
        self._by_handle: dict[int, Client] = {}

    def __len__(self) -> int:
        return len(self._by_handle)

    def of(self, handle: int) -> Client | None:
        """Whoever was let in on this connection."""
        return self._by_handle.get(handle)

    def all(self) -> list[Client]:
        """Everybody."""
        return list(self._by_handle.values())

    def add(self, client: Client) -> None:
        """It is let in."""
        self._by_handle[client.handle] = client

    def remove(self, handle: int) -> Client | None:
        """It has ended; what it had is to be freed."""
        return self._by_handle.pop(handle, None)
