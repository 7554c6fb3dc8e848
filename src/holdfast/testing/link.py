"""A way from a client to a broker that can be cut at any packet.

Owns: the packets that pass, by their kinds, in both directions. Never: changes one, or passes a
part of one.

Invariants:
1. Of what comes behind the packet at which it was cut, in either direction, nothing passes.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

KINDS: Final = (
    "",
    "connect",
    "connack",
    "publish",
    "puback",
    "pubrec",
    "pubrel",
    "pubcomp",
    "subscribe",
    "suback",
    "unsubscribe",
    "unsuback",
    "pingreq",
    "pingresp",
    "disconnect",
    "auth",
)
"""By the first four bits of a packet."""


@dataclass(frozen=True, slots=True)
class Passing:
    """A packet that is about to pass."""

    number: int
    """Of all packets since the link was made, from 1."""
    kind: str
    to_broker: bool


class Link:
    """Takes connections at an address of its own, and leads each to the broker."""

    def __init__(self, host: str, port: int) -> None:
        self.passed: list[Passing] = []
        self.cut_if: Callable[[Passing], bool] = lambda _packet: False
        """Asked before each packet passes; true: the connection ends there, on both sides."""
        self._broker = (host, port)
        self._open: set[_End] = set()

    async def listen(self, host: str, port: int) -> None:
        """Takes connections from now on."""
        loop = asyncio.get_running_loop()
        await loop.create_server(lambda: _End(self, to_broker=True), host, port)

    def cut_at(self, number: int) -> None:
        """Cuts at a packet, by its number."""
        self.cut_if = lambda packet: packet.number == number

    def cut_before(self, kind: str) -> None:
        """Cuts at the next packet of a kind, once."""

        def is_next(packet: Passing) -> bool:
            if packet.kind != kind:
                return False
            self.cut_if = lambda _packet: False
            return True

        self.cut_if = is_next

    def cut(self) -> None:
        """Ends all connections now."""
        for end in list(self._open):
            end.cut()

    def of_kind(self, kind: str) -> int:
        """How many packets of a kind have passed."""
        return sum(packet.kind == kind for packet in self.passed)

    def ask(self, kind: str, to_broker: bool) -> bool:
        """True if a packet may pass."""
        packet = Passing(len(self.passed) + 1, kind, to_broker)
        if self.cut_if(packet):
            # It has a number, so that the same cut is not made at the next one.
            self.passed.append(Passing(packet.number, f"cut at {kind}", to_broker))
            return False
        self.passed.append(packet)
        return True

    async def lead(self, near: "_End") -> None:
        """Opens the other half of a connection."""
        loop = asyncio.get_running_loop()
        far = _End(self, to_broker=False)
        try:
            await loop.create_connection(lambda: far, *self._broker)
        except OSError:
            near.cut()
            return
        near.join(far)
        far.join(near)

    def note_open(self, end: "_End") -> None:
        """It may be cut from now on."""
        self._open.add(end)

    def note_closed(self, end: "_End") -> None:
        """It is gone."""
        self._open.discard(end)


class _End(asyncio.Protocol):
    """One end of a connection: towards the client, or towards the broker."""

    def __init__(self, link: Link, *, to_broker: bool) -> None:
        self._link = link
        self._to_broker = to_broker
        """Which way what is read here goes."""
        self._undecoded = b""
        self._transport: Any = None
        self._other: _End | None = None
        self._leading: asyncio.Task[None] | None = None

    def join(self, other: "_End") -> None:
        """What is read here goes there."""
        self._other = other
        self._pass_on()

    def cut(self) -> None:
        """Ends here and there, without a word."""
        self._undecoded = b""
        for end in (self, self._other):
            if end is not None and end._transport is not None:
                end._transport.abort()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._link.note_open(self)
        if self._to_broker:
            loop = asyncio.get_running_loop()
            self._leading = loop.create_task(self._link.lead(self))

    def data_received(self, data: bytes) -> None:
        self._undecoded += data
        self._pass_on()

    def connection_lost(self, _error: Exception | None) -> None:
        self._link.note_closed(self)
        if self._other is not None and self._other._transport is not None:
            self._other._transport.close()

    def _pass_on(self) -> None:
        while self._other is not None:
            size = _size_of_first(self._undecoded)
            if size is None or size > len(self._undecoded):
                return
            packet, self._undecoded = self._undecoded[:size], self._undecoded[size:]
            if self._transport.is_closing():
                return
            if not self._link.ask(KINDS[packet[0] >> 4], self._to_broker):
                self.cut()
                return
            self._other._transport.write(packet)


def _size_of_first(data: bytes) -> int | None:
    """The bytes of the first packet with its header; None if its length is not known yet."""
    length = 0
    for place, byte in enumerate(data[1:5]):
        length |= (byte & 0x7F) << (7 * place)
        if not byte & 0x80:
            return 2 + place + length
    return None
