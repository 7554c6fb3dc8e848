"""What becomes of each thing of a message that goes from one protocol to the other: the rows of
docs/pulsar/crossing.md, with the official client on one side and packets on the other."""

import json
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.interop import installation
from tests.interop.driver import Driver
from tests.interop.installation import ROOT
from tests.interop.pulsar.conftest import MakeClient
from tests.interop.pulsar.official import Official
from tests.interop.wire import Wire
from tests.process import BrokerProcess


@pytest.fixture(scope="module")
def java_library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """The official client for Java, in a process for all tests of the module."""
    log_file = tmp_path_factory.mktemp("java") / "client.log"
    driver = Driver(installation.pulsar_java(), ROOT, log_file)
    yield driver
    driver.stop()


@pytest.fixture
def java(java_library: Driver, shared_broker: BrokerProcess) -> Iterator[Official]:
    """A client for Java, which tells a null value and a schema version, where others do not."""
    made = Official(java_library).connect(shared_broker.ports["pulsar"])
    yield made
    made.disconnect()


@pytest.fixture
def device(shared_broker: BrokerProcess, prefix: str) -> Iterator[Wire]:
    """A device that speaks MQTT 5."""
    with Wire(shared_broker.port) as wire:
        wire.connect(prefix, session_expiry_interval=0)
        yield wire


def publish(device: Wire, topic: str, payload: bytes = b"x", **fields: Any) -> None:
    """Publishes at QoS 1 and waits for the answer."""
    whole = {**device.publish_fields(topic, payload, 1, 1, dup=False), **fields}
    device.send("publish", **whole)
    device.receive("puback")


