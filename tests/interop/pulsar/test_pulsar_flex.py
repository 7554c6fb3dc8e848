"""pulsar-flex, Pulsar's protocol in JavaScript from the socket up, against a real broker: what it
can. What it cannot is in docs/pulsar/README.md."""

from collections.abc import Iterator

import pytest

from tests.interop import installation
from tests.interop.driver import Driver
from tests.interop.installation import ROOT
from tests.interop.pulsar.conftest import MakeClient
from tests.interop.pulsar.official import Received
from tests.interop.wire import Wire
from tests.process import BrokerProcess


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """It, in a process for all tests of the module."""
    log_file = tmp_path_factory.mktemp("pulsar-flex") / "client.log"
    driver = Driver(installation.pulsar_flex(), ROOT, log_file)
    yield driver
    driver.stop()


def numbers(first: int, end: int) -> list[bytes]:
    return [str(number).encode() for number in range(first, end)]


def payloads(messages: list[Received]) -> list[bytes]:
    return [message.payload for message in messages]


@pytest.mark.accepts("S4.6", "S4.9", "S4.24", "S4.76", "S4.79")
@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
def test_what_is_sent_comes_alone_and_in_batches(
    client: MakeClient, prefix: str, kind: str
) -> None:
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine", kind=kind)
    producer = pulsar.producer(prefix)
    producer.send(b"\x00\xffalone", properties={"b": "2", "a": "1"})
    producer.send_many(numbers(0, 5), properties={"c": "3"})
    alone, *batch = consumer.receive_many(6)
    assert (alone.payload, alone.properties) == (b"\x00\xffalone", {"a": "1", "b": "2"})
    assert payloads(batch) == numbers(0, 5)
    assert {message.message_id for message in batch} == {batch[0].message_id}
    assert batch[0].properties == {"c": "3"}
    consumer.acknowledge(alone)
    consumer.acknowledge(batch[0])
    consumer.receives_nothing()


@pytest.mark.accepts("S4.3", "S4.28", "S4.29")
def test_what_is_given_back_comes_again_and_tells_how_often(
    client: MakeClient, prefix: str
) -> None:
    pulsar = client()
    consumer = pulsar.consumer(prefix, "mine", kind="Shared")
    producer = pulsar.producer(prefix)
    for payload in numbers(0, 2):
        producer.send(payload)
    given_back, other = consumer.receive_many(2)
    consumer.acknowledge(other)
    for times in (1, 2):
        consumer.give_back(given_back)
        given_back = consumer.receive()
        assert (given_back.payload, given_back.redeliveries) == (b"0", times)
    consumer.acknowledge(given_back)
    consumer.receives_nothing()


@pytest.mark.accepts("S4.113", "S4.115")
def test_who_may_not_consume_is_told_so(client: MakeClient, prefix: str) -> None:
    pulsar = client()
    pulsar.consumer(prefix, "mine")
    with pytest.raises(AssertionError, match="Subscribe"):
        client().consumer(prefix, "mine")
    with pytest.raises(AssertionError, match="Subscribe"):
        client().consumer(prefix, "other", kind="Failover")


def test_devices_and_it_reach_each_other(
    client: MakeClient, shared_broker: BrokerProcess, prefix: str
) -> None:
    pulsar = client()
    consumer = pulsar.consumer(f"{prefix}%2Fup", "mine")
    with Wire(shared_broker.port) as wire:
        wire.connect(prefix)
        assert wire.subscribe(f"{prefix}/down", 0) == [0]
        pulsar.producer(f"{prefix}%2Fdown").send_many(numbers(0, 20))
        assert [wire.receive("publish")["payload"] for _ in range(20)] == numbers(0, 20)
        wire.publish(f"{prefix}/up", b"from a device", qos=1, identifier=1)
        assert consumer.take(1) == [b"from a device"]
