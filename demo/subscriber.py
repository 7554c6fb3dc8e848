"""A subscriber with a persistent session, which notes everything that it gets."""

import time
from collections import Counter
from typing import Any

import paho.mqtt.client as mqtt
from fleet import client, connect

FILTER = "zebra/fx/+/reads"


class Subscriber:
    """Takes every report at the QoS at which it was published. Payloads and times are kept."""

    def __init__(self, identifier: str, port: int) -> None:
        self.delivered: Counter[bytes] = Counter()
        self.delivered_at: list[float] = []
        self.marked_duplicate = 0
        self.messages = 0
        self._port = port
        self._is_subscribed = False
        self._client = client(identifier, mqtt.MQTTv5)
        self._client.on_message = self._on_message
        self._client.on_subscribe = self._on_subscribe

    def subscribe(self) -> None:
        """Connects for the first time; true on return: everything from now on is this session's."""
        connect(self._client, self._port)
        self._client.subscribe(FILTER, qos=2)
        deadline = time.monotonic() + 10
        while not self._is_subscribed:
            if time.monotonic() > deadline:
                raise SystemExit("the subscription was not acknowledged")
            time.sleep(0.01)

    def leave(self) -> None:
        """Disconnects; the session stays with the broker."""
        self._client.disconnect()
        self._client.loop_stop()

    def so_far(self) -> dict[bytes, int]:
        """How often each payload has come until now; a copy, since the client's thread goes on."""
        return dict(self.delivered)

    def come_back(self) -> None:
        """Takes its session up again."""
        connect(self._client, self._port)

    def _on_subscribe(self, *_arguments: Any) -> None:
        self._is_subscribed = True

    def _on_message(self, _client: mqtt.Client, _userdata: Any, message: mqtt.MQTTMessage) -> None:
        self.delivered[message.payload] += 1
        self.delivered_at.append(time.monotonic())
        self.marked_duplicate += message.dup
        self.messages += 1
