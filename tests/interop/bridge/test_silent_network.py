"""A network that falls silent is no socket that closes: the bridge finds it out, says so, connects
again when it can, and nothing is lost or doubled by it.

The brokers run in networks of their own with a cable between them; clients come by Unix sockets,
which lead into any network.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import system
from holdfast.client.http import HttpClient
from tests.interop.bridge.bridged import BridgedBroker, bridge, carries
from tests.interop.bridge.cable import ADDRESSES, FAR, NEAR, Cable, cable
from tests.interop.device import Device
from tests.process import BrokerProcess

MQTT_PORT = 1883
STALL_TIMEOUT_S = 5
"""The shortest that can be set."""
NOTICED_WITHIN_S = STALL_TIMEOUT_S + 3
"""The bound, two sweeps, and an answer of a busy machine."""
BACK_WITHIN_S = 30
BURST_MESSAGES = 10
QOS = (1, 2)
DIRECTIONS = ("up", "down")


class Joined:
    """Two brokers with a cable between them, and a bridge over it; clients publish at both ends."""

    def __init__(
        self, joined_by: Cable, directory: Path, stack: ExitStack, keep_alive_s: int
    ) -> None:
        self.cable = joined_by
        self._sent = 0
        (directory / "far").mkdir()
        self._far = BrokerProcess(directory / "far", **_at(FAR, directory))
        self._near = BridgedBroker(
            directory / "near",
            [
                bridge(
                    "b",
                    MQTT_PORT,
                    address=f"{ADDRESSES[FAR]}:{MQTT_PORT}",
                    keep_alive_s=keep_alive_s,
                    local_subscriptions=[carries("up/#")],
                    remote_subscriptions=[carries("down/#")],
                )
            ],
            bridges_stall_timeout_s=STALL_TIMEOUT_S,
            **_at(NEAR, directory),
        )
        for end, broker in ((FAR, self._far), (NEAR, self._near)):
            broker.program = [*joined_by.prefix(end), *broker.program]
            broker.launch()
            stack.callback(broker.kill)
            broker.wait_administered()
        clients = {end: Device(1, end, **_over(end, directory)).connect() for end in (NEAR, FAR)}
        for each in clients.values():
            stack.enter_context(closing(each))
        self.publishers = {"up": clients[NEAR], "down": clients[FAR]}
        self.collectors = {"up": clients[FAR], "down": clients[NEAR]}
        for direction, collector in self.collectors.items():
            collector.subscribe(f"{direction}/#", 2)

    def bridge(self) -> dict[str, Any]:
        """The bridge as it is shown."""
        return HttpClient.on(self._near.data_directory).get("/v1/bridges/b")

    def publish_until(self, is_so: Callable[[dict[str, Any]], bool], within_s: float) -> float:
        """Publishes at both ends, one burst after the other, until the bridge is so; returns after
        how many seconds that was."""
        began = system.monotonic_s()
        while not is_so(self.bridge()):
            assert system.monotonic_s() - began < within_s, self.bridge()
            self.publish()
        return system.monotonic_s() - began

    def publish(self) -> None:
        """A burst at each QoS in both directions, which the broker there acknowledges."""
        numbers = [b"%d" % number for number in range(self._sent, self._sent + BURST_MESSAGES)]
        self._sent += BURST_MESSAGES
        for direction, publisher in self.publishers.items():
            for qos in QOS:
                publisher.publish_all(f"{direction}/{qos}", numbers, qos)

    def assert_all_is_there(self) -> None:
        """Everything came, at QoS 2 once, and in its order as far as it came for the first time."""
        for direction, collector in self.collectors.items():
            came: dict[str, list[int]] = {f"{direction}/{qos}": [] for qos in QOS}
            while any(len(set(numbers)) < self._sent for numbers in came.values()):
                message = collector.receive()
                came[message.topic].append(int(message.payload))
            for message in collector.all_received():
                came[message.topic].append(int(message.payload))
            for numbers in came.values():
                assert list(dict.fromkeys(numbers)) == list(range(self._sent))
            assert Counter(came[f"{direction}/2"]).most_common(1)[0][1] == 1


def _over(end: str, directory: Path) -> dict[str, Any]:
    # Paho wants a port, and does not use it.
    return {"host": str(directory / f"{end}.sock"), "transport": "unix"}


def _at(end: str, directory: Path) -> dict[str, Any]:
    return {
        "host": ADDRESSES[end],
        "mqtt_port": MQTT_PORT,
        "mqtt_unix_socket": directory / f"{end}.sock",
        "anonymous": "true",
        # What waits for the bridge there is the queue of a device, and would overflow.
        "queue_messages_maximum": 0,
    }


@pytest.fixture
def join(tmp_path: Path) -> Iterator[Callable[[int], Joined]]:
    """Joins two brokers by a bridge with this keep-alive."""
    with cable() as laid, ExitStack() as stack:
        yield lambda keep_alive_s: Joined(laid, tmp_path, stack, keep_alive_s)


@pytest.mark.slow
@pytest.mark.parametrize(("keep_alive_s", "failure"), [(2, "silent"), (60, "stalled")])
@pytest.mark.accepts("S1.43", "S1.57", "S1.70")
def test_a_cable_that_is_pulled_out_under_load_loses_and_doubles_nothing(
    join: Callable[[int], Joined], keep_alive_s: int, failure: str
) -> None:
    joined = join(keep_alive_s)
    joined.publish_until(lambda seen: seen["acknowledged"] > BURST_MESSAGES, BACK_WITHIN_S)
    joined.cable.pull()
    joined.publish_until(lambda seen: seen["state"] != "connected", NOTICED_WITHIN_S)
    noticed = joined.bridge()
    assert noticed["failures"] == {failure: 1}
    assert noticed["last_error"]
    joined.publish_until(lambda seen: seen["failures"].get("unreachable", 0) > 0, BACK_WITHIN_S)
    joined.cable.plug()
    joined.publish_until(lambda seen: seen["state"] == "connected", BACK_WITHIN_S)
    assert joined.bridge()["sessions_forgotten"] == 0
    joined.assert_all_is_there()
