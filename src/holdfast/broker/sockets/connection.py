"""One socket, and the table of all of them.

Owns: transports, connection handles, and when a socket is read. Never: decodes, and has no task: a
connection is a protocol object whose callbacks hand bytes to the inbox and ask for a turn.

Invariants:
1. A handle names one connection from `connection_made` until the turn that finishes it; handles are
   given out again in the order in which they were freed, the longest unused first.
2. A peer that has closed its side is finished only when the inbox has decoded what it had sent.
3. Reading from a peer stops while it has more than a packet and READ_AHEAD_BYTES_MAXIMUM waiting,
   while the disk is far behind, or while all together send faster than they are read; so what is
   not decoded and not committed is bounded.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable
from enum import Enum, StrEnum
from socket import socket
from typing import NamedTuple, Protocol, cast

from holdfast.broker.counts import Event
from holdfast.broker.ground import Ground
from holdfast.broker.open_files import connections_possible
from holdfast.broker.sockets.codec import Codec
from holdfast.broker.sockets.layer import Upper
from holdfast.core.config import Config
from holdfast.core.limits import CONNECTIONS_PENDING_BYTES_MAXIMUM, CONNECTIONS_PENDING_MAXIMUM
from holdfast.kernel import Packet

log = logging.getLogger(__name__)

READ_AHEAD_BYTES_MAXIMUM = 524_288
"""What one connection may have waiting undecoded beyond one packet of the largest size: half of
what the kernel would take before it calls it a fault, which leaves room for one more read."""
UNCOMMITTED_BYTES_MAXIMUM = 67_108_864
"""What may wait for the disk before publishers are read no further: a third of a second of a disk
that writes 200 MB a second, and the memory for it."""
STALL_US = 100_000
"""A turn that takes longer has kept clients waiting: the disk was slow, or the machine."""


def peer_of(transport: asyncio.BaseTransport) -> str:
    """Who is at the other end of a socket; empty if that is not known, or not known yet."""
    name = transport.get_extra_info("peername")
    if isinstance(name, tuple):
        return show_address(name[0], name[1])
    # A Unix socket's peer has no name, and a socket that is gone has none either.
    return "" if name is None else "unix"


def show_address(host: str, port: int) -> str:
    """A host and a port as people write them: an IPv6 address stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def address_of(peer: str) -> str:
    """The host of a peer, without its port."""
    return peer.rpartition(":")[0]


class Phase(Enum):
    """How far a connection has come."""

    NEW = "its CONNECT is not here yet"
    AUTHENTICATING = "its CONNECT is here, and its password is being checked, or was wrong"
    ADMITTING = "its CONNECT was taken, and CONNACK waits for the disk"
    ACCEPTED = "it has a session"
    CLOSED = "its session is gone and its handle is free; the transport may still be writing"


class Opener(Protocol):
    """Who has opened a connection from this side, and decides what happens on it."""

    def began(self, connection: "Connection") -> None:
        """Its socket is open, and handshakes begin."""

    def opened(self, connection: "Connection") -> None:
        """It can be written to."""

    def broken(self, connection: "Connection", reason: str) -> None:
        """It will end, for this reason."""

    def take(self, connection: "Connection", packet: Packet, now_us: int) -> int | None:
        """A control packet has come; returns the reason code if the connection has to end for it.
        Who takes one releases the connection."""

    def not_taken(self, count: int) -> None:
        """So many messages that came on it have found no room; it is about to be ended for that."""

    def last_words(self, connection: "Connection", reason_code: int) -> bytes:
        """What the other end is told before the connection is closed for this reason."""

    def ended(self, connection: "Connection", reason: str, now_us: int) -> None:
        """It is about to be closed, or has broken."""


