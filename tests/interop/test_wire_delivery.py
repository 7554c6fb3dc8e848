"""The exchanges of QoS 1 and 2 packet by packet: windows, DUP, packet identifiers, resumption."""

from typing import Any

import pytest

from tests.interop.conftest import MakeDevice
from tests.interop.wire import Wire
from tests.process import BrokerProcess


def _publishes(wire: Wire, count: int) -> list[dict[str, Any]]:
    return [wire.receive("publish") for _ in range(count)]


def test_no_more_than_the_receive_maximum_is_unanswered(
    shared_broker: BrokerProcess, device: MakeDevice, prefix: str, version: int
) -> None:
    window = {"receive_maximum": 3} if version == 5 else {}
    publisher = device(f"{prefix}p", clean_start=True)
    with Wire(shared_broker.port, version) as wire:
        wire.connect(prefix, clean_start=True, **window)
        wire.subscribe(f"{prefix}/a", 1)
        publisher.publish_all(f"{prefix}/a", [b"%d" % number for number in range(10)], 1)
        seen = _publishes(wire, 3 if version == 5 else 10)
        wire.ping()  # Nothing else was on its way.
        identifiers = {fields["packet_identifier"] for fields in seen}
        assert len(identifiers) == len(seen)
        while seen and version == 5 and seen[-1]["payload"] != b"9":
            wire.acknowledge("puback", seen[-3]["packet_identifier"])
            seen += _publishes(wire, 1)
            wire.ping()
        assert [fields["payload"] for fields in seen] == [b"%d" % number for number in range(10)]


@pytest.mark.accepts("S0.28", "S2.9", "S0.54", "S0.55")
def test_what_was_not_acknowledged_comes_again_with_its_identifier_and_dup(
    shared_broker: BrokerProcess, device: MakeDevice, prefix: str, version: int
) -> None:
    publisher = device(f"{prefix}p", clean_start=True)
    with Wire(shared_broker.port, version) as wire:
        wire.connect(prefix)
        wire.subscribe(f"{prefix}/a", 1)
        publisher.publish_all(f"{prefix}/a", [b"1", b"2", b"3", b"4"], 1)
        first = _publishes(wire, 4)
        wire.acknowledge("puback", first[0]["packet_identifier"])
        wire.acknowledge("puback", first[2]["packet_identifier"])
        wire.ping()
    publisher.publish(f"{prefix}/a", b"5", 1)
    with Wire(shared_broker.port, version) as wire:
        assert wire.connect(prefix)["session_present"]
        again = _publishes(wire, 3)
        assert [fields["payload"] for fields in again] == [b"2", b"4", b"5"]
        assert [fields["dup"] for fields in again] == [True, True, False]
        assert again[0]["packet_identifier"] == first[1]["packet_identifier"]
        assert again[1]["packet_identifier"] == first[3]["packet_identifier"]
        taken = {first[1]["packet_identifier"], first[3]["packet_identifier"]}
        assert again[2]["packet_identifier"] not in taken
        wire.ping()


@pytest.mark.accepts("S0.29", "S0.30", "S0.50", "S0.56")
def test_after_pubrec_only_pubrel_comes_again(
    shared_broker: BrokerProcess, device: MakeDevice, prefix: str, version: int
) -> None:
    publisher = device(f"{prefix}p", clean_start=True)
    with Wire(shared_broker.port, version) as wire:
        wire.connect(prefix)
        wire.subscribe(f"{prefix}/a", 2)
        publisher.publish(f"{prefix}/a", b"1", 2)
        identifier = wire.receive("publish")["packet_identifier"]
        wire.acknowledge("pubrec", identifier)
        assert wire.receive("pubrel")["packet_identifier"] == identifier
    with Wire(shared_broker.port, version) as wire:
        assert wire.connect(prefix)["session_present"]
        assert wire.receive("pubrel")["packet_identifier"] == identifier
        wire.acknowledge("pubcomp", identifier)
        wire.ping()
    with Wire(shared_broker.port, version) as wire:
        assert wire.connect(prefix)["session_present"]
        wire.ping()  # It is done: neither PUBLISH nor PUBREL.


