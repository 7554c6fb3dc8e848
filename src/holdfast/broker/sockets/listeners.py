"""Everything that listens for clients.

Owns: the listening sockets, which layers stand on which of them, and the TLS context.
Never: knows what comes of a connection; it makes them and lets go.

Invariant: `reconfigure` changes everything or nothing, and no connection that is open.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from ipaddress import ip_network
from socket import (
    AF_INET6,
    AI_PASSIVE,
    IPPROTO_IPV6,
    IPV6_V6ONLY,
    SO_REUSEADDR,
    SOCK_STREAM,
    SOL_SOCKET,
    socket,
)
from ssl import SSLContext, SSLObject

from websockets.http11 import Request, Response

from holdfast.broker.counts import Counts, Event
from holdfast.broker.sockets import certificates
from holdfast.broker.sockets.certificates import is_encrypted, server_context
from holdfast.broker.sockets.codec import Codec
from holdfast.broker.sockets.connection import Connections, show_address
from holdfast.broker.sockets.layer import Upper
from holdfast.broker.sockets.proxy_protocol import ProxyLayer
from holdfast.broker.sockets.tls import Handshakes, TlsLayer
from holdfast.broker.sockets.unix_socket import UnixListener
from holdfast.broker.sockets.websocket import WebSocketLayer, WebSocketRules
from holdfast.broker.world import World
from holdfast.core.config import LISTENERS, Config, is_loopback
from holdfast.core.errors import ListenError
from holdfast.core.limits import LISTENING_HANDLES, READ_BUFFER_BYTES

BACKLOG_CONNECTIONS = 4_096
"""Connections that the operating system holds for us: a fleet that reconnects after an outage comes
all at once, and who is turned away here waits seconds before trying again."""

TRANSPORTS = {"mqtt": "tcp", "mqtts": "tls", "ws": "ws", "wss": "wss", "pulsar": "tcp"}
"""Listeners, and the names that their connections have."""

SWITCHING_PROTOCOLS = 101
"""The status of HTTP that grants a WebSocket."""

log = logging.getLogger(__name__)
Factory = Callable[[], asyncio.BaseProtocol]


class Listeners:
    """The listeners that the settings ask for."""

    def __init__(
        self,
        config: Config,
        world: World,
        connections: Connections,
        counts: Counts,
        codecs: Mapping[str, Codec],
    ) -> None:
        """`codecs` says by its name on which listener something else than MQTT is spoken."""
        self._config = config
        self._world = world
        self._connections = connections
        self._counts = counts
        self._codecs = codecs
        self._tls: SSLContext | None = None
        self._handshakes = Handshakes(world.workers)
        self._servers: list[tuple[str, asyncio.Server]] = []
        self._handles: list[asyncio.Server] = []
        """More of the same listening sockets."""
        self._plain: list[tuple[str, socket]] = []
        """Those from which the connections' plain sockets are taken."""
        self._unix: UnixListener | None = None
        self._websocket_rules = websocket_rules(config)
        self._proxies = [ip_network(item) for item in config.proxy_protocol_from]

    async def start(self) -> None:
        """Listens. Raises `ListenError`, or `ConfigurationError` for certificates."""
        config = self._config
        if is_encrypted(config):
            self._read_certificates(config)
        for name in TRANSPORTS:
            port = config.ports.get(name)
            for host in config.hosts if port is not None else ():
                try:
                    if self._is_plain(name):
                        await self._listen_plainly(name, host, port or 0)
                    else:
                        await self._listen_layered(name, host, port or 0)
                except OSError as error:
                    raise refused(name, host, port or 0, error) from error
        if config.mqtt_unix_socket is not None:
            self._unix = UnixListener(config.mqtt_unix_socket, config.mqtt_unix_socket_mode)
            make = partial(self._connections.make, "unix")
            await self._unix.start(make, BACKLOG_CONNECTIONS, self._connections.plain)

    def _is_plain(self, name: str) -> bool:
        """True if the turn reads and writes the sockets of this listener itself."""
        has_layers = TRANSPORTS[name] != "tcp" or name in self._config.proxy_protocol
        return self._connections.plain is not None and not has_layers

    async def _listen_plainly(self, name: str, host: str, port: int) -> None:
        plain = self._connections.plain
        assert plain is not None, "asked for only where there is one"
        make = partial(self._connections.make, "tcp", codec=self._codecs.get(name))
        for listening in await listening_sockets(host, port):
            plain.listen(listening, make)
            self._plain.append((name, listening))

    async def _listen_layered(self, name: str, host: str, port: int) -> None:
        make = self._factory(name)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(make, host, port, backlog=BACKLOG_CONNECTIONS)
        self._servers.append((name, server))
        for listening in server.sockets:
            await self._listen_again(listening, make)

    async def _listen_again(self, listening: socket, make: Factory) -> None:
        """An event loop takes one connection from a handle in each of its iterations, and each has
        a turn. With several handles of one socket, connections that come together share a turn."""
        for again in self._world.handles(listening, LISTENING_HANDLES - 1):
            server = await asyncio.get_running_loop().create_server(
                make, sock=again, backlog=BACKLOG_CONNECTIONS
            )
            self._handles.append(server)

    def reconfigure(self, config: Config) -> None:
        """Takes over what may change while it runs: certificates, which are read again, origins,
        trusted proxies. New connections get it. Raises `ConfigurationError`, having changed
        nothing."""
        if self._tls is not None:
            self._read_certificates(config)
            log.info("certificates read", extra={"fields": {"file": config.tls_certificate}})
        self._config = config
        self._websocket_rules.origins = config.ws_origins
        self._proxies = [ip_network(item) for item in config.proxy_protocol_from]

    def _read_certificates(self, config: Config) -> None:
        self._tls = server_context(config)
        if told := certificates.warning(config, self._world.now_us()):
            log.warning(told)

    def upgrade(self, asked: Request, *, secure: bool) -> tuple[Response, WebSocketLayer | None]:
        """The answer to who asks over HTTP for a WebSocket, and a connection of MQTT that goes on
        there, if that is granted."""
        response = self._websocket_rules.answer(asked)
        if response.status_code != SWITCHING_PROTOCOLS:
            self._counts.add(Event.WEBSOCKET_HANDSHAKES_REFUSED, response.status_code)
            return response, None
        connection = self._connections.make("wss" if secure else "ws")
        buffer = self._connections.read_buffer
        return response, WebSocketLayer(connection, self._websocket_rules, buffer, self._counts)

    def http_context(self) -> SSLContext:
        """TLS for HTTP, whose connections are not made here: what was read last is shown to each
        client that comes, as on the other listeners."""
        assert self._tls is not None, "it was made before anything listened"
        context = server_context(self._config)

        def show_newest(connection: SSLObject, _name: str | None, _context: SSLContext) -> None:
            assert self._tls is not None
            connection.context = self._tls

        # Called for every client, also for one that names no host.
        context.sni_callback = show_newest
        return context

    def addresses(self, *names: str) -> list[tuple[str, int]]:
        """Where clients can connect by TCP; of those listeners, or of all."""
        listening = [(name, each) for name, server in self._servers for each in server.sockets]
        return [
            each.getsockname()[:2]
            for name, each in (*self._plain, *listening)
            if not names or name in names
        ]

    def places(self) -> dict[str, list[str]]:
        """Where each listener is, for people: `{"mqtt": ["127.0.0.1:1883"]}`."""
        places: dict[str, list[str]] = {}
        for name in TRANSPORTS:
            shown = [show_address(host, port) for host, port in self.addresses(name)]
            if shown:
                places[name] = shown
        if self._unix is not None:
            places["unix"] = [str(self._unix.path)]
        return places

    def close(self) -> None:
        """Listens no more; connections stay."""
        for server in (*self._handles, *(server for _, server in self._servers)):
            server.close()
        if (plain := self._connections.plain) is not None:
            for _, listening in self._plain:
                plain.close(listening)
        if self._unix is not None:
            self._unix.close()
        self._handshakes.stop()

    def _factory(self, name: str) -> Factory:
        if name in self._codecs:
            return partial(self._connections.make, TRANSPORTS[name], codec=self._codecs[name])
        if name == "mqtt" and name not in self._config.proxy_protocol:
            return self._connections.make
        return lambda: self._stack(name)

    def _stack(self, name: str) -> asyncio.BufferedProtocol:
        """The layers of a new connection, from the top."""
        buffer, counts = self._connections.read_buffer, self._counts
        connection = self._connections.make(TRANSPORTS[name])
        top: Upper = connection
        if name in ("ws", "wss"):
            top = WebSocketLayer(top, self._websocket_rules, buffer, counts)
        if name in ("mqtts", "wss"):
            assert self._tls is not None, "it was made before anything listened"
            top = TlsLayer(top, connection, self._tls, self._handshakes, buffer, counts)
        if name in self._config.proxy_protocol:
            top = ProxyLayer(top, connection, self._connections, self._proxies, counts)
        return top


