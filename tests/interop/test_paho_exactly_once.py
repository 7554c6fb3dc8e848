"""QoS 2 with Paho while the broker is killed again and again: what is stored twice, and whose fault
that is.

Paho publishes a message again that it had released, when it has to try more than once to connect
again: the first try turns "waits for PUBCOMP" into "PUBREL must be sent again", the second try
does not know that state and turns it into "must be published", as if it had never been sent (DUP
is 0). To the broker that is another message under a packet identifier which was released
[MQTT-4.3.3-12], so it has to store it. Where every try succeeds, nothing is stored twice.
"""

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTMessageInfo, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes

from holdfast.core.layout import LOG_DIRECTORY
from holdfast.kernel import Packet, decode_packets, encode_packet
from holdfast.reading.criteria import Criteria
from holdfast.reading.directory import LogDirectory
from holdfast.reading.log import Question
from tests.interop.device import WITHIN_S, properties_of
from tests.interop.relay import Passed, Relay
from tests.process import HOST, BrokerProcess

TOPIC = "load/a"
IN_FLIGHT_MAXIMUM = 200
UNANSWERED_MAXIMUM = 400
"""More than may be in flight, so that there are always some that Paho has not sent yet."""

KILLS = 3
LIFE_BYTES = (2_000, 40_000)
"""How many bytes the broker answers between two kills, at least and at most."""

AGAIN_AFTER_S = 0.05


@contextmanager
def paho(port: int, version: int) -> Iterator[Client]:
    """A connected client whose session is kept, and which connects again by itself."""
    if version == 5:
        client = Client(CallbackAPIVersion.VERSION2, client_id="paho", protocol=MQTTv5)
        interval = properties_of(PacketTypes.CONNECT, {"SessionExpiryInterval": 600})
        options: dict[str, Any] = {"clean_start": False, "properties": interval}
    else:
        client = Client(
            CallbackAPIVersion.VERSION2, client_id="paho", protocol=MQTTv311, clean_session=False
        )
        options = {}
    client.max_inflight_messages_set(IN_FLIGHT_MAXIMUM)
    client.reconnect_delay_set(AGAIN_AFTER_S, AGAIN_AFTER_S)
    client.connect(HOST, port, **options)
    client.loop_start()
    yield client
    client.disconnect()
    client.loop_stop()


class Publishing:
    """Publishes numbers at QoS 2 on a thread of its own."""

    def __init__(self, client: Client) -> None:
        self.published: list[MQTTMessageInfo] = []
        self._client = client
        self._room = threading.Semaphore(UNANSWERED_MAXIMUM)
        self._ending = threading.Event()
        client.on_publish = lambda *_: self._room.release()
        self._thread = threading.Thread(target=self._publish)
        self._thread.start()

    def _publish(self) -> None:
        while not self._ending.is_set():
            if self._room.acquire(timeout=AGAIN_AFTER_S):
                payload = b"%d" % len(self.published)
                self.published.append(self._client.publish(TOPIC, payload, 2))

    def end(self) -> None:
        """Nothing new; waits until the broker has answered everything."""
        self._ending.set()
        self._thread.join()
        # Paho's own waiting fails for what was published while there was no connection, although
        # that goes out on the next one.
        for _ in range(UNANSWERED_MAXIMUM):
            assert self._room.acquire(timeout=WITHIN_S)


def kill_again_and_again(broker: BrokerProcess, relay: Relay, random: Random) -> None:
    """Each time when so many bytes have been answered."""

    def answered() -> int:
        return sum(len(passed.to_client) for passed in relay.connections)

    for _ in range(KILLS):
        until = answered() + random.randint(*LIFE_BYTES)
        with relay.changed:
            assert relay.changed.wait_for(lambda until=until: answered() >= until, WITHIN_S)
        broker.kill()
        broker.start()


def stored(broker: BrokerProcess) -> Counter[int]:
    """How often each number is in the log."""
    log = LogDirectory(str(broker.data_directory / LOG_DIRECTORY))
    extent = log.extent()
    at, found = extent.begin, Counter[int]()
    while at < extent.end:
        question = Question(Criteria(filters=(TOPIC,)), at, extent.end, ("value",))
        chunk = log.read(question)
        found.update(int(value) for value in chunk.batch.column("value").to_pylist())
        at = chunk.next_offset
    return found