@pytest.mark.accepts("S2.10")
def test_a_repeated_publish_of_qos_2_is_handed_on_once(
    shared_broker: BrokerProcess, device: MakeDevice, prefix: str, version: int
) -> None:
    subscriber = device(f"{prefix}s", clean_start=True)
    subscriber.subscribe(f"{prefix}/a", 2)
    with Wire(shared_broker.port, version) as wire:
        wire.connect(prefix)
        wire.publish(f"{prefix}/a", b"once", qos=2, identifier=7)
        wire.receive("pubrec")
        wire.publish(f"{prefix}/a", b"once", qos=2, identifier=7, dup=True)
        wire.receive("pubrec")
    with Wire(shared_broker.port, version) as wire:
        assert wire.connect(prefix)["session_present"]
        wire.publish(f"{prefix}/a", b"once", qos=2, identifier=7, dup=True)
        wire.receive("pubrec")
        wire.acknowledge("pubrel", 7)
        wire.receive("pubcomp")
        wire.acknowledge("pubrel", 7)  # A PUBREL that is repeated is answered again.
        wire.receive("pubcomp")
        wire.publish(f"{prefix}/a", b"another", qos=2, identifier=7)
        wire.receive("pubrec")
        wire.acknowledge("pubrel", 7)
        wire.receive("pubcomp")
    received = [message.payload for message in subscriber.all_received()]
    assert received == [b"once", b"another"]


@pytest.mark.accepts("S0.53")
def test_packet_identifiers_go_around_and_avoid_those_in_flight(
    shared_broker: BrokerProcess, prefix: str
) -> None:
    with Wire(shared_broker.port) as wire:
        wire.connect(prefix, receive_maximum=2)
        wire.subscribe(f"{prefix}/a", 1)
        wire.publish(f"{prefix}/a", b"held")
        wire.publish(f"{prefix}/a", b"held", qos=1, identifier=1)
        packets = [wire.next_packet() for _ in range(3)]
        held = max(p[1]["packet_identifier"] or 0 for p in packets if p and p[0] == "publish")
        for _ in range(200):
            wire.publish(f"{prefix}/a", b"x", qos=1, identifier=1)
            kinds = dict(packet for packet in (wire.next_packet(), wire.next_packet()) if packet)
            assert kinds["publish"]["packet_identifier"] != held
            wire.acknowledge("puback", kinds["publish"]["packet_identifier"])


def test_an_acknowledgement_of_nothing_is_ignored_or_refused(
    shared_broker: BrokerProcess, prefix: str
) -> None:
    with Wire(shared_broker.port) as wire:
        wire.connect(prefix, clean_start=True)
        wire.acknowledge("puback", 77)
        wire.acknowledge("pubcomp", 77)
        wire.ping()


def test_a_pubrel_of_an_unknown_identifier_is_answered(
    shared_broker: BrokerProcess, prefix: str
) -> None:
    with Wire(shared_broker.port) as wire:
        wire.connect(prefix, clean_start=True)
        wire.acknowledge("pubrel", 77)
        fields = wire.receive("pubcomp")
        assert fields["packet_identifier"] == 77
        assert fields["reason_code"] in (0x00, 0x92)


@pytest.mark.accepts("S3.66")
def test_an_identity_stands_beside_all_other_properties(
    shared_broker: BrokerProcess, prefix: str
) -> None:
    sent = {
        "content_type": "text/plain",
        "message_expiry_interval": 600,
        "user_property": [("site", "north"), ("holdfast-id", "claimed")],
    }
    with Wire(shared_broker.port) as wire, Wire(shared_broker.port) as publisher:
        wire.connect(prefix, topic_alias_maximum=5)
        asked = {"subscription_identifier": 7, "user_property": [("holdfast-identity", "on")]}
        wanted = {
            "topic_filter": f"{prefix}/a",
            "qos": 2,
            "no_local": False,
            "retain_as_published": False,
            "retain_handling": 0,
        }
        wire.send("subscribe", packet_identifier=1, subscriptions=[wanted], properties=asked)
        assert wire.receive("suback")["reason_codes"] == [2]
        publisher.connect(f"{prefix}p", session_expiry_interval=0)
        for identifier in (1, 2):
            fields = publisher.publish_fields(f"{prefix}/a", b"x", 1, identifier, dup=False)
            publisher.send("publish", **fields, properties=sent)
            publisher.receive("puback")
        first, second = (each["properties"] for each in _publishes(wire, 2))
    for properties in (first, second):
        assert properties["content_type"] == "text/plain"
        assert 0 < properties["message_expiry_interval"] <= 600
        assert properties["topic_alias"] == 1
        assert properties["user_property"][0] == ("site", "north")
    (_, (name, one)), (_, (_, two)) = first["user_property"], second["user_property"]
    assert name == "holdfast-id"
    (epoch, offset), (same_epoch, next_offset) = one.rsplit("-", 1), two.rsplit("-", 1)
    assert epoch == same_epoch
    assert int(offset) < int(next_offset)
    assert len(bytes.fromhex(epoch.replace("-", ""))) == 16
