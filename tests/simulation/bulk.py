"""A publisher and a remote of a bridge that deal with messages by the million in virtual time.

Owns: their packets, which are made and read as bytes. Never: keeps a message; of each it is noted
whether its number is the next one of its QoS.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast.kernel import encode_packet

TOPIC = "t/x"
VERSION = 5
BATCH_MESSAGES = 10_000
"""Published at once: the broker's Receive Maximum has to be as much."""
NUMBER_DIGITS = 8
ACKNOWLEDGEMENT_BYTES = 4
"""Of success: a packet identifier, and no reason code."""
ACKNOWLEDGED_BY = {1: b"\x40\x02", 2: b"\x50\x02"}
"""The fixed headers of PUBACK and PUBREC."""
RELEASED, PUBCOMP = b"\x62\x02", b"\x70\x02"
"""Those of PUBREL and PUBCOMP."""
CONNECT, PUBLISH, PUBREL, PINGREQ, DISCONNECT = 1, 3, 6, 12, 14
"""Types of control packets, which are the upper half of the first byte."""
PINGRESP = b"\xd0\x00"


class BulkPublisher(asyncio.Protocol):
    """Publishes running numbers, a batch at a time."""

    def __init__(self) -> None:
        self.transport: Any = None
        self._came_bytes = 0
        self._wanted_bytes = 0
        self._came = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._came_bytes += len(data)
        if self._came_bytes >= self._wanted_bytes:
            self._came.set()

    def connection_lost(self, _error: Exception | None) -> None:
        self._came.set()

    async def connect(self, host: str, port: int) -> None:
        """It is accepted."""
        await asyncio.get_running_loop().create_connection(lambda: self, host, port)
        fields = {
            "protocol_version": VERSION,
            "client_identifier": "bulk",
            "clean_start": True,
            "keep_alive_s": 0,
            "user_name": None,
            "password": None,
            "will": None,
            "properties": {},
        }
        await self._ask(encode_packet("connect", fields, protocol_version=VERSION), 1)

    async def publish(self, begin: int, end: int, qos: int) -> None:
        """These numbers, at most as many as a batch; all are acknowledged, unless the QoS is 0."""
        wanted_bytes = (end - begin) * ACKNOWLEDGEMENT_BYTES
        identifiers = [number.to_bytes(2) for number in range(1, end - begin + 1)]
        head = self._head(qos)
        numbers = (b"%0*d" % (NUMBER_DIGITS, number) for number in range(begin, end))
        if qos == 0:
            self.transport.write(b"".join(head + b"\x00" + number for number in numbers))
            return
        each = zip(identifiers, numbers, strict=True)
        await self._ask(
            b"".join(head + own + b"\x00" + number for own, number in each), wanted_bytes
        )
        if qos == 2:
            await self._ask(b"".join(RELEASED + own for own in identifiers), wanted_bytes)

    @staticmethod
    def _head(qos: int) -> bytes:
        topic = len(TOPIC).to_bytes(2) + TOPIC.encode()
        size = len(topic) + (2 if qos else 0) + 1 + NUMBER_DIGITS
        return bytes([PUBLISH << 4 | qos << 1, size]) + topic

    async def _ask(self, data: bytes, answer_bytes: int) -> None:
        self._came_bytes, self._wanted_bytes = 0, answer_bytes
        self._came.clear()
        self.transport.write(data)
        await self._came.wait()
        assert self._came_bytes >= answer_bytes, "the broker has ended the connection"


class BulkRemote:
    """A remote that takes everything, and keeps its session."""

    def __init__(self, look: Callable[[], None]) -> None:
        """`look` is called whenever something has come."""
        self.look = look
        self.arrived = dict.fromkeys((0, 1, 2), 0)
        self.misplaced: list[tuple[int, int]] = []
        """QoS and number of what was not greater than the number before; there should be none."""
        self.connections = 0
        self._last = dict.fromkeys((0, 1, 2), -1)
        self._server: asyncio.AbstractServer | None = None
        self._transports: list[Any] = []

    async def open(self, host: str, port: int) -> None:
        """Takes connections from now on."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _BulkVisit(self), host, port)

    def close(self) -> None:
        """Is not there any more."""
        assert self._server is not None, "it is open"
        self._server.close()
        for transport in self._transports:
            transport.abort()
        self._transports.clear()

    def begin(self, transport: Any) -> None:
        """A connection comes."""
        self._transports.append(transport)
        self.connections += 1

    def note(self, qos: int, number: int) -> None:
        """A message comes."""
        self.arrived[qos] += 1
        if number <= self._last[qos]:
            self.misplaced.append((qos, number))
        self._last[qos] = number


class _BulkVisit(asyncio.Protocol):
    """One connection of it."""

    def __init__(self, remote: BulkRemote) -> None:
        self._remote = remote
        self._undecoded = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._remote.begin(transport)

    def data_received(self, data: bytes) -> None:
        data = self._undecoded + data
        answers: list[bytes] = []
        at = 0
        while at + 2 <= len(data):
            # None of these packets is longer than one byte can say.
            end = at + 2 + data[at + 1]
            if end > len(data):
                break
            answers.append(self._answer(data, at, end))
            at = end
        self._undecoded = data[at:]
        self._remote.look()
        self._transport.write(b"".join(answers))

    def _answer(self, data: bytes, at: int, end: int) -> bytes:
        kind, flags = data[at] >> 4, data[at] & 0xF
        if kind == PUBLISH:
            qos = flags >> 1
            assert qos <= 2, "no DUP: nothing was in flight when the remote went away"
            self._remote.note(qos, int(data[end - NUMBER_DIGITS : end]))
            if not qos:
                return b""
            identifier_at = at + 4 + len(TOPIC)
            return ACKNOWLEDGED_BY[qos] + data[identifier_at : identifier_at + 2]
        if kind == PUBREL:
            return PUBCOMP + data[at + 2 : at + 4]
        if kind == PINGREQ:
            return PINGRESP
        if kind == CONNECT:
            return self._accepted()
        assert kind == DISCONNECT, f"nobody expects {kind}"
        return b""

    def _accepted(self) -> bytes:
        fields = {"session_present": self._remote.connections > 1, "reason_code": 0}
        return encode_packet("connack", fields | {"properties": {}}, protocol_version=VERSION)
