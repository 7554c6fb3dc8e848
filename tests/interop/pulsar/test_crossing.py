"""What becomes of each thing of a message that goes from one protocol to the other: the rows of
docs/pulsar/crossing.md, with the official client on one side and packets on the other."""

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.pulsar.conftest import MakeClient
from tests.interop.wire import Wire
from tests.process import BrokerProcess


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
    assert (taken.key, taken.event_time_ms) == ("", 0)
    assert taken.publish_time_ms > 1_700_000_000_000
    assert taken.producer
    assert taken.topic == f"persistent://public/default/{prefix}%2Fa"


def test_an_empty_payload_is_an_empty_payload(
    client: MakeClient, device: Wire, prefix: str
) -> None:
    consumer = client().consumer(f"{prefix}%2Fa", "mine")
    publish(device, f"{prefix}/a", b"")
    assert consumer.take(1) == [b""]


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