def published_after_release(relay: Relay, version: int) -> Counter[int]:
    """How often Paho published a number again for which it had sent PUBREL."""
    released: set[int] = set()
    numbers: dict[int, int] = {}
    again = Counter[int]()
    for passed in relay.connections:
        for packet in packets_to_broker(passed, version):
            identifier = packet.fields.get("packet_identifier", 0)
            if packet.kind == "pubrel":
                released.add(numbers[identifier])
            elif packet.kind == "publish":
                number = int(packet.fields["payload"])
                again[number] += number in released
                numbers[identifier] = number
    return +again


def packets_to_broker(passed: Passed, version: int) -> list[Packet]:
    packets, _ = decode_packets(bytes(passed.to_broker), protocol_version=version, role="server")
    return packets


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_stored_twice_while_the_broker_is_killed(
    own_broker: BrokerProcess, version: int, seed: int
) -> None:
    with Relay(own_broker.port, patient=True) as relay, paho(relay.port, version) as client:
        publishing = Publishing(client)
        kill_again_and_again(own_broker, relay, Random(seed))
        publishing.end()
    assert not published_after_release(relay, version)
    assert own_broker.stop() == 0, own_broker.log()
    assert stored(own_broker) == dict.fromkeys(range(len(publishing.published)), 1), f"seed {seed}"


@pytest.mark.slow
def test_only_what_the_client_releases_and_publishes_again_is_stored_twice(
    own_broker: BrokerProcess, version: int
) -> None:
    with Relay(own_broker.port) as relay, paho(relay.port, version) as client:
        publishing = Publishing(client)
        kill_again_and_again(own_broker, relay, Random(3))
        publishing.end()
    assert own_broker.stop() == 0, own_broker.log()
    found, again = stored(own_broker), published_after_release(relay, version)
    assert set(found) == set(range(len(publishing.published)))
    assert not {number for number in found if found[number] > 1 + again[number]}


def test_paho_publishes_again_what_it_released_when_it_fails_to_connect_again(
    version: int,
) -> None:
    with paho_at_a_broker_that_goes_away(version) as (client, listener):
        failed = threading.Semaphore(0)
        client.on_connect_fail = lambda *_: failed.release()
        first = Answering(listener, version, session_present=False)
        client.publish(TOPIC, b"7", 2)
        identifier = first.next_packet("publish")["packet_identifier"]
        first.send("pubrec", packet_identifier=identifier)
        assert first.next_packet("pubrel")["packet_identifier"] == identifier
        # It waits for PUBCOMP; now nobody is there at two tries.
        address = listener.getsockname()
        listener.close()
        first.close()
        for _ in range(2):
            assert failed.acquire(timeout=WITHIN_S)
        with socket.create_server(address) as later:
            second = Answering(later, version, session_present=True)
            repeated = second.next_packet("publish")
            assert (repeated["payload"], repeated["dup"]) == (b"7", False)
            assert repeated["packet_identifier"] == identifier
            second.close()


class Answering:
    """The broker's end of one connection, from bare packets."""

    def __init__(self, listener: socket.socket, version: int, *, session_present: bool) -> None:
        self._version = version
        listener.settimeout(WITHIN_S)
        self._socket, _ = listener.accept()
        self._socket.settimeout(WITHIN_S)
        self._undecoded = b""
        self._packets: list[Packet] = []
        self.next_packet("connect")
        self.send("connack", session_present=session_present)

    def send(self, kind: str, **fields: Any) -> None:
        fields = {"reason_code": 0, "properties": {}, **fields}
        self._socket.sendall(encode_packet(kind, fields, protocol_version=self._version))

    def next_packet(self, kind: str) -> dict[str, Any]:
        """The fields of the next packet, which must be of this kind."""
        while not self._packets:
            data = self._socket.recv(65_536)
            assert data, f"{kind} was expected, the client closed"
            self._packets, used = decode_packets(
                self._undecoded + data, protocol_version=self._version, role="server"
            )
            self._undecoded = (self._undecoded + data)[used:]
        packet = self._packets.pop(0)
        assert packet.kind == kind
        return dict(packet.fields)

    def close(self) -> None:
        self._socket.close()


@contextmanager
def paho_at_a_broker_that_goes_away(version: int) -> Iterator[tuple[Client, socket.socket]]:
    with (
        socket.create_server((HOST, 0)) as listener,
        paho(listener.getsockname()[1], version) as client,
    ):
        yield client, listener
