"""Handshakes that never end, in virtual time: each is ended by the deadline and counted, and takes
the place of nobody afterwards."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from holdfast.broker.assemble import assemble
from holdfast.broker.counts import Counted, Event
from holdfast.broker.server import Server
from holdfast.broker.sockets import connection
from holdfast.broker.sockets.connection import DoorLimit
from holdfast.core.config import Config
from holdfast.core.limits import CONNECT_TIMEOUT_S
from holdfast.kernel import encode_packet
from holdfast.protocols.mqtt.reason_code import ReasonCode
from holdfast.testing.hardships import Hardships
from holdfast.testing.loop import VirtualLoop, simulate
from holdfast.testing.world import BrokerMachine
from tests.builders.certificates import Authority
from tests.builders.proxy_header import header
from tests.builders.websocket import ACCEPT, frame, request
from tests.simulation.whole import CONFIG, HOST

MQTT, MQTTS, WS, WSS = 1883, 8883, 8083, 8084
CONNECT = encode_packet(
    "connect",
    {"client_identifier": "", "clean_start": True, "keep_alive_s": 0},
    protocol_version=4,
)
DEADLINE_S = CONNECT_TIMEOUT_S + 2
"""The sweep looks once a second."""


class Client(asyncio.Protocol):
    """Sends what it is told, and notes what happens."""

    def __init__(self) -> None:
        self.received = b""
        self.ended_at: float | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, _error: Exception | None) -> None:
        self.ended_at = asyncio.get_running_loop().time()


async def connected(port: int, begin: bytes = b"") -> Client:
    _, client = await asyncio.get_running_loop().create_connection(Client, HOST, port)
    client.transport.write(begin)
    return client


def turned_away(server: Server, limit: DoorLimit) -> int:
    """How many connections, for this limit."""
    return server.counts.total(Event.CONNECTIONS_TURNED_AWAY, limit)


Body = Callable[[Server], Awaitable[None]]


def with_broker(config: Config, body: Body, hardships: Hardships | None = None) -> None:
    """Runs `body` beside a broker in virtual time."""

    async def main(loop: VirtualLoop) -> None:
        machine = BrokerMachine(loop, lambda world: assemble(config, world))
        machine.start()
        await asyncio.sleep(1)
        assert isinstance(machine.life, Server)
        await body(machine.life)
        await machine.stop()

    simulate(main, seed=1, repeat="this test", hardships=hardships or Hardships())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def config(authority: Authority) -> Config:
    certificate, key = authority.server()
    return replace(
        CONFIG,
        mqtt_tls_port=MQTTS,
        ws_port=WS,
        ws_tls_port=WSS,
        tls_certificate=certificate,
        tls_key=key,
    )


def hello(authority: Authority) -> bytes:
    """How a TLS client begins."""
    outgoing = ssl.MemoryBIO()
    client = authority.trusting().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=HOST)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(
    ("port", "begin", "count"),
    [
        (MQTT, b"", None),
        (MQTTS, b"", Event.TLS_HANDSHAKES_UNFINISHED),
        (MQTTS, b"half", Event.TLS_HANDSHAKES_UNFINISHED),
        (MQTTS, b"whole", Event.TLS_HANDSHAKES_UNFINISHED),
        (WSS, b"whole", Event.TLS_HANDSHAKES_UNFINISHED),
        (WS, b"", Event.WEBSOCKET_HANDSHAKES_UNFINISHED),
        (WS, request()[:-3], Event.WEBSOCKET_HANDSHAKES_UNFINISHED),
        (WS, request(), None),
        (WS, request() + frame(CONNECT[:5]), None),
    ],
)
def test_who_does_not_go_on_is_ended_at_the_deadline(
    config: Config, authority: Authority, port: int, begin: bytes, count: Event | None
) -> None:
    if begin in (b"half", b"whole"):
        begin = hello(authority) if begin == b"whole" else hello(authority)[:50]

    async def body(server: Server) -> None:
        client = await connected(port, begin)
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(CONNECT_TIMEOUT_S - 1)
        assert client.ended_at is None
        # WebSocket says goodbye and waits for the answer, but not for ever.
        await asyncio.sleep(20)
        assert client.ended_at is not None
        assert client.ended_at - began < DEADLINE_S + 7
        counts = server.counts
        assert counts.total(Event.CONNECTIONS_ENDED, ReasonCode.KEEP_ALIVE_TIMEOUT) == 1
        counted = {each.event for each in counts.all() if each.event.endswith("_unfinished")}
        assert counted == ({count} if count else set())

    with_broker(config, body)


def test_a_header_that_never_comes_is_ended_at_the_deadline() -> None:
    async def body(server: Server) -> None:
        client = await connected(MQTT, header()[:20])
        await asyncio.sleep(DEADLINE_S)
        assert client.ended_at is not None
        assert server.counts.total(Event.PROXY_HANDSHAKES_UNFINISHED) == 1

    with_broker(replace(CONFIG, proxy_protocol=("mqtt",), proxy_protocol_from=("127.0.0.1",)), body)


def test_handshakes_that_never_end_are_bounded_and_make_room(
    config: Config, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    maximum = 500
    monkeypatch.setattr(connection, "CONNECTIONS_PENDING_MAXIMUM", maximum)

    async def body(server: Server) -> None:
        begin = hello(authority)
        clients = [await connected(MQTTS, begin) for _ in range(maximum + 10)]
        await asyncio.sleep(1)
        assert sum(client.ended_at is not None for client in clients) == 10
        assert turned_away(server, DoorLimit.PENDING) == 10
        await asyncio.sleep(DEADLINE_S)
        assert all(client.ended_at is not None for client in clients)
        client = await connected(MQTT, CONNECT)
        await asyncio.sleep(1)
        assert client.received[:1] == b"\x20"

    with_broker(config, body)


def test_what_unfinished_connects_hold_is_bounded_over_all(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECTIONS_PENDING_BYTES_MAXIMUM", 1_000)

    async def body(server: Server) -> None:
        begin = b"\x10\xff\x7f" + bytes(297)
        clients = [await connected(MQTT, begin) for _ in range(5)]
        await asyncio.sleep(1)
        assert [client.ended_at is not None for client in clients] == [False] * 3 + [True] * 2
        assert turned_away(server, DoorLimit.PENDING_BYTES) == 2
        await asyncio.sleep(DEADLINE_S)
        late = await connected(MQTT, CONNECT)
        await asyncio.sleep(1)
        assert late.received[:1] == b"\x20"
        assert server._stages.connections._pending_bytes == 0

    with_broker(config, body)


@pytest.mark.parametrize("port", [MQTTS, WSS])
@pytest.mark.parametrize("begin", [b"\x16\x03\x01\x00\x05hello", b"GET / HTTP/1.1\r\n\r\n"])
def test_what_is_not_tls_is_counted(config: Config, port: int, begin: bytes) -> None:
    async def body(server: Server) -> None:
        client = await connected(port, begin)
        await asyncio.sleep(1)
        assert client.ended_at is not None
        counts = server.counts.all()
        assert {each: counts[each] for each in counts if "handshakes" in each.event} == {
            Counted(Event.TLS_HANDSHAKES_REFUSED): 1
        }

    with_broker(config, body)


def test_refusals_of_websocket_are_counted_by_reason(config: Config) -> None:
    async def body(server: Server) -> None:
        for begin in (
            request(subprotocol="chat"),
            request(Origin="https://elsewhere.example"),
            request() + frame(b"\xc0\x00", 1),
            request() + frame(b"\xc0\x00", mask=None),
        ):
            client = await connected(WS, begin)
            await asyncio.sleep(1)
            assert client.ended_at is not None
        counts = server.counts.all()
        assert {each: counts[each] for each in counts if each.event.startswith("websocket")} == {
            Counted(Event.WEBSOCKET_HANDSHAKES_REFUSED, 400): 1,
            Counted(Event.WEBSOCKET_HANDSHAKES_REFUSED, 403): 1,
            Counted(Event.WEBSOCKET_CLOSED, 1003): 1,
            Counted(Event.WEBSOCKET_CLOSED, 1002): 1,
        }

    with_broker(config, body)


def test_a_handshake_in_the_smallest_pieces_over_a_bad_network(config: Config) -> None:
    async def body(_server: Server) -> None:
        client = await connected(WS, request() + frame(CONNECT))
        await asyncio.sleep(5)
        assert ACCEPT in client.received
        assert client.received.endswith(b"\x82\x04\x20\x02\x00\x00")

    with_broker(config, body, Hardships(split_bytes=1, delay_s=0.05))


def test_what_a_connection_knows_of_its_peer(config: Config) -> None:
    proxied = replace(config, proxy_protocol=("mqtts", "ws"), proxy_protocol_from=("127.0.0.1",))

    async def body(server: Server) -> None:
        for port, begin in (
            (MQTT, b""),
            (WS, header(("2001:db8::7", 4_711))),
            (WSS, b""),
            (MQTTS, header(("192.0.2.7", 4_711))),
        ):
            await connected(port, begin)
        await asyncio.sleep(1)
        known = [
            (connection.transport_name, connection.peer, connection.certificate_name)
            for connection in server._stages.connections.all()
        ]
        assert [
            (name, peer.rpartition(":")[0], certificate) for name, peer, certificate in known
        ] == [
            ("tcp", "127.0.0.1", None),
            ("ws", "[2001:db8::7]", None),
            ("wss", "127.0.0.1", None),
            ("tls", "192.0.2.7", None),
        ]

    with_broker(proxied, body)


def test_one_address_has_only_so_many_connections() -> None:
    config = replace(
        CONFIG,
        ws_port=WS,
        proxy_protocol=("ws",),
        proxy_protocol_from=("127.0.0.1",),
        connections_per_address_maximum=2,
    )

    async def body(server: Server) -> None:
        direct = [await connected(MQTT, CONNECT) for _ in range(3)]
        behind = [await connected(WS, header(("192.0.2.7", 1))) for _ in range(3)]
        elsewhere = await connected(WS, header(("192.0.2.8", 1)))
        await asyncio.sleep(1)
        ended = [client.ended_at is not None for client in (*direct, *behind, elsewhere)]
        assert ended == [False, False, True, False, False, True, False]
        assert turned_away(server, DoorLimit.PER_ADDRESS) == 2
        direct[0].transport.close()
        await asyncio.sleep(1)
        again = await connected(MQTT, CONNECT)
        await asyncio.sleep(1)
        assert again.received[:1] == b"\x20"

    with_broker(config, body)


def test_the_name_in_a_verified_certificate_is_the_connections(
    authority: Authority, config: Config
) -> None:
    required = replace(config, tls_client_ca=authority.file, tls_client_certificates="required")

    async def body(server: Server) -> None:
        client = await connected(MQTTS)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = authority.trusting(authority.client("device-7"))
        context.check_hostname = False
        tls = context.wrap_bio(incoming, outgoing)
        done = False
        while not done:
            try:
                tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                pass
            client.transport.write(outgoing.read())
            await asyncio.sleep(0.1)
            incoming.write(client.received)
            client.received = b""
        (connection,) = server._stages.connections.all()
        assert connection.certificate_name == "device-7"

    with_broker(required, body)
