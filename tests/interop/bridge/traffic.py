"""Messages with running numbers over a bridge, at QoS 1 and 2 and in both directions, and what came
of them.

Owns: a client at each end, which publishes there and counts what comes. Never: knows what happens
to the bridge.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from holdfast import system
from holdfast.client.http import HttpClient
from tests.interop.bridge.bridged import carries
from tests.interop.device import Device

BURST_MESSAGES = 10
QOS = (1, 2)
SUBSCRIPTIONS = {
    "local_subscriptions": [carries("up/#")],
    "remote_subscriptions": [carries("down/#")],
}
"""Of the bridge `b`, which carries them."""
SETTINGS = {"queue_messages_maximum": 0}
"""Of both brokers: what waits for the bridge at its remote is the queue of a device, and overflows
where it has a bound."""


class Traffic:
    """Goes on for as long as a test wants, and ends by being counted."""

    def __init__(self, near: Device, far: Device, data_directory: Path, stack: ExitStack) -> None:
        """`data_directory` is that of the broker with the bridge; the clients are connected, and
        closed with `stack`."""
        self._data_directory = data_directory
        self._sent = 0
        for device in (near, far):
            stack.enter_context(closing(device.connect()))
        self._publishers = {"up": near, "down": far}
        self._collectors = {"up": far, "down": near}
        for direction, collector in self._collectors.items():
            collector.subscribe(f"{direction}/#", 2)

    def bridge(self) -> dict[str, Any]:
        """The bridge as it is shown."""
        return HttpClient.on(self._data_directory).get("/v1/bridges/b")

    def until(self, is_so: Callable[[dict[str, Any]], bool], within_s: float) -> dict[str, Any]:
        """Publishes at both ends, one burst after the other, until the bridge is so."""
        began = system.monotonic_s()
        while not is_so(seen := self.bridge()):
            assert system.monotonic_s() - began < within_s, seen
            self._publish()
        return seen

    def assert_all_is_there(self) -> None:
        """Everything came, at QoS 2 once, and in its order as far as it came for the first time."""
        for direction, collector in self._collectors.items():
            came: dict[str, list[int]] = {f"{direction}/{qos}": [] for qos in QOS}
            while any(len(set(numbers)) < self._sent for numbers in came.values()):
                message = collector.receive()
                came[message.topic].append(int(message.payload))
            for message in collector.all_received():
                came[message.topic].append(int(message.payload))
            for numbers in came.values():
                assert list(dict.fromkeys(numbers)) == list(range(self._sent))
            assert Counter(came[f"{direction}/2"]).most_common(1)[0][1] == 1

    def _publish(self) -> None:
        """A burst at each QoS in both directions, which the broker there acknowledges."""
        numbers = [b"%d" % number for number in range(self._sent, self._sent + BURST_MESSAGES)]
        self._sent += BURST_MESSAGES
        for direction, publisher in self._publishers.items():
            for qos in QOS:
                publisher.publish_all(f"{direction}/{qos}", numbers, qos)
