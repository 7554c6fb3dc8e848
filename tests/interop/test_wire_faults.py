"""What no client library would send: each is answered as the specification says, and hurts nobody
else."""

import struct
from collections.abc import Iterator

import pytest

from tests.interop.conftest import MakeDevice
from tests.interop.device import Device, payloads
from tests.interop.wire import Wire
from tests.process import BrokerProcess

MALFORMED, PROTOCOL_ERROR = 0x81, 0x82
CONNECT_5 = b"\x10\x10\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x03abc"


@pytest.fixture
def bystander(device: MakeDevice, prefix: str) -> Iterator[Device]:
    """A client that must notice nothing."""
    other = device(f"{prefix}bystander", clean_start=True)
    other.subscribe(f"{prefix}/bystander", 1)
    yield other
    other.publish(f"{prefix}/bystander", b"unharmed")
    assert payloads(other.all_received()) == [b"unharmed"]


def _closed_without_an_answer(wire: Wire) -> bool:
    return wire.next_packet() is None


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="http"),
        pytest.param(bytes(range(256)) * 16, id="all bytes"),
        pytest.param(b"\x10\xff\xff\xff\xff\x01", id="remaining length of five bytes"),
        pytest.param(b"\x10\xff\xff\xff\x7f", id="CONNECT of 256 MiB"),
        pytest.param(b"\x00\x00", id="reserved packet type"),
        pytest.param(b"\x10\x0c\x00\x04MQTX\x05\x02\x00\x3c\x00\x00", id="other protocol name"),
        pytest.param(b"\x30\x03\x00\x01a", id="PUBLISH before CONNECT"),
        pytest.param(b"\xc0\x00", id="PINGREQ before CONNECT"),
        pytest.param(b"\x20\x03\x00\x00\x00", id="CONNACK from a client"),
        pytest.param(b"\x11" + CONNECT_5[1:], id="reserved flags"),
    ],
)
@pytest.mark.usefixtures("bystander")
def test_garbage_instead_of_connect_closes_the_connection(
    shared_broker: BrokerProcess, data: bytes
) -> None:
    with Wire(shared_broker.port) as wire:
        wire.send_bytes(data)
        packet = wire.next_packet()
        assert packet is None or (packet[0] == "connack" and packet[1]["reason_code"] >= 0x80)
        assert packet is None or _closed_without_an_answer(wire)


@pytest.mark.usefixtures("bystander")
def test_half_a_packet_waits_and_harms_nobody(shared_broker: BrokerProcess) -> None:
    with Wire(shared_broker.port) as wire:
        wire.send_bytes(CONNECT_5[:7])
        with Wire(shared_broker.port) as other:
            other.connect("beside half a packet", clean_start=True)
            other.ping()
        wire.send_bytes(CONNECT_5[7:])
        assert wire.receive("connack")["reason_code"] == 0


@pytest.mark.usefixtures("bystander")
def test_a_connection_that_ends_in_the_middle_publishes_nothing(
    shared_broker: BrokerProcess, prefix: str
) -> None:
    with Wire(shared_broker.port) as watcher:
        watcher.connect(f"{prefix}w", clean_start=True)
        watcher.subscribe(f"{prefix}/#")
        with Wire(shared_broker.port) as wire:
            wire.connect(f"{prefix}p", clean_start=True)
            whole = wire.encode(
                "publish", **wire.publish_fields(f"{prefix}/a", b"half", 1, 1, dup=False)
            )
            wire.send_bytes(whole[:-2])
        watcher.publish(f"{prefix}/b", b"whole", qos=1, identifier=9)
        found = {watcher.next_packet()[0] for _ in range(2)}  # type: ignore[index]
        assert found == {"puback", "publish"}
        watcher.ping()


@pytest.mark.usefixtures("bystander")
@pytest.mark.parametrize(
    ("data", "reason_codes"),
    [
        pytest.param(b"\x36\x05\x00\x01a\x00\x01", {MALFORMED}, id="QoS 3"),
        pytest.param(b"\x32\x06\x00\x01a\x00\x00\x00", {PROTOCOL_ERROR, MALFORMED}, id="id 0"),
        pytest.param(b"\x38\x04\x00\x01a\x00", {MALFORMED, PROTOCOL_ERROR}, id="DUP at QoS 0"),
        pytest.param(b"\x30\x04\x00\x01+\x00", {MALFORMED, PROTOCOL_ERROR, 0x90}, id="wildcard"),
        pytest.param(b"\x30\x03\x00\x00\x00", {PROTOCOL_ERROR}, id="no topic, no alias"),
        pytest.param(b"\x30\x05\x00\x02\xc3\x28\x00", {MALFORMED}, id="not UTF-8"),
        pytest.param(b"\x30\x05\x00\x02a\x00\x00", {MALFORMED}, id="a null in a topic"),
        pytest.param(b"\x30\x04\x00\x09a\x00", {MALFORMED}, id="a string longer than its packet"),
        pytest.param(b"\x80\x06\x00\x01\x00\x00\x01a", {MALFORMED}, id="SUBSCRIBE's flags"),
        pytest.param(b"\x82\x03\x00\x01\x00", {PROTOCOL_ERROR, MALFORMED}, id="no filter"),
        pytest.param(b"\x82\x07\x00\x01\x00\x00\x01a\x03", {MALFORMED, PROTOCOL_ERROR}, id="sub 3"),
        pytest.param(b"\x82\x07\x00\x01\x00\x00\x01a\xc1", {MALFORMED, PROTOCOL_ERROR}, id="bits"),
        pytest.param(CONNECT_5, {PROTOCOL_ERROR}, id="a second CONNECT"),
        pytest.param(b"\xd0\x00", {PROTOCOL_ERROR, MALFORMED}, id="PINGRESP from a client"),
        pytest.param(b"\xf0\x00", {PROTOCOL_ERROR}, id="AUTH that nobody asked for"),
        pytest.param(b"\x30\xff\xff\xff\xff\x01", {MALFORMED}, id="remaining length"),
        pytest.param(
            b"\x30\x09\x00\x01a\x05\x01\x00\x01\x00x", {PROTOCOL_ERROR, MALFORMED}, id="property"
        ),
    ],
)
def test_a_fault_after_connect_is_told_and_closes_the_connection(
    shared_broker: BrokerProcess, prefix: str, data: bytes, reason_codes: set[int]
) -> None:
    with Wire(shared_broker.port) as wire:
        wire.connect(prefix, clean_start=True)
        wire.send_bytes(data)
        assert wire.receive("disconnect")["reason_code"] in reason_codes
        assert _closed_without_an_answer(wire)