class Connection(Upper):
    """One socket."""

    __slots__ = (
        "_buffer",
        "_connections",
        "certificate_name",
        "codec",
        "gives",
        "handle",
        "opened_at_us",
        "opener",
        "paused_at_us",
        "peer",
        "phase",
        "protocol_version",
        "transport",
        "transport_name",
        "waiting_bytes",
        "was_denied",
    )

    def __init__(
        self,
        connections: "Connections",
        buffer: bytearray,
        transport_name: str,
        codec: Codec,
        opener: Opener | None = None,
    ) -> None:
        self.codec = codec
        """What is spoken on it."""
        self.opener = opener
        """Whoever opened it from this side; `None`: it was accepted."""
        self.gives = True
        """False: what is read from the log does not go out yet, writable or not."""
        self._connections = connections
        self._buffer = buffer
        self.transport_name = transport_name
        """How its bytes come: `tcp`, `tls`, `ws`, `wss` or `unix`."""
        self.peer = ""
        """Where it comes from: `host:port`, or `unix`; empty while only a proxy knows."""
        self.certificate_name: str | None = None
        """The common name of the client's certificate, if it has shown one that was verified."""
        self.handle = 0
        self.opened_at_us = 0
        self.paused_at_us = 0
        self.protocol_version = 0
        self.phase = Phase.NEW
        self.was_denied = False
        """A message of it was denied, and the log said so."""
        self.waiting_bytes = -1
        """What the inbox held of it when we last looked, after the peer had closed."""
        self.transport: asyncio.Transport

    @property
    def kind(self) -> tuple[str, str, int]:
        """Transport, protocol and its version."""
        return self.transport_name, self.codec.protocol, self.protocol_version

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        # uvloop's transports do what asyncio's do without being of their class.
        self.transport = cast(asyncio.Transport, transport)
        self.peer = peer_of(transport)
        self._connections.opened(self)
        if self.opener is not None:
            self.opener.began(self)
        if self.transport_name == "tcp":
            self.ready()

    def ready(self) -> None:
        """It can be written to; whoever has opened it begins."""
        if self.opener is not None and self.phase is Phase.NEW:
            self.opener.opened(self)

    def broken(self, reason: str) -> None:
        """A layer below ends it; of one that was accepted its counts tell enough."""
        if self.opener is not None and self.phase is not Phase.CLOSED:
            self.opener.broken(self, reason)

    def get_buffer(self, _size_hint: int) -> bytearray:
        """Everybody reads into the one buffer, which is empty again when `buffer_updated`
        returns."""
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        """`count` bytes have come."""
        if self.phase is not Phase.CLOSED:
            self._connections.fed(self, count)

    def pause_writing(self) -> None:
        """The peer does not read as fast as we write."""
        self._connections.set_writable(self, False)

    def resume_writing(self) -> None:
        """It has caught up."""
        self._connections.set_writable(self, True)

    def connection_lost(self, _error: Exception | None) -> None:
        """The socket is gone."""
        self._connections.lost(self)


class DoorLimit(StrEnum):
    """A limit for which a connection is turned away before anything is read."""

    CONNECTIONS = "connections_maximum"
    PER_ADDRESS = "connections_per_address_maximum"
    PENDING = "connections_pending_maximum"
    PENDING_BYTES = "connections_pending_bytes_maximum"


class TurnSockets(Protocol):
    """Sockets that the turn reads and writes by itself, in place of the event loop."""

    tells_all: bool
    """All that are fed are news, since they are to be paused."""

    def listen(self, listening: socket, make: Callable[[], Connection]) -> None:
        """Takes connections from a socket that listens, until `close`."""

    def close(self, listening: socket) -> None:
        """Takes no more from it."""

    async def connect(self, make: Callable[[], Connection], host: str, port: int) -> None:
        """Opens a connection to an address. Raises `OSError`."""

    def accepted(self, connection: Connection, read_ahead_bytes: int) -> None:
        """It may have so much waiting undecoded before anybody is told; until now, nothing."""

    def receive(self) -> None:
        """What has come is in the inboxes, and a turn is asked for."""

    def send(self) -> tuple[list[tuple[int, bytes]], bool]:
        """What waits in the outboxes is sent; returns what is for connections that are none of
        these, and whether there is news."""

    def news(self) -> "News":
        """What has to be told of connections since the last call."""

    def totals(self) -> tuple[int, int]:
        """Bytes that have come, and that were handed out, since the start."""


class News(NamedTuple):
    """What sockets have to tell."""

    fed: list[tuple[Connection, int]]
    """With the bytes that waited undecoded then."""
    changed: list[tuple[Connection, bool]]
    """Whose sockets are full (false), or no longer (true)."""
    gone: list[Connection]


