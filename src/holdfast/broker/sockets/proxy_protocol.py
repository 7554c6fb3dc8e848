"""The PROXY protocol, version 2: who stands behind the proxy that has connected.

Owns: the header at the beginning of a connection (HAProxy's `proxy-protocol.txt`, section 2.2).
Never: reads a byte beyond it, so it can step aside and leave the socket to the layer above.

Invariants:
1. Nothing but a whole header of version 2 lets a connection through.
2. It is believed only from the addresses that the settings name.

Flow: socket -> here, once -> TLS, WebSocket or connection.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Protocol, cast

from holdfast.broker.counts import Counts, Event
from holdfast.broker.sockets.connection import Connection, Connections, peer_of, show_address
from holdfast.broker.sockets.layer import Layer, Upper
from holdfast.core.limits import PROXY_HEADER_BYTES_MAXIMUM

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
FIXED_BYTES = 16
TCP_OVER_IPV4, TCP_OVER_IPV6, UNIX_STREAM = 0x11, 0x21, 0x31
ADDRESS_BYTES = {TCP_OVER_IPV4: 12, TCP_OVER_IPV6: 36, UNIX_STREAM: 216}
LOCAL, PROXY = 0x20, 0x21
TYPE_SSL, TYPE_SSL_COMMON_NAME = 0x20, 0x22
CLIENT_SSL, CLIENT_CERTIFICATE = 0x01, 0x02 | 0x04
"""Bits of the field `client`: over TLS; with a certificate, on this connection or in this TLS
session."""

log = logging.getLogger(__name__)
Networks = Sequence[IPv4Network | IPv6Network]


class ProxyHeaderError(Exception):
    """A header that is not taken, and why."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Who a header says has connected."""

    peer: str | None
    """None: the proxy itself, or the header does not say."""
    certificate_name: str | None


class Above(Protocol):
    """What stands above: it is told its transport anew when the header has been read."""

    transport: asyncio.Transport


class ProxyLayer(Layer):
    """Reads the header and steps aside."""

    __slots__ = ("_connection", "_connections", "_filled", "_header", "_trusted")

    UNFINISHED = Event.PROXY_HANDSHAKES_UNFINISHED
    NOT_READING = Event.PROXY_PEERS_NOT_READING

    def __init__(
        self,
        upper: Upper,
        connection: Connection,
        connections: Connections,
        trusted: Networks,
        counts: Counts,
    ) -> None:
        super().__init__(upper, connections.read_buffer, counts)
        self._connection = connection
        self._connections = connections
        self._trusted = trusted
        self._header = bytearray(FIXED_BYTES)
        self._filled = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The proxy has connected, if it is one."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        if not is_trusted(peer, self._trusted):
            # Not more: whoever reaches the port can cause it, as often as he likes.
            self._refuse("it does not come from listen.proxy_protocol_from", logging.DEBUG)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Not who has connected: that is the proxy, and the header names the peer."""
        return default if name == "peername" else super().get_extra_info(name, default)

    def get_buffer(self, _size_hint: int) -> memoryview:
        """What of the header is missing, so that nothing behind it is read."""
        return memoryview(self._header)[self._filled :]

    def buffer_updated(self, count: int) -> None:
        """`count` bytes of the header have come."""
        self._filled += count
        if self._is_ready or self._filled < len(self._header):
            return
        try:
            if len(self._header) == FIXED_BYTES and (length := parse_length(self._header)):
                self._header = self._header + bytes(length)
                return
            self._step_aside(parse_origin(bytes(self._header)))
        except ProxyHeaderError as error:
            self._refuse(str(error), logging.INFO)

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone."""
        super().connection_lost(error)
        del self._connection

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Nobody writes before the header is here."""
        raise AssertionError("a connection that has not been identified was written to")

    def close(self) -> None:
        """Ends the connection."""
        self.transport.close()

    def _step_aside(self, origin: Origin) -> None:
        self._is_ready = True
        self._counts.add(Event.PROXY_HEADERS_TAKEN)
        if origin.certificate_name is not None:
            self._connection.certificate_name = origin.certificate_name
        cast(Above, self._upper).transport = self.transport
        self.transport.set_protocol(self._upper)
        peer = peer_of(self.transport) if origin.peer is None else origin.peer
        self._connections.comes_from(self._connection, peer)

    def _refuse(self, reason: str, level: int) -> None:
        self._end_handshake(Event.PROXY_HEADERS_REFUSED)
        fields = {"proxy": peer_of(self.transport), "reason": reason}
        log.log(level, "PROXY header refused", extra={"fields": fields})
        self.transport.abort()


def is_trusted(peer: object, trusted: Networks) -> bool:
    """True if a socket's peer lies in one of the networks."""
    if not isinstance(peer, tuple):
        return False
    address = ip_address(peer[0].partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return any((mapped or address) in network for network in trusted)


def parse_length(fixed: bytes | bytearray) -> int:
    """How many bytes follow the fixed part. Raises `ProxyHeaderError`."""
    if fixed.startswith(b"PROXY "):
        raise ProxyHeaderError("it is of version 1, a line of text; send version 2")
    if not fixed.startswith(SIGNATURE):
        raise ProxyHeaderError("the connection does not begin with one")
    if fixed[12] not in (LOCAL, PROXY):
        raise ProxyHeaderError(f"version and command {fixed[12]:#04x} are unknown")
    length = int.from_bytes(fixed[14:16], "big")
    if FIXED_BYTES + length > PROXY_HEADER_BYTES_MAXIMUM:
        raise ProxyHeaderError(f"{length} bytes are too many")
    return length


def parse_origin(header: bytes) -> Origin:
    """What a whole header says. Raises `ProxyHeaderError`."""
    if header[12] == LOCAL:
        return Origin(None, None)  # The proxy asks for itself, whether we are well.
    family, body = header[13], header[FIXED_BYTES:]
    size = ADDRESS_BYTES.get(family, 0)
    if len(body) < size:
        raise ProxyHeaderError("it ends within the addresses")
    return Origin(_peer(family, body), _certificate_name(body[size:]))


def _peer(family: int, body: bytes) -> str | None:
    """The addresses are those of source and destination, then their ports."""
    if family == TCP_OVER_IPV4:
        return show_address(str(IPv4Address(body[:4])), int.from_bytes(body[8:10], "big"))
    if family == TCP_OVER_IPV6:
        return show_address(str(IPv6Address(body[:16])), int.from_bytes(body[32:34], "big"))
    return "unix" if family == UNIX_STREAM else None


def _certificate_name(values: bytes) -> str | None:
    """The common name of a client's certificate that the proxy has verified."""
    for kind, value in _values(values):
        # `client` is one byte of bits, `verify` four that are zero when the certificate is good.
        if kind != TYPE_SSL or len(value) < 5:
            continue
        if not value[0] & CLIENT_SSL or not value[0] & CLIENT_CERTIFICATE or any(value[1:5]):
            continue
        for inner, name in _values(value[5:]):
            if inner == TYPE_SSL_COMMON_NAME:
                return _text(name)
    return None


def _values(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type, length, value, until nothing is left."""
    at = 0
    while at < len(data):
        end = at + 3 + int.from_bytes(data[at + 1 : at + 3], "big")
        if at + 3 > len(data) or end > len(data):
            raise ProxyHeaderError("it ends within a value")
        yield data[at], data[at + 3 : end]
        at = end


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise ProxyHeaderError("the certificate's name is not text in UTF-8") from None