async def listening_sockets(host: str, port: int) -> list[socket]:
    """A socket that listens for each address that a host's name has. Raises `OSError`."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=SOCK_STREAM, flags=AI_PASSIVE
    )
    listening: list[socket] = []
    try:
        for family, *_, address in dict.fromkeys(found):
            listening.append(socket(family, SOCK_STREAM))
            # A broker that starts again need not wait until connections of the last one are gone.
            listening[-1].setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
            if family == AF_INET6:
                listening[-1].setsockopt(IPPROTO_IPV6, IPV6_V6ONLY, 1)
            listening[-1].bind(address)
            listening[-1].listen(BACKLOG_CONNECTIONS)
    except OSError:
        for each in listening:
            each.close()
        raise
    return listening


def websocket_rules(config: Config) -> WebSocketRules:
    """What the settings accept of a WebSocket. A frame may hold one packet of the largest size, or
    as many small ones as one read brings."""
    frame_bytes = max(config.maximum_packet_size_bytes, READ_BUFFER_BYTES)
    return WebSocketRules(config.ws_origins, is_loopback(config.host), frame_bytes)


def refused(listener: str, host: str, port: int, error: OSError) -> ListenError:
    """Why an address cannot be listened on, in one sentence, and which setting has it."""
    reason = error.strerror or str(error)
    place = show_address(host, port)
    return ListenError(
        f"cannot listen on {place}: {reason}; {LISTENERS[listener]} takes another port, or off"
    )