class Connections:
    """All sockets by handle."""

    def __init__(self, ground: Ground) -> None:
        config, world, kernel = ground.config, ground.world, ground.kernel
        self.mqtt = Codec(
            protocol="mqtt",
            inbox=kernel.inbox,
            outboxes=kernel.outboxes,
            frame_bytes_maximum=config.maximum_packet_size_bytes,
        )
        self._outboxes = (kernel.outboxes, kernel.pulsar_outboxes)
        self._deliveries = kernel.deliveries
        self._ungrant = kernel.routes.ungrant
        self._uncommitted_bytes = kernel.log.uncommitted_bytes
        self.read_buffer = kernel.read_buffer
        self._now_us = world.now_us
        self._schedule = ground.schedule.soon
        self._per_address_maximum = config.connections_per_address_maximum
        self._open_files = world.open_files()
        self._counts = ground.counts
        self._by_handle: dict[int, Connection] = {}
        self._by_address: Counter[str] = Counter()
        self._free: deque[int] = deque()
        self._next_handle = 1
        self._paused: set[Connection] = set()
        self.ended: set[Connection] = set()
        """Their peer has gone, and they are not finished."""
        self._pending: dict[Connection, int] = {}
        """With the bytes that wait of each, in the order in which they came."""
        self._pending_bytes = 0
        self._closing: dict[Connection, int] = {}
        self._drained: asyncio.Future[None] | None = None
        self._congested = False
        self.accepted: Counter[tuple[str, str, int]] = Counter()
        """Connections that were let in, by transport, protocol and its version."""
        self.plain: TurnSockets | None = None
        """Sockets that the turn reads and writes by itself, where there are any."""
        self._received_bytes = 0
        self._sent_bytes = 0
        self.reconfigure(config)

    def reconfigure(self, config: Config) -> None:
        """Takes this many connections from now on; those that are there stay, and are paused and
        resumed by the new marks."""
        self._connections_maximum = connections_possible(config, self._open_files)
        self._write_buffer_bytes = config.write_buffer_high_bytes, config.write_buffer_low_bytes
        for connection in self._by_handle.values():
            connection.transport.set_write_buffer_limits(*self._write_buffer_bytes)

    def make(
        self,
        transport_name: str = "tcp",
        opener: Opener | None = None,
        codec: Codec | None = None,
    ) -> Connection:
        """A protocol for a socket that was accepted, or that somebody opens; MQTT is spoken on it
        where nothing else is said."""
        return Connection(self, self.read_buffer, transport_name, codec or self.mqtt, opener)

    def reserve(self) -> int:
        """A handle without a socket, for whoever is delivered to before there is one."""
        handle = self._free.popleft() if self._free else self._next_handle
        self._next_handle += handle == self._next_handle
        return handle

    def free(self, handle: int) -> None:
        """A reserved handle is not needed any more."""
        self._ungrant(handle)
        self._free.append(handle)

    def get(self, handle: int) -> Connection | None:
        """The connection with this handle, if it is still there."""
        return self._by_handle.get(handle)

    def __len__(self) -> int:
        return len(self._by_handle)

    def opened(self, connection: Connection) -> None:
        """Gives it a handle, or turns it away."""
        full = len(self._by_handle) >= self._connections_maximum
        is_crowded = full or len(self._pending) >= CONNECTIONS_PENDING_MAXIMUM
        # What is opened from here is few, and whoever floods the doors must not cut it off.
        if is_crowded and connection.opener is None:
            self._turn_away(connection, DoorLimit.CONNECTIONS if full else DoorLimit.PENDING)
            connection.phase = Phase.CLOSED
            return
        self._counts.add(Event.CONNECTIONS_OPENED)
        connection.handle = self.reserve()
        connection.opened_at_us = self._now_us()
        connection.transport.set_write_buffer_limits(*self._write_buffer_bytes)
        self._by_handle[connection.handle] = connection
        self._pending[connection] = 0
        connection.codec.inbox.open(connection.handle)
        if connection.opener is None:
            self.comes_from(connection, connection.peer)

    def comes_from(self, connection: Connection, peer: str) -> None:
        """It is known where it comes from; ends it if too many come from there."""
        connection.peer = peer
        if not self._per_address_maximum or ":" not in peer:
            return
        address = address_of(peer)
        self._by_address[address] += 1
        if self._by_address[address] > self._per_address_maximum:
            self._turn_away(connection, DoorLimit.PER_ADDRESS)

    def enter(self, connection: Connection, phase: Phase) -> None:
        """It has come so far."""
        if phase is Phase.ACCEPTED:
            self.accepted[connection.kind] += 1
            if self.plain is not None:
                read_ahead_bytes = connection.codec.frame_bytes_maximum + READ_AHEAD_BYTES_MAXIMUM
                self.plain.accepted(connection, read_ahead_bytes)
        elif connection.phase is Phase.ACCEPTED:
            self.accepted[connection.kind] -= 1
        connection.phase = phase
        # Whoever has not shown who it is stays among those that have little time.
        if phase is not Phase.AUTHENTICATING:
            self._pending_bytes -= self._pending.pop(connection, 0)

    def fed(self, connection: Connection, count: int) -> None:
        """`count` bytes of it are in the read buffer."""
        now_us = self._now_us()
        self._received_bytes += count
        waiting_bytes = connection.codec.inbox.feed(connection.handle, count, now_us)
        self._has_waiting(connection, waiting_bytes, now_us)
        self._schedule()

    def set_writable(self, connection: Connection, writable: bool) -> None:
        """Its socket takes bytes, or does not."""
        if connection.phase is not Phase.ACCEPTED:
            return
        connection.codec.outboxes.set_writable(connection.handle, writable)
        self._deliveries.set_writable(connection.handle, writable and connection.gives)
        if writable:
            self._schedule()

    def lost(self, connection: Connection) -> None:
        """The peer has closed, or the socket is broken; what it sent before still counts."""
        self._closing.pop(connection, None)
        self._paused.discard(connection)
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        if connection.phase is not Phase.CLOSED:
            self.ended.add(connection)
            self._schedule()

    def is_paused(self, connection: Connection) -> bool:
        """True if we do not read from it."""
        return connection in self._paused

    def send(self, now_us: int) -> None:
        """What waits in the outboxes is sent: one write per connection."""
        if self.plain is None:
            for outboxes in self._outboxes:
                self.write(outboxes.take())
            return
        others, has_news = self.plain.send()
        if others:
            self.write(others)
        if has_news:
            self._take_news(self.plain, now_us)

    def write(self, batch: Iterable[tuple[int, bytes]]) -> None:
        """One write per connection, whatever carries it."""
        for handle, data in batch:
            connection = self._by_handle.get(handle)
            # A peer that has gone may still have its last packets decoded; it gets no answers.
            if connection is not None and not connection.transport.is_closing():
                self._sent_bytes += len(data)
                connection.transport.write(data)

    def resume(self, *, throttled: bool) -> None:
        """After a turn: reads on from whoever was paused and need not be any longer; from nobody
        while all together send faster than they are read (`throttled`)."""
        self._congested = throttled or self._uncommitted_bytes() > UNCOMMITTED_BYTES_MAXIMUM
        if self.plain is not None:
            self.plain.tells_all = self._congested
        if self._congested or not self._paused:
            return
        now_us = self._now_us()
        for connection in list(self._paused):
            waiting_bytes = connection.codec.inbox.feed(connection.handle, 0, now_us)
            if waiting_bytes <= self._read_ahead_bytes(connection):
                self._paused.discard(connection)
                connection.codec.inbox.unread(connection.handle, connection.paused_at_us, now_us)
                connection.transport.resume_reading()

    @property
    def received_bytes(self) -> int:
        """What peers have sent since the start."""
        return self._received_bytes + (self.plain.totals()[0] if self.plain else 0)

    @property
    def sent_bytes(self) -> int:
        """What was handed to the system for peers since the start."""
        return self._sent_bytes + (self.plain.totals()[1] if self.plain else 0)

    def stalled(self, from_us: int, to_us: int) -> None:
        """Nobody was read between these times."""
        for handle, connection in self._by_handle.items():
            connection.codec.inbox.unread(handle, from_us, to_us)

    def finished(self) -> list[Connection]:
        """After a turn: connections whose peer has gone and of which nothing more can be
        decoded."""
        now_us = self._now_us()
        finished = []
        for connection in self.ended:
            waiting_bytes = connection.codec.inbox.feed(connection.handle, 0, now_us)
            if connection.phase in (Phase.AUTHENTICATING, Phase.ADMITTING):
                continue
            # What waits for the limit of all is decoded later, however long it stays the same.
            if connection.codec.inbox.next_at_us() is not None:
                continue
            if waiting_bytes in (0, connection.waiting_bytes):
                finished.append(connection)
            else:
                connection.waiting_bytes = waiting_bytes
                self._schedule()
        return finished

    def close(self, connection: Connection, last_words: bytes = b"") -> None:
        """Forgets the connection; `last_words` and what was written before still go out."""
        was_accepted = connection.phase is Phase.ACCEPTED
        self.enter(connection, Phase.CLOSED)
        self._paused.discard(connection)
        self.ended.discard(connection)
        self._by_handle.pop(connection.handle, None)
        if self._per_address_maximum and connection.opener is None:
            self._leave(address_of(connection.peer))
        connection.codec.inbox.close(connection.handle)
        # Whoever gets the handle next may not inherit what this one was granted.
        self._ungrant(connection.handle)
        if was_accepted:
            connection.codec.outboxes.close(connection.handle)
        self._free.append(connection.handle)
        # uvloop raises where one writes to a socket that the peer has closed.
        if not connection.transport.is_closing():
            if last_words:
                self._sent_bytes += len(last_words)
                connection.transport.write(last_words)
            self._closing[connection] = self._now_us()
            connection.transport.close()

    def overdue(self, *, opened_before_us: int) -> list[Connection]:
        """Connections that have not been accepted although they were opened long ago."""
        overdue = []
        for connection in self._pending:
            if connection.opened_at_us > opened_before_us:
                break
            overdue.append(connection)
        return overdue

    def abort_closing(self, *, closed_before_us: int) -> None:
        """Ends connections that were closed long ago and whose peer does not take the rest."""
        for connection, closed_at_us in list(self._closing.items()):
            if closed_at_us > closed_before_us:
                break
            del self._closing[connection]
            connection.transport.abort()

    def all(self) -> list[Connection]:
        """Every connection that has not been closed."""
        return list(self._by_handle.values())

    async def wait_closed(self) -> None:
        """Returns when every closed connection has written what it had to."""
        while self._closing:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    def _take_news(self, plain: TurnSockets, now_us: int) -> None:
        """What sockets have to tell that the turn has read and written."""
        news = plain.news()
        for connection, waiting_bytes in news.fed:
            if connection.phase is not Phase.CLOSED:
                self._has_waiting(connection, waiting_bytes, now_us)
        for connection, writable in news.changed:
            self.set_writable(connection, writable)
        for connection in news.gone:
            connection.connection_lost(None)

    def _has_waiting(self, connection: Connection, waiting_bytes: int, now_us: int) -> None:
        """So many bytes of it wait: reads it no further if those are too many."""
        if self._congested or waiting_bytes > self._read_ahead_bytes(connection):
            connection.transport.pause_reading()
            connection.paused_at_us = now_us
            self._paused.add(connection)
        if connection in self._pending:
            self._wait(connection, waiting_bytes)

    def _wait(self, connection: Connection, waiting_bytes: int) -> None:
        """So many bytes wait of one that is pending; ends it if all those hold too much."""
        others = self._pending_bytes - self._pending[connection]
        if others + waiting_bytes > CONNECTIONS_PENDING_BYTES_MAXIMUM:
            self._turn_away(connection, DoorLimit.PENDING_BYTES)
            waiting_bytes = 0
        self._pending[connection] = waiting_bytes
        self._pending_bytes = others + waiting_bytes

    def _turn_away(self, connection: Connection, limit: DoorLimit) -> None:
        self._counts.add(Event.CONNECTIONS_TURNED_AWAY, limit)
        fields = {"peer": connection.peer, "reason": limit.value}
        log.warning("connection turned away", extra={"fields": fields})
        connection.transport.abort()

    def _leave(self, address: str) -> None:
        self._by_address[address] -= 1
        if self._by_address[address] <= 0:
            del self._by_address[address]

    def _read_ahead_bytes(self, connection: Connection) -> int:
        if connection.phase is Phase.ACCEPTED:
            return connection.codec.frame_bytes_maximum + READ_AHEAD_BYTES_MAXIMUM
        return READ_AHEAD_BYTES_MAXIMUM
