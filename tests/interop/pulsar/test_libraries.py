"""Pulsar clients that share no code with the official one for Python: each against a real broker.

Their own versions of what `test_producing.py`, `test_consuming.py` and `test_restart.py` hold to.
What one of them cannot do is in docs/pulsar/README.md.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.interop import installation
from tests.interop.driver import Driver
from tests.interop.installation import ROOT, Command
from tests.interop.pulsar import stored
from tests.interop.pulsar.conftest import MakeClient
from tests.interop.pulsar.official import Official, OfficialConsumer, Received
from tests.interop.users import Users
from tests.interop.wire import Wire
from tests.process import BrokerProcess

QUICKLY = {"negative_ack_redelivery_delay_ms": 100}


@dataclass(frozen=True, slots=True)
class Library:
    """One library, unchanged."""

    name: str
    driver: Callable[[], Command]
    """Installs it; returns how its driver is started."""
    compressions: tuple[str, ...]


LIBRARIES = (
    Library(
        "java",
        installation.pulsar_java,
        compressions=("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"),
    ),
)


@pytest.fixture(scope="module", params=LIBRARIES, ids=lambda library: library.name)
def chosen(request: pytest.FixtureRequest) -> Library:
    """One library after the other."""
    library: Library = request.param
    return library


@pytest.fixture(scope="module")
def library(chosen: Library, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """It, in a process for all tests of the module."""
    driver = Driver(chosen.driver(), ROOT, tmp_path_factory.mktemp("library") / "client.log")
    yield driver
    driver.stop()


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """The official client for Python, as the other end."""
    log_file = tmp_path_factory.mktemp("official") / "client.log"
    driver = Driver(installation.python("pulsar"), ROOT, log_file)
    yield driver
    driver.stop()


@pytest.fixture
def python(official: Driver, shared_broker: BrokerProcess) -> Iterator[Official]:
    """A client of the shared broker."""
    made = Official(official).connect(shared_broker.ports["pulsar"])
    yield made
    made.disconnect()


def numbers(first: int, end: int) -> list[bytes]:
    return [str(number).encode() for number in range(first, end)]


def payloads(messages: list[Received]) -> list[bytes]:
    return [message.payload for message in messages]


@pytest.mark.accepts("S4.74", "S4.75")
def test_what_is_sent_comes_alone_and_in_batches_with_each_compression(
    chosen: Library, client: MakeClient, prefix: str
) -> None:
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine", position="Earliest")
    for compression in chosen.compressions:
        alone = pulsar.producer(prefix, compression=compression)
        sent = [alone.send(payload) for payload in numbers(0, 3)]
        batches = pulsar.producer(prefix, compression=compression, batching_enabled=True)
        batches.send_many(numbers(3, 53))
        taken = consumer.receive_many(53)
        assert payloads(taken) == numbers(0, 53)
        assert [message.message_id for message in taken[:3]] == sent
        consumer.acknowledge_up_to(taken[-1])


@pytest.mark.accepts("S4.73")
def test_what_is_stored_is_compressed_only_where_the_producer_chose_it(
    chosen: Library, shared_broker: BrokerProcess, client: MakeClient, prefix: str
) -> None:
    pulsar = client()
    options = [{}, *({"compression": name} for name in chosen.compressions)]
    for number, chosen_options in enumerate(options):
        producer = pulsar.producer(prefix, **chosen_options)
        producer.send(b"again and " * 50)
        (metadata,) = stored.metadata_by(shared_broker, producer.name)
        # The first two are without: nothing chosen, and NONE.
        assert metadata.get(stored.COMPRESSION, 0) == max(number - 1, 0)


@pytest.mark.accepts("S4.6", "S4.11", "S4.16", "S4.21")
def test_keys_and_properties_come_as_they_were_sent(client: MakeClient, prefix: str) -> None:
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine")
    options = {"properties": {"b": "2", "a": "1"}, "partition_key": "key"}
    pulsar.producer(prefix).send(b"\x00\xffalone", **options)
    pulsar.producer(prefix, batching_enabled=True).send_many([b"\x00\xffbatch"], **options)
    taken = consumer.receive_many(2)
    assert payloads(taken) == [b"\x00\xffalone", b"\x00\xffbatch"]
    for message in taken:
        assert (message.properties, message.key) == ({"a": "1", "b": "2"}, "key")


@pytest.mark.accepts("S4.5", "S4.181")
def test_a_new_subscription_begins_where_it_was_asked_to(client: MakeClient, prefix: str) -> None:
    pulsar = client()
    producer = pulsar.producer(prefix)
    producer.send_many(numbers(0, 3))
    earliest = pulsar.consumer(prefix, "all", position="Earliest")
    latest = pulsar.consumer(prefix, "new", position="Latest")
    producer.send_many(numbers(3, 5))
    assert earliest.take(5) == numbers(0, 5)
    assert latest.take(2) == numbers(3, 5)


@pytest.mark.accepts("S4.24", "S4.25")
@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
def test_what_is_acknowledged_does_not_come_again_and_the_rest_does(
    client: MakeClient, prefix: str, kind: str
) -> None:
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine", kind=kind)
    pulsar.producer(prefix).send_many(numbers(0, 6))
    taken = consumer.receive_many(6)
    if kind == "Exclusive":
        consumer.acknowledge_up_to(taken[1])
    consumer.acknowledge(taken[0])
    consumer.acknowledge(taken[1])
    consumer.acknowledge(taken[4])
    consumer.close()
    again = pulsar.consumer(prefix, "mine", kind=kind)
    assert again.take(3) == [b"2", b"3", b"5"]
    again.receives_nothing()


@pytest.mark.accepts("S4.3", "S4.24", "S4.28", "S4.29")
def test_what_is_given_back_comes_again_and_tells_how_often(
    client: MakeClient, prefix: str
) -> None:
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine", kind="Shared", **QUICKLY)
    pulsar.producer(prefix).send_many(numbers(0, 3))
    first, given_back, last = consumer.receive_many(3)
    consumer.acknowledge(first)
    consumer.acknowledge(last)
    for times in (1, 2):
        consumer.give_back(given_back)
        given_back = consumer.receive()
        assert (given_back.payload, given_back.redeliveries) == (b"1", times)
    consumer.acknowledge(given_back)
    consumer.receives_nothing()


@pytest.mark.accepts("S4.110", "S4.129")
def test_each_message_comes_to_one_consumer_of_a_shared_subscription(
    client: MakeClient, prefix: str
) -> None:
    one = client().consumer(prefix, "shared", kind="Shared")
    other = client().consumer(prefix, "shared", kind="Shared")
    client().producer(prefix).send_many(numbers(0, 10))
    # In turn, one to each.
    assert sorted(one.take(5) + other.take(5)) == numbers(0, 10)


@pytest.mark.accepts("S4.114")
def test_an_exclusive_subscription_has_one_consumer(client: MakeClient, prefix: str) -> None:
    client().consumer(prefix, "mine")
    with pytest.raises(AssertionError, match=r"ConsumerBusy"):
        client().consumer(prefix, "mine")


@pytest.mark.parametrize("kind", ["Failover", "Key_Shared"])
def test_a_type_of_subscription_that_is_not_served_is_refused(
    client: MakeClient, prefix: str, kind: str
) -> None:
    with pytest.raises(AssertionError, match=r"Failover and Key_Shared are not served"):
        client().consumer(prefix, "mine", kind=kind)


def test_a_connected_client_goes_on_after_a_restart(
    own_broker: BrokerProcess, own_client: MakeClient
) -> None:
    pulsar = own_client()
    consumer = pulsar.consumer("topic", "mine")
    producer = pulsar.producer("topic")
    producer.send_many(numbers(0, 3))
    assert consumer.take(1) == [b"0"]
    assert own_broker.stop() == 0
    own_broker.start()
    producer.send(b"3")
    taken = taken_until(consumer, b"3")
    # What the client had not said to have when the broker stopped comes again.
    assert list(dict.fromkeys(taken))[-3:] == numbers(1, 4)


def taken_until(consumer: OfficialConsumer, last: bytes) -> list[bytes]:
    """What comes, acknowledged, up to this message."""
    taken = consumer.take(1)
    while taken[-1] != last:
        taken += consumer.take(1)
    return taken


def test_who_has_the_wrong_password_is_told_at_once(
    own_broker: BrokerProcess, own_client: MakeClient
) -> None:
    Users(own_broker).add("ann", "right", "--allow", "plant/#")
    pulsar = own_client(user=("ann", "right"))
    consumer = pulsar.consumer("plant%2Fa", "mine")
    pulsar.producer("plant%2Fa").send(b"x")
    assert consumer.take(1) == [b"x"]
    # The broker's own sentence: the client has not waited until it lost patience.
    with pytest.raises(AssertionError, match="The user name or the password is wrong"):
        own_client(user=("ann", "wrong")).producer("plant%2Fa")


@pytest.mark.parametrize("batching", [False, True], ids=["alone", "batch"])
def test_what_one_client_produces_another_consumes(
    chosen: Library, client: MakeClient, python: Official, prefix: str, batching: bool
) -> None:
    options = {"partition_key": "key", "properties": {"a": "1"}}
    for compression in chosen.compressions:
        topic = f"{prefix}-{compression}"
        consumer = python.consumer(topic, "mine")
        producer = client().producer(topic, compression=compression, batching_enabled=batching)
        producer.send_many(numbers(0, 20), **options)
        taken = consumer.receive_many(20)
        assert payloads(taken) == numbers(0, 20)
        assert {(message.key, message.properties["a"]) for message in taken} == {("key", "1")}


@pytest.mark.parametrize("batching", [False, True], ids=["alone", "batch"])
def test_what_another_client_produces_it_consumes(
    chosen: Library, client: MakeClient, python: Official, prefix: str, batching: bool
) -> None:
    options = {"partition_key": "key", "properties": {"a": "1"}}
    consumer = client().consumer(prefix, "mine")
    for compression in chosen.compressions:
        # The Python client spells one of them in its own way.
        named = compression.replace("ZLIB", "ZLib")
        producer = python.producer(prefix, compression=named, batching_enabled=batching)
        producer.send_many(numbers(0, 20), **options)
        taken = consumer.receive_many(20)
        assert payloads(taken) == numbers(0, 20)
        assert {(message.key, message.properties["a"]) for message in taken} == {("key", "1")}


def test_devices_and_it_reach_each_other(
    chosen: Library, client: MakeClient, shared_broker: BrokerProcess, prefix: str
) -> None:
    pulsar = client()
    consumer = pulsar.consumer(f"{prefix}%2Fup", "mine")
    with Wire(shared_broker.port) as wire:
        wire.connect(prefix)
        assert wire.subscribe(f"{prefix}/down", 0) == [0]
        for compression in chosen.compressions:
            options = {"compression": compression, "batching_enabled": True}
            pulsar.producer(f"{prefix}%2Fdown", **options).send_many(numbers(0, 20))
            received = [wire.receive("publish")["payload"] for _ in range(20)]
            assert received == numbers(0, 20)
        wire.publish(f"{prefix}/up", b"from a device", qos=1, identifier=1)
        assert consumer.take(1) == [b"from a device"]
