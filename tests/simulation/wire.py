"""A way between two brokers in virtual time that sees each packet, and fails when it is told to.

Owns: connections that are made to its address and the ones that it makes on to the remote broker;
what has passed. Never: changes, repeats or reorders a packet.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.kernel import decode_packets

PORT = 1883


@dataclass(frozen=True, slots=True)
class Seen:
    """A packet that has come to the wire."""

    at_s: float
    connection: int
    is_outbound: bool
    """From the broker with the bridge."""
    kind: str
    fields: dict[str, Any]

    @property
    def payload(self) -> bytes:
        """Of PUBLISH."""
        return bytes(self.fields["payload"])


class Wire:
    """All connections of one bridge."""

    def __init__(self, host: str, remote_host: str, version: int) -> None:
        self.host = host
        self.version = version
        self.seen: list[Seen] = []
        self.connections = 0
        self.breaks_at: Callable[[Seen], bool] = lambda _seen: False
        """Asked of each packet; one of which it is true is lost with its connection."""
        self._remote_host = remote_host
        self._ways: set[_Way] = set()
        self._server: asyncio.AbstractServer | None = None

    async def open(self) -> None:
        """Connections can be made from now on."""
        if self._server is None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(self._taken, self.host, PORT)

    def close(self) -> None:
        """There is no way any more."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()

    def cut(self) -> None:
        """Both brokers see a reset; a new connection may be made at once."""
        for way in list(self._ways):
            way.cut()

    def silence(self) -> None:
        """Nothing arrives any more on what is open now, and nobody is told."""
        for way in self._ways:
            way.is_silent = True

    def hold(self, is_held: bool) -> None:
        """The remote takes nothing for a while, and the connection stays."""
        for way in self._ways:
            way.hold(is_held)

    def of_kind(self, *kinds: str, outbound: bool = True) -> list[Seen]:
        """What came of these kinds, in one direction."""
        return [item for item in self.seen if item.is_outbound is outbound and item.kind in kinds]

    def payloads(self) -> list[tuple[int, bytes]]:
        """Each message that was sent, with the number of its connection."""
        return [(item.connection, item.payload) for item in self.of_kind("publish")]

    def note(self, connection: int, is_outbound: bool, frame: bytes) -> bool:
        """A packet comes; false if its connection breaks with it."""
        role = "server" if is_outbound else "client"
        (packet,), _ = decode_packets(frame, protocol_version=self.version, role=role)
        now_s = asyncio.get_running_loop().time()
        seen = Seen(now_s, connection, is_outbound, packet.kind, packet.fields)
        self.seen.append(seen)
        return not self.breaks_at(seen)

    def forget(self, way: "_Way") -> None:
        """Its connections are gone."""
        self._ways.discard(way)

    def _taken(self) -> "_End":
        self.connections += 1
        way = _Way(self, self.connections)
        self._ways.add(way)
        asyncio.get_running_loop().create_task(way.go_on(self._remote_host))
        return way.near


class _Way:
    """One connection from end to end."""

    def __init__(self, wire: Wire, number: int) -> None:
        self.wire = wire
        self.number = number
        self.near = _End(self, is_outbound=True)
        self.far = _End(self, is_outbound=False)
        self.near.other, self.far.other = self.far, self.near
        self.is_silent = False
        self.is_over = False

    async def go_on(self, host: str) -> None:
        """Makes the connection to the remote."""
        try:
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: self.far, host, PORT)
        except OSError:
            self.cut()

    def hold(self, is_held: bool) -> None:
        if self.near.transport is not None and not self.is_over:
            if is_held:
                self.near.transport.pause_reading()
            else:
                self.near.transport.resume_reading()

    def cut(self) -> None:
        self.is_over = True
        self.wire.forget(self)
        for end in (self.near, self.far):
            if end.transport is not None:
                end.transport.abort()


class _End(asyncio.Protocol):
    """One side of a way."""

    def __init__(self, way: _Way, *, is_outbound: bool) -> None:
        self.other: _End
        self.transport: asyncio.Transport | None = None
        self._way = way
        self._is_outbound = is_outbound
        self._undecoded = b""
        self._waiting: list[bytes] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if self._way.is_over:
            transport.abort()
            return
        for frame in self._waiting:
            transport.write(frame)
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        way = self._way
        frames, self._undecoded = _frames(self._undecoded + data)
        for frame in frames:
            if way.is_over or way.is_silent:
                return
            if not way.wire.note(way.number, self._is_outbound, frame):
                way.cut()
                return
            self.other.send(frame)

    def send(self, frame: bytes) -> None:
        if self.transport is None:
            self._waiting.append(frame)
        elif not self.transport.is_closing():
            self.transport.write(frame)

    def pause_writing(self) -> None:
        if self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other.transport is not None:
            self.other.transport.resume_reading()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        # What it has said before still arrives, as on a real way.
        way, other = self._way, self.other
        if way.is_over or way.is_silent:
            return
        way.is_over = True
        way.wire.forget(way)
        if other.transport is not None:
            other.transport.close()


def _frames(data: bytes) -> tuple[list[bytes], bytes]:
    """Whole packets, and what is left (section 2.1.4)."""
    found, start = [], 0
    while True:
        size, shift, at = 0, 0, start + 1
        while at < len(data) and data[at] & 0x80:
            size |= (data[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
        if at >= len(data):
            return found, data[start:]
        end = at + 1 + (size | data[at] << shift)
        if end > len(data):
            return found, data[start:]
        found.append(data[start:end])
        start = end