def stored_rows(broker: BrokerProcess, topic_name: str) -> list[dict[str, Any]]:
    """The messages of a topic as `holdfast log` shows them."""
    options = ("--json", "--topic", topic_name, "--data-dir", str(broker.data_directory))
    command = [*broker.program, "log", "records", *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return [json.loads(line) for line in ended.stdout.splitlines()]


def came(device: Wire) -> dict[str, Any]:
    """What a subscriber at QoS 1 gets next."""
    packet = device.receive("publish")
    device.acknowledge("puback", packet["packet_identifier"])
    return packet


def test_properties_key_and_event_time_come_to_devices_as_user_properties(
    client: MakeClient, device: Wire, prefix: str
) -> None:
    device.subscribe(f"{prefix}/a", 1)
    producer = client().producer(f"{prefix}%2Fa")
    producer.send(
        b"x",
        properties={"b": "2", "a": "1"},
        partition_key="k",
        ordering_key="order",
        event_timestamp=1_700_000_000_123,
    )
    packet = came(device)
    pairs = [tuple(pair) for pair in packet["properties"]["user_property"]]
    assert sorted(pairs) == [
        ("a", "1"),
        ("b", "2"),
        ("pulsar-event-time", "1700000000123"),
        ("pulsar-key", "k"),
    ]
    assert (packet["qos"], packet["retain"], packet["topic_name"]) == (1, False, f"{prefix}/a")
    assert packet["properties"].keys() == {"user_property"}


def test_what_mqtt_has_no_room_for_is_left_out_and_the_message_comes(
    client: MakeClient, device: Wire, prefix: str
) -> None:
    device.subscribe(f"{prefix}/a", 1)
    pulsar = client()
    consumer = pulsar.consumer(f"{prefix}%2Fa", "mine")
    given = {"a\0b": "1", "zero": "\0", "long": "x" * 65_536, "most": "x" * 65_535}
    pulsar.producer(f"{prefix}%2Fa").send(b"x", properties=given, partition_key="k" * 65_536)
    packet = came(device)
    assert packet["payload"] == b"x"
    assert packet["properties"]["user_property"] == [("most", "x" * 65_535)]
    assert consumer.receive().properties == given


def test_what_has_a_name_in_mqtt_is_told_by_properties(
    client: MakeClient, device: Wire, prefix: str
) -> None:
    device.subscribe(f"{prefix}/a", 1)
    client().producer(f"{prefix}%2Fa").send(
        b"x",
        properties={
            "mqtt-content-type": "text/plain",
            "mqtt-response-topic": "answers",
            "mqtt-correlation-data": b64encode(b"\x00\xff").decode(),
            "mqtt-payload-format-indicator": "1",
        },
    )
    told = came(device)["properties"]
    assert told["content_type"] == "text/plain"
    assert told["response_topic"] == "answers"
    assert told["correlation_data"] == b"\x00\xff"
    assert told["payload_format_indicator"] == 1
    assert "user_property" not in told


def test_what_devices_say_of_a_message_comes_to_services_as_properties(
    client: MakeClient, device: Wire, prefix: str
) -> None:
    consumer = client().consumer(f"{prefix}%2Fa", "mine")
    properties = {
        "user_property": [("a", "1"), ("b", "2")],
        "content_type": "text/plain",
        "response_topic": "answers",
        "correlation_data": b"\x00\xff",
        "payload_format_indicator": 1,
    }
    publish(device, f"{prefix}/a", b"\x00\xffx", retain=True, properties=properties)
    taken = consumer.receive()
    assert taken.payload == b"\x00\xffx"
    assert taken.properties == {
        "a": "1",
        "b": "2",
        "mqtt-content-type": "text/plain",
        "mqtt-response-topic": "answers",
        "mqtt-correlation-data": b64encode(b"\x00\xff").decode(),
        "mqtt-payload-format-indicator": "1",
        "mqtt-retain": "true",
    }
    assert (taken.key, taken.ordering_key, taken.event_time_ms) == ("", "", 0)
    assert taken.publish_time_ms > 1_700_000_000_000
    assert taken.producer
    assert taken.topic == f"persistent://public/default/{prefix}%2Fa"


def test_an_empty_payload_is_a_value_and_an_empty_one(
    client: MakeClient, java: Official, device: Wire, prefix: str
) -> None:
    consumer = client().consumer(f"{prefix}%2Fa", "python")
    telling = java.consumer(f"{prefix}%2Fa", "java")
    publish(device, f"{prefix}/a", b"")
    assert consumer.take(1) == [b""]
    taken = telling.receive()
    assert (taken.payload, taken.is_null) == (b"", False)


@pytest.mark.parametrize("batching", [False, True], ids=["alone", "batch"])
def test_a_message_without_a_value_comes_to_devices_as_an_empty_payload_that_says_so(
    java: Official, device: Wire, prefix: str, batching: bool
) -> None:
    device.subscribe(f"{prefix}/a", 1)
    consumer = java.consumer(f"{prefix}%2Fa", "mine")
    producer = java.producer(f"{prefix}%2Fa", batching_enabled=batching)
    producer.send(b"", is_null=True)
    producer.send(b"")
    told = [came(device) for _ in range(2)]
    assert [packet["payload"] for packet in told] == [b"", b""]
    pairs = [packet["properties"].get("user_property", []) for packet in told]
    assert pairs == [[("pulsar-null-value", "true")], []]
    assert [message.is_null for message in consumer.receive_many(2)] == [True, False]


def test_a_schema_version_is_for_services_alone(
    java: Official, device: Wire, shared_broker: BrokerProcess, prefix: str
) -> None:
    device.subscribe(f"{prefix}/a", 1)
    consumer = java.consumer(f"{prefix}%2Fa", "mine")
    java.producer(f"{prefix}%2Fa").send(b"service", schema_version=3)
    from_service = came(device)
    with Wire(shared_broker.port) as other:
        other.connect(f"{prefix}-other")
        publish(other, f"{prefix}/a", b"device")
    from_device = came(device)
    assert (from_service["payload"], from_device["payload"]) == (b"service", b"device")
    assert from_service["properties"] == from_device["properties"]
    taken = consumer.receive_many(2)
    found = [(message.payload, message.schema_version) for message in taken]
    assert found == [(b"service", 3), (b"device", None)]


def test_a_producer_retains_nothing(client: MakeClient, device: Wire, prefix: str) -> None:
    producer = client().producer(f"{prefix}%2Fa")
    producer.send(b"before", properties={"mqtt-retain": "true"})
    device.subscribe(f"{prefix}/a", 1)
    producer.send(b"after")
    packet = came(device)
    assert (packet["payload"], packet["retain"]) == (b"after", False)


def test_message_ids_and_times_are_those_of_the_log(
    client: MakeClient, device: Wire, shared_broker: BrokerProcess, prefix: str
) -> None:
    pulsar = client()
    consumer = pulsar.consumer(f"{prefix}%2Fa", "mine")
    publish(device, f"{prefix}/a", b"0")
    sent = pulsar.producer(f"{prefix}%2Fa").send(b"1")
    publish(device, f"{prefix}/a", b"2")
    taken = consumer.receive_many(3)
    rows = stored_rows(shared_broker, f"{prefix}/a")
    assert [row["entry"] for row in rows] == [0, 1, 2]
    assert [message.message_id[1] for message in taken] == [0, 1, 2]
    assert taken[1].message_id == sent
    assert len({message.message_id[0] for message in taken}) == 1
    for index in (0, 2):
        appended = datetime.fromisoformat(rows[index]["timestamp"])
        assert taken[index].publish_time_ms == int(appended.timestamp() * 1_000)


def test_what_has_expired_is_not_given_to_services(
    client: MakeClient, device: Wire, prefix: str
) -> None:
    pulsar = client()
    pulsar.consumer(f"{prefix}%2Fa", "mine").close()
    publish(device, f"{prefix}/a", b"old", properties={"message_expiry_interval": 1})
    # The clock of the broker is a real one here.
    other = pulsar.consumer(f"{prefix}%2Fb", "other")
    other.receives_nothing()
    publish(device, f"{prefix}/a", b"new", properties={"message_expiry_interval": 1_000})
    assert pulsar.consumer(f"{prefix}%2Fa", "mine").take(1) == [b"new"]


def test_a_message_that_services_pass_on_has_what_devices_said(
    client: MakeClient, device: Wire, prefix: str
) -> None:
    pulsar = client()
    consumer = pulsar.consumer(f"{prefix}%2Fin", "mine")
    device.subscribe(f"{prefix}/out", 1)
    said = {"user_property": [("a", "1")], "content_type": "text/plain"}
    publish(device, f"{prefix}/in", b"x", properties=said)
    taken = consumer.receive()
    pulsar.producer(f"{prefix}%2Fout").send(taken.payload, properties=taken.properties)
    told = came(device)["properties"]
    assert told["content_type"] == "text/plain"
    assert [tuple(pair) for pair in told["user_property"]] == [("a", "1")]
