"""What survives the end of the broker, clean or not: with the Paho client and with bare packets."""

import threading

import pytest

from tests.interop.conftest import MakeDevice
from tests.interop.device import payloads
from tests.interop.wire import Wire
from tests.process import BrokerProcess


@pytest.fixture(params=["stop", "kill"])
def restart(request: pytest.FixtureRequest, own_broker: BrokerProcess) -> "Restart":
    """Ends the broker in one of both ways and starts it again."""
    return Restart(own_broker, request.param)


class Restart:
    """How this test's broker ends."""

    def __init__(self, broker: BrokerProcess, way: str) -> None:
        self._broker = broker
        self._way = way

    def __call__(self) -> None:
        if self._way == "stop":
            assert self._broker.stop() == 0, self._broker.log()
        else:
            self._broker.kill()
        self._broker.start()


@pytest.mark.accepts("S2.1", "S2.6", "S2.7", "S2.8", "S0.59", "S0.58")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_session_survives_with_subscriptions_and_queued_messages(
    own_device: MakeDevice, restart: Restart, version: int, qos: int
) -> None:
    options = {"version": version} | ({"SessionExpiryInterval": 600} if version == 5 else {})
    subscriber = own_device("s", **options)
    subscriber.subscribe("a/+", qos)
    subscriber.subscribe("other", qos)
    subscriber.unsubscribe("other")
    subscriber.disconnect()
    publisher = own_device("p", version=version, clean_start=True)
    sent = [b"%d" % number for number in range(200)]
    publisher.publish_all("a/b", sent[:100], qos)
    publisher.publish("other", b"not wanted", qos)
    restart()
    publisher = own_device("p", version=version, clean_start=True)
    publisher.publish_all("a/b", sent[100:], qos)
    subscriber = own_device("s", **options)
    assert subscriber.session_present
    assert payloads(subscriber.all_received()) == sent


@pytest.mark.accepts("S2.9", "S2.13", "S0.49", "S0.52", "S0.54")
def test_messages_in_flight_to_a_subscriber_come_again_unchanged(
    own_broker: BrokerProcess, own_device: MakeDevice, restart: Restart, version: int
) -> None:
    with Wire(own_broker.port, version) as wire:
        wire.connect("s")
        wire.subscribe("a", 2)
        publisher = own_device("p", clean_start=True)
        publisher.publish_all("a", [b"1", b"2", b"3", b"4"], 2)
        first = [wire.receive("publish") for _ in range(4)]
        identifiers = [fields["packet_identifier"] for fields in first]
        wire.acknowledge("pubrec", identifiers[0])
        wire.receive("pubrel")
        wire.acknowledge("pubcomp", identifiers[0])
        wire.acknowledge("pubrec", identifiers[1])
        wire.receive("pubrel")  # PUBREL leaves when PUBREC is durable.
        restart()
    with Wire(own_broker.port, version) as wire:
        assert wire.connect("s")["session_present"]
        packets = [wire.next_packet() for _ in range(3)]
        released = [p[1]["packet_identifier"] for p in packets if p and p[0] == "pubrel"]
        repeated = [p[1] for p in packets if p and p[0] == "publish"]
        if len(repeated) == 2:
            assert released == [identifiers[1]]
        assert [fields["payload"] for fields in repeated] == [b"3", b"4"]
        assert [fields["packet_identifier"] for fields in repeated] == identifiers[2:]
        assert all(fields["dup"] for fields in repeated)
        wire.acknowledge("pubcomp", identifiers[1])
        for identifier in identifiers[2:]:
            wire.acknowledge("pubrec", identifier)
            assert wire.receive("pubrel")["packet_identifier"] == identifier
            wire.acknowledge("pubcomp", identifier)
        wire.ping()


@pytest.mark.accepts("S2.10", "S0.3")
def test_a_qos_2_message_from_a_publisher_is_taken_once(
    own_broker: BrokerProcess, own_device: MakeDevice, restart: Restart, version: int
) -> None:
    subscriber = own_device("s", SessionExpiryInterval=600)
    subscriber.subscribe("a", 2)
    subscriber.disconnect()
    with Wire(own_broker.port, version) as wire:
        wire.connect("p")
        wire.publish("a", b"once", qos=2, identifier=5)
        wire.receive("pubrec")
        restart()
    with Wire(own_broker.port, version) as wire:
        assert wire.connect("p")["session_present"]
        wire.publish("a", b"once", qos=2, identifier=5, dup=True)
        wire.receive("pubrec")
        wire.acknowledge("pubrel", 5)
        wire.receive("pubcomp")
        restart()
    with Wire(own_broker.port, version) as wire:
        assert wire.connect("p")["session_present"]
        wire.acknowledge("pubrel", 5)
        wire.receive("pubcomp")
        wire.publish("a", b"another", qos=2, identifier=5)
        wire.receive("pubrec")
    subscriber = own_device("s", SessionExpiryInterval=600)
    assert payloads(subscriber.all_received()) == [b"once", b"another"]


