"""MQTT over WebSocket: on a listener of its own and at `/mqtt` on the HTTP listener."""

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.kernel import encode_packet
from tests.builders.websocket import (
    ACCEPT,
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    frame,
    parse,
    request,
)
from tests.interop.device import WITHIN_S, Device, payloads
from tests.process import HOST, BrokerProcess

CONNECT = encode_packet(
    "connect",
    {"client_identifier": "", "clean_start": True, "keep_alive_s": 0, "properties": {}},
    protocol_version=5,
)
PACKET_BYTES_MAXIMUM = 300_000


class WebSocketBroker(BrokerProcess):
    """A broker with both ways for WebSocket."""

    def __init__(self, directory: Any, **settings: object) -> None:
        super().__init__(
            directory,
            ws_port=0,
            http_port=0,
            maximum_packet_size_bytes=PACKET_BYTES_MAXIMUM,
            **settings,
        )


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebSocketBroker]:
    broker = WebSocketBroker(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    assert broker.stop() == 0, broker.log()
    assert "Traceback" not in broker.log()


@pytest.fixture(params=["ws", "http"])
def port(request: pytest.FixtureRequest, broker: WebSocketBroker) -> int:
    return broker.ports[request.param]


class Raw:
    """A WebSocket client that may do anything."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port), WITHIN_S)
        self._left = b""

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def handshake(self, **options: Any) -> bytes:
        """Sends a request; returns the answer's head, and keeps what follows."""
        self.send(request(**options))
        return self.head()

    def head(self) -> bytes:
        while b"\r\n\r\n" not in self._left:
            data = self.socket.recv(65_536)
            assert data, f"it ended after {self._left!r}"
            self._left += data
        head, _, self._left = self._left.partition(b"\r\n\r\n")
        return head

    def open(self) -> "Raw":
        """With the handshake and MQTT's CONNECT done."""
        assert ACCEPT in self.handshake()
        self.send(frame(CONNECT))
        opcode, payload = self.frame()
        assert (opcode, payload[0], payload[3]) == (BINARY, 0x20, 0)
        return self

    def frame(self) -> tuple[int, bytes]:
        while True:
            frames, _ = parse(self._left)
            if frames:
                used = len(self._left) - len(self._after_first())
                self._left = self._left[used:]
                return frames[0]
            data = self.socket.recv(65_536)
            assert data, "it ended"
            self._left += data

    def _after_first(self) -> bytes:
        for end in range(2, len(self._left) + 1):
            if parse(self._left[:end])[0]:
                return self._left[end:]
        raise AssertionError

    def is_at_end(self) -> bool:
        return not self._left and self.socket.recv(1_000) == b""

    def close_code(self) -> int:
        """Which code it is closed with; nothing comes after that."""
        opcode, payload = self.frame()
        assert opcode == CLOSE
        assert self.is_at_end()
        return int.from_bytes(payload[:2], "big")


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_client_publishes_and_subscribes(port: int, prefix: str, version: int, qos: int) -> None:
    options = {"transport": "websockets", "version": version, "clean_start": True}
    with contextlib.closing(Device(port, prefix, **options).connect()) as device:
        device.subscribe(f"{prefix}/#", qos)
        sent = [b"%d" % number for number in range(300)] + [bytes(PACKET_BYTES_MAXIMUM - 100)]
        device.publish_all(f"{prefix}/a", sent, qos)
        assert payloads(device.receive_many(len(sent))) == sent


@pytest.mark.accepts("S2.61")
def test_a_session_is_kept_while_its_client_is_away(
    broker: WebSocketBroker, port: int, prefix: str
) -> None:
    options: dict[str, Any] = {"transport": "websockets", "SessionExpiryInterval": 3_600}
    topic = f"{prefix}/session/persistent"
    away = Device(port, f"{prefix}w", **options).connect()
    away.subscribe(topic, 1)
    away.disconnect()
    publisher = Device(broker.port, f"{prefix}p", clean_start=True).connect()
    sent = [b"%d" % number for number in range(10)]
    with contextlib.closing(publisher):
        publisher.publish_all(topic, sent, 1)
    back = Device(port, f"{prefix}w", **options).connect()
    with contextlib.closing(back):
        assert back.session_present
        assert payloads(back.receive_many(len(sent))) == sent


def test_the_http_listener_still_answers_http(broker: WebSocketBroker) -> None:
    with Raw(broker.ports["http"]) as before:
        before.open()
        asked = http.client.HTTPConnection(HOST, broker.ports["http"], timeout=WITHIN_S)
        asked.request("GET", "/health/ready")
        assert json.loads(asked.getresponse().read()) == {"status": "ready"}
        asked.request("GET", "/mqtt")
        assert asked.getresponse().status == 426


@pytest.mark.proves("MQTT5-6.0.0-4", "MQTT311-6.0.0-4")
@pytest.mark.parametrize("offered", ["mqtt", "mqttv3.1", "other, mqtt"])
def test_the_subprotocols_of_mqtt_are_taken(port: int, offered: str) -> None:
    with Raw(port) as raw:
        chosen = offered.rpartition(" ")[2]
        assert f"Sec-WebSocket-Protocol: {chosen}".encode() in raw.handshake(subprotocol=offered)


@pytest.mark.proves("MQTT5-6.0.0-3", "MQTT311-6.0.0-3")
@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"subprotocol": "chat"}, 400),
        ({"subprotocol": None}, 400),
        ({"Sec_WebSocket_Key": "short"}, 400),
        ({"Sec_WebSocket_Version": "8"}, 400),
        ({"Upgrade": "h2c"}, 426),
        ({"Origin": "https://elsewhere.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_a_wrong_handshake_is_refused(port: int, options: dict[str, Any], status: int) -> None:
    with Raw(port) as raw:
        assert raw.handshake(**options).startswith(b"HTTP/1.1 %d " % status)


def test_a_page_of_the_same_host_may_connect(port: int) -> None:
    with Raw(port) as raw:
        assert ACCEPT in raw.handshake(Origin="http://LOCALHOST:3000", host="localhost:8080")


@pytest.mark.parametrize(
    "data", [b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00\r\n", b"GET /" + b"x" * 20_000]
)
def test_what_is_no_request_is_refused(broker: WebSocketBroker, data: bytes) -> None:
    with Raw(broker.ports["ws"]) as raw:
        raw.send(data)
        assert raw.head().startswith(b"HTTP/1.1 400 ")
        assert raw.is_at_end()


def test_compression_is_not_spoken(port: int) -> None:
    with Raw(port) as raw:
        head = raw.handshake(Sec_WebSocket_Extensions="permessage-deflate")
        assert b"Sec-WebSocket-Extensions" not in head


def test_what_comes_with_the_handshake_is_not_lost(port: int) -> None:
    """Not what a client may do, but the bytes are there, and dropping them would hang it."""
    with Raw(port) as raw:
        raw.send(request() + frame(CONNECT))
        assert ACCEPT in raw.head()
        assert raw.frame()[1][0] == 0x20


@pytest.mark.proves("MQTT5-6.0.0-2", "MQTT311-6.0.0-2")
def test_packets_are_split_over_frames_and_share_them(port: int) -> None:
    with Raw(port) as raw:
        raw.handshake()
        for byte in CONNECT[:-3]:
            raw.send(frame(bytes([byte])))
        raw.send(frame(CONNECT[-3:] + b"\xc0\x00" * 2))
        assert raw.frame()[1][0] == 0x20
        answers = raw.frame()[1]
        while len(answers) < 4:
            answers += raw.frame()[1]
        assert answers == b"\xd0\x00" * 2


def test_pings_are_answered_amidst_a_fragmented_message(port: int) -> None:
    with Raw(port) as raw:
        raw.open()
        raw.send(frame(b"\xc0", final=False) + frame(b"well?", PING))
        assert raw.frame() == (PONG, b"well?")
        raw.send(frame(b"\x00", CONTINUATION))
        assert raw.frame() == (BINARY, b"\xd0\x00")


@pytest.mark.proves("MQTT5-6.0.0-1", "MQTT311-6.0.0-1")
@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(frame(b"\xc0\x00", TEXT), 1003, id="a text frame [MQTT-6.0.0-1]"),
        pytest.param(frame(b"\xc0\x00", mask=None), 1002, id="not masked"),
        pytest.param(frame(b"", PING, final=False), 1002, id="a fragmented ping"),
        pytest.param(frame(b"x" * 126, PING), 1002, id="a long ping"),
        pytest.param(frame(b"\xc0", CONTINUATION), 1002, id="goes on with nothing"),
        pytest.param(
            frame(b"\xc0", final=False) + frame(b"\x00"), 1002, id="begins before the end"
        ),
        pytest.param(frame(b"", 3), 1002, id="an unknown kind"),
        pytest.param(b"\xc2\x80\x01\x02\x03\x04", 1002, id="a reserved bit"),
        pytest.param(frame(bytes(PACKET_BYTES_MAXIMUM + 1)), 1009, id="too large"),
        pytest.param(b"\x82\xff" + b"\x7f" * 8, 1009, id="says that it is huge"),
        pytest.param(frame((1_000).to_bytes(2, "big"), CLOSE), 1000, id="a close"),
    ],
)
def test_the_end_says_why(port: int, data: bytes, code: int) -> None:
    with Raw(port) as raw:
        raw.open()
        raw.send(data)
        assert raw.close_code() == code


def test_a_fault_of_mqtt_closes_the_websocket_too(port: int) -> None:
    with Raw(port) as raw:
        raw.open()
        raw.send(frame(b"\x00\x00"))
        opcode, payload = raw.frame()
        assert (opcode, payload[0]) == (BINARY, 0xE0)
        opcode, payload = raw.frame()
        assert (opcode, payload[:2]) == (CLOSE, b"\x03\xe8")
        raw.send(frame(payload, CLOSE))
        assert raw.is_at_end()


@pytest.mark.parametrize("way", ["ws", "http"])
def test_named_origins_are_the_only_ones(tmp_path: Any, way: str) -> None:
    broker = WebSocketBroker(tmp_path, ws_origins="https://page.example")
    broker.start()
    with Raw(broker.ports[way]) as raw:
        assert ACCEPT in raw.handshake(Origin="https://page.example")
    with Raw(broker.ports[way]) as raw:
        assert b" 403 " in raw.handshake(Origin="http://localhost", host="localhost")
    with Raw(broker.ports[way]) as raw:
        assert ACCEPT in raw.handshake()
    assert broker.stop() == 0