@pytest.mark.usefixtures("bystander")
def test_a_fault_of_a_311_client_just_closes(shared_broker: BrokerProcess, prefix: str) -> None:
    with Wire(shared_broker.port, version=4) as wire:
        wire.connect(prefix, clean_start=True)
        wire.send_bytes(b"\x36\x05\x00\x01a\x00\x01")
        assert _closed_without_an_answer(wire)


@pytest.mark.usefixtures("bystander")
def test_a_packet_above_the_limit_is_refused_before_it_is_read(
    shared_broker: BrokerProcess, prefix: str
) -> None:
    with Wire(shared_broker.port) as wire:
        properties = wire.connect(prefix, clean_start=True)["properties"]
        allowed = properties.get("maximum_packet_size", 268_435_455)
        assert allowed < 268_435_455, "the broker must have a limit, and say so"
        wire.send_bytes(b"\x30\xff\xff\xff\x7f")  # Only the length; the bytes never come.
        assert wire.receive("disconnect")["reason_code"] == 0x95


@pytest.mark.usefixtures("bystander")
def test_more_than_the_receive_maximum_is_refused(
    shared_broker: BrokerProcess, prefix: str
) -> None:
    with Wire(shared_broker.port) as wire:
        properties = wire.connect(prefix, clean_start=True)["properties"]
        allowed = properties.get("receive_maximum", 65_535)
        assert allowed < 65_535, "the broker must have a limit, and say so"
        # QoS 2 without PUBREL: nothing gives the window back.
        for identifier in range(1, allowed + 2):
            wire.publish(prefix, b"x", qos=2, identifier=identifier)
        while (packet := wire.next_packet()) is not None and packet[0] == "pubrec":
            pass
        assert packet is not None
        assert packet[1]["reason_code"] == 0x93


@pytest.mark.parametrize("protocol_version", [3, 6, 9])
@pytest.mark.usefixtures("bystander")
def test_an_unknown_protocol_version_is_refused(
    shared_broker: BrokerProcess, protocol_version: int
) -> None:
    connect = bytearray(CONNECT_5)
    connect[8] = protocol_version
    # Whoever says 3 is answered as 3.1 has it: "unacceptable protocol version" is 1 there.
    with Wire(shared_broker.port, version=min(max(protocol_version, 4), 5)) as wire:
        wire.send_bytes(bytes(connect))
        packet = wire.next_packet()
        assert packet is None or packet[1]["reason_code"] in (0x84, MALFORMED, 1)


@pytest.mark.accepts("S2.2")
def test_311_refuses_a_session_to_be_kept_without_a_client_identifier(
    shared_broker: BrokerProcess,
) -> None:
    with Wire(shared_broker.port, version=4) as wire:
        # CONNACK has return code 2, "identifier rejected".
        wire.send_bytes(b"\x10\x0c\x00\x04MQTT\x04\x00\x00\x3c\x00\x00")
        fields = wire.receive("connack")
        assert fields["reason_code"] in (2, 0x85)
        assert not fields["session_present"]
        assert _closed_without_an_answer(wire)


@pytest.mark.usefixtures("bystander")
def test_a_flood_of_connections_that_say_nothing(shared_broker: BrokerProcess) -> None:
    wires = [Wire(shared_broker.port) for _ in range(200)]
    with Wire(shared_broker.port) as wire:
        wire.connect("in the flood", clean_start=True)
        wire.ping()
    for each in wires:
        with each:
            pass


def test_a_client_that_never_reads_does_not_delay_others(
    device: MakeDevice, shared_broker: BrokerProcess, prefix: str
) -> None:
    publisher = device(f"{prefix}p", clean_start=True)
    reader = device(f"{prefix}r", clean_start=True)
    reader.subscribe(f"{prefix}/#", 1)
    with Wire(shared_broker.port) as never_reads:
        never_reads.connect(f"{prefix}n", clean_start=True)
        never_reads.subscribe(f"{prefix}/#", 0)
        sent = [struct.pack("!I", number) * 4_000 for number in range(500)]
        publisher.publish_all(f"{prefix}/a", sent, 1)
        assert payloads(reader.receive_many(len(sent))) == sent
