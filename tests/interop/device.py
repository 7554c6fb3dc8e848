"""The Paho client as a test wants it: each call waits for its answer, and what arrives is
queued."""

import queue
import socket
import ssl
import threading
from collections.abc import Sequence
from typing import Any, Literal

from paho.mqtt.client import Client, MQTTMessage, MQTTMessageInfo, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.process import HOST

WITHIN_S = 60.0
"""How long a test waits for what must come."""


def properties_of(packet_type: int, values: dict[str, Any]) -> Properties:
    """Paho's properties; the names are Paho's (`MessageExpiryInterval`)."""
    properties = Properties(packet_type)
    for name, value in values.items():
        setattr(properties, name, value)
    return properties


class Device:
    """One client identifier on one connection."""

    def __init__(
        self,
        port: int,
        name: str,
        *,
        version: int = 5,
        clean_start: bool = False,
        keep_alive_s: int = 60,
        answer: bool = True,
        will: dict[str, Any] | None = None,
        host: str = HOST,
        transport: Literal["tcp", "websockets", "unix"] = "tcp",
        tls: ssl.SSLContext | None = None,
        **properties: Any,
    ) -> None:
        """`properties` are those of CONNECT; `answer` False keeps PUBACK and PUBREC back. The host
        of a Unix socket is its path."""
        self.name = name
        self.version = version
        self.reason_code: int | None = None
        self.session_present = False
        self.connack_properties: dict[str, Any] = {}
        self.ended_with: int | None = None
        self._port = port
        self._host = host
        self._transport = transport
        self._clean_start = clean_start
        self._keep_alive_s = keep_alive_s
        self._properties = properties
        self._connected = threading.Event()
        self._ended = threading.Event()
        self._messages: queue.Queue[MQTTMessage] = queue.Queue()
        self._answers: queue.Queue[tuple[int, list[int]]] = queue.Queue()
        self._barriers = 0
        self.client = self._make_client(answer)
        if tls is not None:
            self.client.tls_set_context(tls)
        if will is not None:
            self._set_will(**will)

    def _make_client(self, answer: bool) -> Client:
        options: dict[str, Any] = {"client_id": self.name, "manual_ack": not answer}
        options["transport"] = self._transport
        if self.version == 5:
            options["protocol"] = MQTTv5
        else:
            options |= {"protocol": MQTTv311, "clean_session": self._clean_start}
        client = Client(CallbackAPIVersion.VERSION2, reconnect_on_failure=False, **options)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_message = lambda _client, _data, message: self._messages.put(message)
        client.on_subscribe = self._on_answer
        client.on_unsubscribe = self._on_answer
        return client

    def _set_will(
        self, topic: str, payload: bytes, qos: int = 1, retain: bool = False, **properties: Any
    ) -> None:
        values = properties_of(PacketTypes.WILLMESSAGE, properties) if self.version == 5 else None
        self.client.will_set(topic, payload, qos, retain, values)

    def _on_connect(self, _c: Any, _d: Any, flags: Any, reason_code: Any, properties: Any) -> None:
        self.reason_code = reason_code.value
        self.session_present = flags.session_present
        self.connack_properties = {} if properties is None else properties.json()
        self._connected.set()

    def _on_disconnect(self, _c: Any, _d: Any, _f: Any, reason_code: Any, _p: Any) -> None:
        if not self._ended.is_set():  # Paho may tell it twice: by DISCONNECT, then by the socket.
            self.ended_with = reason_code.value
        self._ended.set()
        self._connected.set()

    def _on_answer(self, _c: Any, _d: Any, identifier: int, codes: Any, _p: Any) -> None:
        self._answers.put((identifier, [code.value for code in codes]))

    def connect(self) -> "Device":
        """Connects and waits for CONNACK."""
        self._connected.clear()
        self._ended.clear()
        options: dict[str, Any] = {}
        if self.version == 5:
            options["clean_start"] = self._clean_start
            options["properties"] = properties_of(PacketTypes.CONNECT, self._properties)
        self.client.connect(self._host, self._port, self._keep_alive_s, **options)
        self.client.loop_start()
        assert self._connected.wait(WITHIN_S), f"{self.name}: no CONNACK"
        return self

    def disconnect(self, **properties: Any) -> None:
        """Says DISCONNECT and waits until the connection has ended."""
        values = properties_of(PacketTypes.DISCONNECT, properties) if properties else None
        self.client.disconnect(properties=values)
        self.wait_ended()

    def cut(self) -> None:
        """Ends the connection without DISCONNECT."""
        self.client.socket().shutdown(socket.SHUT_RDWR)
        self.wait_ended()

    def wait_ended(self, within_s: float = WITHIN_S) -> int | None:
        """Waits until the connection has ended; returns the reason code that Paho tells."""
        assert self._ended.wait(within_s), f"{self.name}: the connection did not end"
        self.client.loop_stop()
        return self.ended_with

    def close(self) -> None:
        """Ends whatever is left, at the end of a test."""
        self.client.disconnect()
        self.client.loop_stop()

    def subscribe(self, topic_filter: str, qos: int = 1, **options: Any) -> list[int]:
        """Subscribes; returns the reason codes. `identifier` is the Subscription Identifier."""
        identifier = options.pop("identifier", None)
        if self.version == 5:
            values = None
            if identifier is not None:
                values = properties_of(
                    PacketTypes.SUBSCRIBE, {"SubscriptionIdentifier": identifier}
                )
            wanted = [(topic_filter, SubscribeOptions(qos=qos, **options))]
            _, number = self.client.subscribe(wanted, properties=values)
        else:
            _, number = self.client.subscribe(topic_filter, qos)
        return self._answer(number)

    def unsubscribe(self, topic_filter: str) -> list[int]:
        """Unsubscribes; returns the reason codes."""
        _, number = self.client.unsubscribe(topic_filter)
        return self._answer(number)

    def _answer(self, number: int | None) -> list[int]:
        identifier, codes = self._answers.get(timeout=WITHIN_S)
        assert identifier == number
        return codes

    def publish(
        self, topic: str, payload: bytes = b"", qos: int = 1, retain: bool = False, **values: Any
    ) -> None:
        """Publishes and waits until the broker has answered (QoS 1 and 2)."""
        properties = properties_of(PacketTypes.PUBLISH, values) if values else None
        self._wait_published([self.client.publish(topic, payload, qos, retain, properties)])

    def publish_all(self, topic: str, payloads: Sequence[bytes], qos: int = 1) -> None:
        """Publishes many and waits until the broker has answered all of them."""
        self._wait_published([self.client.publish(topic, payload, qos) for payload in payloads])

    def _wait_published(self, infos: list[MQTTMessageInfo]) -> None:
        for info in infos:
            info.wait_for_publish(WITHIN_S)
            assert info.is_published(), f"{self.name}: no answer to PUBLISH {info.mid}"

    def receive(self) -> MQTTMessage:
        """The next message."""
        try:
            return self._messages.get(timeout=WITHIN_S)
        except queue.Empty:
            raise AssertionError(f"{self.name}: no message came") from None

    def receive_many(self, count: int) -> list[MQTTMessage]:
        """The next `count` messages."""
        return [self.receive() for _ in range(count)]

    def all_received(self) -> list[MQTTMessage]:
        """Everything that was on its way, and nothing that comes later.

        It sends a message to itself: what the broker had for this client comes before it. At QoS 2,
        because Paho hands a message of QoS 2 on when PUBREL comes, and those of QoS 1 overtake it.
        """
        self._barriers += 1
        topic = f"barrier/{self.name}/{self._barriers}"
        self.subscribe(topic, 2)
        self.publish(topic, b"", 2)
        messages: list[MQTTMessage] = []
        while (message := self.receive()).topic != topic:
            messages.append(message)
        self.unsubscribe(topic)
        return messages


def payloads(messages: Sequence[MQTTMessage]) -> list[bytes]:
    """Their payloads."""
    return [bytes(message.payload) for message in messages]
