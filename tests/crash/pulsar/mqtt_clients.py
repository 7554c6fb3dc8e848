"""The other door in the same run: MQTT clients, in the process of Pulsar's own client.

Owns: who publishes for Pulsar's consumers, and who subscribes to what Pulsar's producers send.
"""

import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Any, Final

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from tests.process import HOST

AGAIN_AFTER_S: Final = 1
IN_FLIGHT_MAXIMUM: Final = 200
CONNECTED_WITHIN_S: Final = 30.0
QOS: Final = 1


def _client(name: str) -> mqtt.Client:
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=name, clean_session=False)
    client.reconnect_delay_set(AGAIN_AFTER_S, AGAIN_AFTER_S)
    client.max_inflight_messages_set(IN_FLIGHT_MAXIMUM)
    return client


class Publisher:
    """Publishes numbers, each again until it is acknowledged."""

    def __init__(self, port: int, topic: str, acknowledged: Callable[[int], None]) -> None:
        self._topic = topic
        self._acknowledged = acknowledged
        self._numbers: dict[int, int] = {}
        """By packet identifier. The library holds a lock while it tells of an acknowledgement, and
        takes it to publish: so nothing is locked here while it is called."""
        self._known = threading.Condition()
        self._told: SimpleQueue[int] = SimpleQueue()
        self._client = _client("crash-publisher")
        self._client.on_publish = lambda _client, _data, identifier, *_: self._told.put(identifier)
        self._client.connect(HOST, port)
        self._client.loop_start()
        threading.Thread(target=self._tell, daemon=True).start()

    def publish(self, number: int) -> None:
        """It goes out now, or when there is a connection."""
        told = self._client.publish(self._topic, b"%d" % number, QOS)
        with self._known:
            self._numbers[told.mid] = number
            self._known.notify()

    def close(self) -> None:
        """Nothing goes out any more."""
        self._client.loop_stop()

    def _tell(self) -> None:
        while True:
            identifier = self._told.get()
            with self._known:
                # It may be acknowledged before the library has said what its identifier is.
                self._known.wait_for(lambda: identifier in self._numbers)  # noqa: B023
                number = self._numbers.pop(identifier)
            self._acknowledged(number)


class Subscriber:
    """A session that is kept, and notes which number came on which topic."""

    def __init__(self, port: int, topics: Iterable[str], came: Callable[[str, int], None]) -> None:
        self._wanted = [(topic, QOS) for topic in topics]
        self._came = came
        self._subscribed = threading.Event()
        self._client = _client("crash-subscriber")
        self._client.on_connect = self._connected
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.on_message = self._message
        self._client.connect(HOST, port)
        self._client.loop_start()
        if not self._subscribed.wait(CONNECTED_WITHIN_S):
            raise TimeoutError("no SUBACK")

    def close(self) -> None:
        """Nothing comes any more."""
        self._client.loop_stop()

    def _connected(self, client: mqtt.Client, *_: Any) -> None:
        # Once is enough: its session is durable when it is told so.
        if not self._subscribed.is_set():
            client.subscribe(self._wanted)

    def _message(self, _client: Any, _data: Any, message: mqtt.MQTTMessage) -> None:
        self._came(message.topic, int(message.payload))
