"""Connections through a proxy: the header first, then TCP, TLS or WebSocket as ever."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.certificates import Authority
from tests.builders.proxy_header import header
from tests.builders.websocket import ACCEPT, request
from tests.interop.device import WITHIN_S
from tests.interop.wire import Wire
from tests.process import HOST, BrokerProcess


class ProxiedBroker(BrokerProcess):
    """A broker of which every listener stands behind a proxy, except the one on `port`."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.authority = Authority(directory / "certificates")
        certificate, key = self.authority.server()
        super().__init__(
            directory,
            mqtt_tls_port=0,
            ws_port=0,
            ws_tls_port=0,
            tls_certificate=certificate,
            tls_key=key,
            proxy_protocol="mqtts,ws,wss",
            **settings,
        )

    def connection(self, name: str, begin: bytes) -> socket.socket:
        """A connection to a listener that begins so."""
        connected = socket.create_connection((HOST, self.ports[name]), WITHIN_S)
        connected.sendall(begin)
        return connected

    def through_tls(self, connected: socket.socket) -> ssl.SSLSocket:
        return self.authority.trusting().wrap_socket(connected, server_hostname=HOST)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedBroker]:
    broker = ProxiedBroker(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    assert broker.stop() == 0, broker.log()
    assert "Traceback" not in broker.log()


@pytest.mark.parametrize("source", [("192.0.2.7", 4_711), ("2001:db8::7", 4_711), None])
def test_tls_follows_the_header(
    broker: ProxiedBroker, source: tuple[str, int] | None, prefix: str
) -> None:
    with Wire(over=broker.through_tls(broker.connection("mqtts", header(source)))) as wire:
        assert wire.connect(prefix)["reason_code"] == 0


def test_websocket_follows_the_header(broker: ProxiedBroker) -> None:
    with broker.connection("ws", header() + request()) as connected:
        assert ACCEPT in connected.recv(10_000)


def test_secure_websocket_follows_the_header(broker: ProxiedBroker) -> None:
    with broker.through_tls(broker.connection("wss", header())) as connected:
        connected.sendall(request())
        assert ACCEPT in connected.recv(10_000)


def test_a_header_may_come_in_pieces(broker: ProxiedBroker) -> None:
    with broker.connection("ws", b"") as connected:
        for byte in header(values=b"\x04\x00\x02\x00\x00"):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.sendall(bytes([byte]))
        connected.sendall(request())
        assert ACCEPT in connected.recv(10_000)


@pytest.mark.parametrize(
    "begin",
    [b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 1883\r\n", request(), header()[:12] + bytes(4)],
    ids=["version 1", "no header", "no version"],
)
def test_a_connection_without_the_header_is_ended(broker: ProxiedBroker, begin: bytes) -> None:
    with broker.connection("ws", begin) as connected:
        assert _ends(connected)


def test_a_header_from_elsewhere_is_not_believed(tmp_path: Path) -> None:
    broker = ProxiedBroker(tmp_path, proxy_protocol_from="192.0.2.0/24")
    broker.start()
    with socket.create_connection((HOST, broker.ports["ws"]), WITHIN_S) as connected:
        assert _ends(connected)
    assert broker.stop() == 0


def _ends(connected: socket.socket) -> bool:
    try:
        return connected.recv(1_000) == b""
    except ConnectionError:
        return True
