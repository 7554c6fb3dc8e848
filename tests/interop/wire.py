"""A client of bare packets on a real socket, for what a client library would never do."""

import socket
from collections import deque
from typing import Any, Self

from holdfast.kernel import decode_packets, encode_packet
from tests.process import HOST

WITHIN_S = 60.0


class Wire:
    """One connection."""

    def __init__(
        self, port: int = 0, version: int = 5, *, over: socket.socket | None = None
    ) -> None:
        """Connects to `port`, or goes on over a socket that is connected."""
        self.version = version
        if over is None:
            over = socket.create_connection((HOST, port), WITHIN_S)
        self._socket = over
        self._undecoded = b""
        self._packets: deque[tuple[str, dict[str, Any]]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send_bytes(self, data: bytes) -> None:
        """Anything."""
        self._socket.sendall(data)

    def send(self, kind: str, **fields: Any) -> None:
        """One packet."""
        self.send_bytes(self.encode(kind, **fields))

    def encode(self, kind: str, **fields: Any) -> bytes:
        """One packet as bytes; properties may be left out."""
        if kind != "pingreq":
            fields.setdefault("properties", {})
        return encode_packet(kind, fields, protocol_version=self.version)

    def connect(
        self, name: str, *, clean_start: bool = False, keep_alive_s: int = 60, **properties: Any
    ) -> dict[str, Any]:
        """Sends CONNECT; returns CONNACK's fields. The session is kept unless `properties` say
        no."""
        if self.version == 5:
            properties.setdefault("session_expiry_interval", 3_600)
        self.send(
            "connect",
            protocol_version=self.version,
            client_identifier=name,
            clean_start=clean_start,
            keep_alive_s=keep_alive_s,
            user_name=None,
            password=None,
            will=None,
            properties=properties,
        )
        return self.receive("connack")

    def subscribe(self, topic_filter: str, qos: int = 1, identifier: int = 1) -> list[int]:
        """Subscribes; returns the reason codes."""
        wanted = {
            "topic_filter": topic_filter,
            "qos": qos,
            "no_local": False,
            "retain_as_published": False,
            "retain_handling": 0,
        }
        self.send("subscribe", packet_identifier=identifier, subscriptions=[wanted])
        return list(self.receive("suback")["reason_codes"])

    def publish(
        self, topic: str, payload: bytes, *, qos: int = 0, identifier: int = 0, dup: bool = False
    ) -> None:
        """Sends PUBLISH; waits for nothing."""
        self.send("publish", **self.publish_fields(topic, payload, qos, identifier, dup))

    @staticmethod
    def publish_fields(
        topic: str, payload: bytes, qos: int, identifier: int, dup: bool
    ) -> dict[str, Any]:
        """The fields of PUBLISH."""
        return {
            "packet_identifier": identifier,
            "qos": qos,
            "retain": False,
            "dup": dup,
            "topic_name": topic,
            "payload": payload,
        }

    def acknowledge(self, kind: str, identifier: int) -> None:
        """Sends PUBACK, PUBREC, PUBREL or PUBCOMP."""
        self.send(kind, packet_identifier=identifier, reason_code=0)

    def receive(self, kind: str) -> dict[str, Any]:
        """The next packet's fields; it must be of this kind."""
        found = self.next_packet()
        assert found is not None, f"{kind} was expected, the broker closed"
        assert found[0] == kind, f"{kind} was expected, {found} came"
        return found[1]

    def next_packet(self) -> tuple[str, dict[str, Any]] | None:
        """The next packet, or None when the broker has closed."""
        while not self._packets:
            try:
                data = self._socket.recv(65_536)
            except ConnectionError:
                return None
            if not data:
                return None
            packets, used = decode_packets(
                self._undecoded + data, protocol_version=self.version, role="client"
            )
            self._undecoded = (self._undecoded + data)[used:]
            self._packets.extend((packet.kind, packet.fields) for packet in packets)
        return self._packets.popleft()

    def ping(self) -> None:
        """Sends PINGREQ and waits for PINGRESP: what came before has been taken."""
        self.send("pingreq")
        self.receive("pingresp")