def test_retained_messages_survive(own_device: MakeDevice, restart: Restart) -> None:
    publisher = own_device("p", clean_start=True)
    publisher.publish("a/1", b"old", retain=True)
    publisher.publish("a/1", b"new", retain=True, ContentType="text/plain")
    publisher.publish("a/2", b"removed", retain=True)
    publisher.publish("a/2", b"", retain=True)
    restart()
    subscriber = own_device("s", clean_start=True)
    subscriber.subscribe("a/#", 1)
    (message,) = subscriber.all_received()
    assert (message.topic, message.payload, message.retain) == ("a/1", b"new", True)
    assert message.properties.ContentType == "text/plain"


@pytest.mark.accepts("S2.11")
@pytest.mark.slow
def test_a_will_survives_and_comes_after_its_delay(
    own_broker: BrokerProcess, own_device: MakeDevice
) -> None:
    watcher = own_device("w", SessionExpiryInterval=600)
    watcher.subscribe("will", 1)
    watcher.disconnect()
    will = {"topic": "will", "payload": b"gone", "WillDelayInterval": 1}
    own_device("d", will=will, SessionExpiryInterval=600).cut()
    own_broker.kill()
    own_broker.start()
    watcher = own_device("w", SessionExpiryInterval=600)
    assert watcher.receive().payload == b"gone"


@pytest.mark.accepts("S2.12", "S2.45")
@pytest.mark.slow
def test_expiry_counts_on_while_the_broker_is_away(
    own_broker: BrokerProcess, own_device: MakeDevice
) -> None:
    for name, interval_s in (("short", 1), ("long", 600)):
        client = own_device(name, SessionExpiryInterval=interval_s)
        client.subscribe("a", 1)
        client.disconnect()
    own_broker.kill()
    threading.Event().wait(2.1)  # Expiry counts in whole seconds of real time.
    own_broker.start()
    assert not own_device("short", SessionExpiryInterval=600).session_present
    assert own_device("long", SessionExpiryInterval=600).session_present


def test_a_clean_session_does_not_survive(
    own_device: MakeDevice, restart: Restart, version: int
) -> None:
    subscriber = own_device("s", version=version, clean_start=True)
    subscriber.subscribe("a", 1)
    restart()
    options = {"SessionExpiryInterval": 60} if version == 5 else {}
    subscriber = own_device("s", version=version, **options)
    assert not subscriber.session_present


def test_wills_of_sessions_that_end_with_their_connection_survive(
    own_device: MakeDevice, restart: Restart, version: int
) -> None:
    options = {"version": version} | ({"SessionExpiryInterval": 600} if version == 5 else {})
    watcher = own_device("watcher", **options)
    watcher.subscribe("will", 1)
    watcher.disconnect()
    for name in ("connected", "said"):
        will = {"topic": "will", "payload": name.encode()}
        last = own_device(name, version=version, clean_start=True, will=will)
    last.disconnect()
    # What this is told is durable, and so is what came before.
    own_device("p", version=version, clean_start=True).publish("else", b"", 1)
    restart()
    watcher = own_device("watcher", **options)
    assert watcher.receive().payload == b"connected"
    assert not watcher.all_received()


def test_all_65_535_packet_identifiers_are_used_and_used_again(
    own_broker: BrokerProcess, own_device: MakeDevice
) -> None:
    every = range(1, 65_536)
    with Wire(own_broker.port) as wire, Wire(own_broker.port) as publisher:
        wire.connect("s", receive_maximum=65_535)
        wire.subscribe("a", 1)
        publisher.connect("p", clean_start=True)
        for start in range(0, len(every), 1_000):
            some = every[start : start + 1_000]
            fields = (publisher.publish_fields("a", b"x", 1, number, False) for number in some)
            publisher.send_bytes(b"".join(publisher.encode("publish", **each) for each in fields))
            for number in some:
                assert publisher.receive("puback")["packet_identifier"] == number
        first = [wire.receive("publish")["packet_identifier"] for _ in every]
    assert first == list(every)
    with Wire(own_broker.port) as wire:
        assert wire.connect("s", receive_maximum=65_535)["session_present"]
        again = [wire.receive("publish") for _ in every]
        assert [fields["packet_identifier"] for fields in again] == first
        assert all(fields["dup"] for fields in again)
        own_device("q", clean_start=True).publish("a", b"new", 1)
        wire.acknowledge("puback", 7)
        new = wire.receive("publish")
        assert (new["packet_identifier"], new["dup"], new["payload"]) == (7, False, b"new")
