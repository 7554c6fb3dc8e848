"""What a broker takes for messages that are far longer where they are given out than where they
came from or lie: it is bounded, and none is missing."""

import struct
from contextlib import ExitStack
from pathlib import Path

from tests.interop.pulsar.conftest import MakeClient
from tests.interop.seen import Seen
from tests.interop.wire import Wire

COUNT = 100
SESSIONS = 10
VALUE = bytes(500_000)
"""Compressed it is some hundred bytes."""
TOPIC = "t" * 60_000
GROWN_MIB_MAXIMUM = 150


def peak_mib(broker: Seen) -> float:
    """The most memory that it has had."""
    status = Path(f"/proc/{broker.process_identifier}/status").read_text().splitlines()
    (line,) = (line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def subscribed(broker: Seen, stack: ExitStack, name: str, topic_filter: str) -> Wire:
    """A session that is attached, and reads nothing unless it is told to."""
    wire = stack.enter_context(Wire(broker.port))
    wire.connect(name, clean_start=True)
    assert wire.subscribe(topic_filter) == [1]
    return wire


def test_compressed_entries_are_opened_as_fast_as_they_are_taken(
    own_broker: Seen, own_client: MakeClient
) -> None:
    names = [f"slow-{number}" for number in range(SESSIONS)]
    with ExitStack() as stack:
        for name in names:
            subscribed(own_broker, stack, name, "reads")
    before = peak_mib(own_broker)
    own_client().producer("reads", compression="ZSTD").send_many([VALUE] * COUNT)
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(own_broker.port)) for _ in names]
        for wire, name in zip(wires, names, strict=True):
            assert wire.connect(name)["session_present"]
        # The last one takes what waits; ten times all of it would be 480 MiB.
        for _ in range(COUNT):
            assert wires[-1].receive("publish")["payload"] == VALUE
        assert peak_mib(own_broker) - before < GROWN_MIB_MAXIMUM


def aliased(count: int, qos: int) -> bytes:
    """PUBLISH packets of one byte, whose topic the first alias stands for."""
    identified = [struct.pack(">H", number + 1) if qos else b"" for number in range(count)]
    bodies = [b"\x00\x00" + identifier + b"\x03\x23\x00\x01x" for identifier in identified]
    return b"".join(bytes([0x30 | qos << 1, len(body)]) + body for body in bodies)


def test_an_alias_of_a_long_topic_costs_what_the_topic_would(own_broker: Seen) -> None:
    before = peak_mib(own_broker)
    with ExitStack() as stack:
        wires = [subscribed(own_broker, stack, f"slow-{number}", "#") for number in range(SESSIONS)]
        device = stack.enter_context(Wire(own_broker.port))
        device.connect("device", clean_start=True)
        named = Wire.publish_fields(TOPIC, b"x", 0, 0, False)
        device.send("publish", **named, properties={"topic_alias": 1})
        # At QoS 0 nothing holds a device up: this is 1.2 GB in a fifth of a megabyte.
        device.send_bytes(aliased(20_000, 0))
        for _ in range(5):
            device.send_bytes(aliased(1_000, 1))
            for _ in range(1_000):
                device.receive("puback")
        taken = 0
        while taken < 5_000:
            packet = wires[0].receive("publish")
            assert packet["topic_name"] == TOPIC
            taken += packet["qos"]
        assert peak_mib(own_broker) - before < GROWN_MIB_MAXIMUM
