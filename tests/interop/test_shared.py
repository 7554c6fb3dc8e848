"""Shared subscriptions on the wire: the group owns the backlog, and each message goes to one
member."""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tests.interop.conftest import MakeDevice
from tests.interop.device import Device, payloads
from tests.interop.wire import Wire
from tests.process import BrokerProcess


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def received(wire: Wire, count: int) -> list[dict[str, Any]]:
    return [wire.receive("publish") for _ in range(count)]


def contents(fields: Sequence[dict[str, Any]]) -> list[bytes]:
    return [each["payload"] for each in fields]


def everything(members: Sequence[Device]) -> list[list[bytes]]:
    return [payloads(member.all_received()) for member in members]


@pytest.mark.accepts("S0.70", "S3.3", "S3.61", "S4.129")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_message_goes_to_one_member_and_all_take_turns(
    device: MakeDevice, prefix: str, version: int, qos: int
) -> None:
    members = [device(f"{prefix}{n}", version=version, clean_start=True) for n in range(3)]
    for member in members:
        assert member.subscribe(f"$share/g/{prefix}/#", qos) == [qos]
    sent = numbered(90)
    device(f"{prefix}p", clean_start=True).publish_all(f"{prefix}/a", sent, qos)
    got = [payloads(member.receive_many(30)) for member in members]
    assert everything(members) == [[], [], []]
    assert sorted(itertools.chain(*got), key=int) == sent
    assert all(each == sorted(each, key=int) for each in got)


@pytest.mark.accepts("S0.83")
@pytest.mark.proves("MQTT5-4.8.2-3")
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("subscribed", [0, 1, 2])
def test_the_lower_qos_of_publish_and_member_holds(
    device: MakeDevice, prefix: str, published: int, subscribed: int
) -> None:
    member = device(prefix, clean_start=True)
    member.subscribe(f"$share/g/{prefix}", subscribed)
    device(f"{prefix}p", clean_start=True).publish(prefix, b"x", published)
    assert member.receive().qos == min(published, subscribed)
    assert member.all_received() == []


def test_members_have_their_own_qos_identifier_and_retain_as_published(
    device: MakeDevice, prefix: str
) -> None:
    plain, kept = (device(f"{prefix}{n}", clean_start=True) for n in range(2))
    plain.subscribe(f"$share/g/{prefix}", 0, identifier=7)
    kept.subscribe(f"$share/g/{prefix}", 2, identifier=9, retainAsPublished=True)
    publisher = device(f"{prefix}p", clean_start=True)
    for number in range(4):
        publisher.publish(prefix, b"%d" % number, 2, retain=True)
    for member, qos, identifier, retain in ((plain, 0, 7, False), (kept, 2, 9, True)):
        messages = member.all_received()
        assert [message.qos for message in messages] == [qos, qos]
        assert all(
            message.properties.SubscriptionIdentifier == [identifier] for message in messages
        )
        assert all(message.retain == retain for message in messages)


@pytest.mark.accepts("S0.81", "S3.1", "S3.2", "S3.13")
def test_two_names_on_one_filter_are_two_groups_and_a_plain_subscription_is_none(
    device: MakeDevice, prefix: str
) -> None:
    both, one = (device(f"{prefix}{n}", clean_start=True) for n in range(2))
    both.subscribe(f"$share/g/{prefix}/+", 1)
    both.subscribe(f"$share/h/{prefix}/+", 1)
    both.subscribe(f"{prefix}/a", 1)
    one.subscribe(f"$share/h/{prefix}/+", 1)
    sent = numbered(20)
    device(f"{prefix}p", clean_start=True).publish_all(f"{prefix}/a", sent, 1)
    got = Counter(payloads(both.all_received()))
    others = Counter(payloads(one.all_received()))
    assert sum(others.values()) == 10
    assert got + others == Counter(sent * 3)


def test_new_members_get_no_retained_messages(device: MakeDevice, prefix: str) -> None:
    device(f"{prefix}p", clean_start=True).publish(prefix, b"old", 1, retain=True)
    member = device(prefix, clean_start=True)
    member.subscribe(f"$share/g/{prefix}", 1)
    assert member.all_received() == []


@pytest.mark.proves("MQTT5-4.8.2-1", "MQTT5-4.8.2-2")
@pytest.mark.parametrize("name", ["//xx", "/aaa", "/aa/", "/+/x", "/a#/x"])
def test_an_invalid_name_ends_the_connection(
    shared_broker: BrokerProcess, prefix: str, version: int, name: str
) -> None:
    with Wire(shared_broker.port, version) as wire:
        assert "shared_subscription_available" not in wire.connect(prefix)["properties"]
        valid = "$share" + "/a/aaaaa"[: len(name) - 1].ljust(len(name), "a")
        packet = _subscribe(wire, valid).replace(valid.encode(), b"$share" + name.encode())
        wire.send_bytes(packet)
        if version == 5:
            assert wire.receive("disconnect")["reason_code"] == 0x8F
        assert wire.next_packet() is None


@pytest.mark.proves("MQTT5-3.8.3-4")
def test_no_local_on_a_shared_subscription_ends_the_connection(
    shared_broker: BrokerProcess, prefix: str
) -> None:
    with Wire(shared_broker.port) as wire:
        wire.connect(prefix)
        packet = _subscribe(wire, f"$share/g/{prefix}")
        wire.send_bytes(packet[:-1] + bytes([packet[-1] | 4]))
        assert wire.receive("disconnect")["reason_code"] == 0x82
        assert wire.next_packet() is None


def _subscribe(wire: Wire, topic_filter: str) -> bytes:
    wanted = {"topic_filter": topic_filter, "qos": 1}
    return wire.encode("subscribe", packet_identifier=1, subscriptions=[wanted])


def test_a_member_that_stalls_holds_up_neither_the_others_nor_its_own_queue(
    shared_broker: BrokerProcess, device: MakeDevice, prefix: str
) -> None:
    brisk = device(f"{prefix}b", clean_start=True)
    publisher = device(f"{prefix}p", clean_start=True)
    with Wire(shared_broker.port) as stalled:
        stalled.connect(f"{prefix}s", clean_start=True, receive_maximum=6)
        stalled.subscribe(f"$share/g/{prefix}/shared", 1)
        stalled.subscribe(f"$share/other/{prefix}/other", 1)
        stalled.subscribe(f"{prefix}/own", 1)
        brisk.subscribe(f"$share/g/{prefix}/shared", 1)
        publisher.publish_all(f"{prefix}/shared", numbered(100), 1)
        kept = contents(received(stalled, 2))
        taken = payloads(brisk.receive_many(98))
        assert sorted(kept + taken, key=int) == numbered(100)
        # A third of its window is its own queue's, another the other group's.
        for name in ("own", "other"):
            publisher.publish(f"{prefix}/{name}", name.encode(), 1)
            assert contents(received(stalled, 1)) == [name.encode()]
        stalled.ping()
    # It is gone, so what it kept goes to the other, in order.
    assert payloads(brisk.receive_many(2)) == kept


def test_what_a_lost_member_had_goes_to_the_others_first_and_in_order(
    shared_broker: BrokerProcess, device: MakeDevice, prefix: str, version: int
) -> None:
    publisher = device(f"{prefix}p", clean_start=True)
    window = {"receive_maximum": 10} if version == 5 else {}
    with Wire(shared_broker.port) as heir:
        heir.connect(f"{prefix}h", clean_start=True, receive_maximum=3)
        heir.subscribe(f"$share/g/{prefix}", 1)
        with Wire(shared_broker.port, version) as lost:
            lost.connect(f"{prefix}l", **window)
            lost.subscribe(f"$share/g/{prefix}", 1)
            publisher.publish_all(prefix, numbered(6), 1)
            before = [*received(heir, 3), *received(lost, 3)]
            assert sorted(contents(before), key=int) == numbered(6)
            publisher.publish(prefix, b"6", 1)
            held = contents([*before[3:], *received(lost, 1)])
        heir.ping()
        publisher.publish_all(prefix, numbered(3, 7), 1)
        seen: list[dict[str, Any]] = []
        todo = before[:3]
        while len(seen) < len(held) + 3:
            for fields in todo:
                heir.acknowledge("puback", fields["packet_identifier"])
            todo = received(heir, 1)
            seen += todo
        assert contents(seen) == [*held, *numbered(3, 7)]
        assert not any(fields["dup"] for fields in seen)
        heir.acknowledge("puback", seen[-1]["packet_identifier"])
        heir.ping()
    with Wire(shared_broker.port, version) as lost:
        lost.connect(f"{prefix}l", **window)
        lost.ping()  # Nothing of it is sent again to whom it was sent first.


@pytest.mark.proves("MQTT5-4.8.2-4", "MQTT5-4.8.2-5")
def test_at_qos_2_the_exchange_is_completed_with_the_session_that_began_it(
    shared_broker: BrokerProcess, device: MakeDevice, prefix: str
) -> None:
    publisher = device(f"{prefix}p", clean_start=True)
    other = device(f"{prefix}o", clean_start=True)
    with Wire(shared_broker.port) as wire:
        wire.connect(prefix)
        wire.subscribe(f"$share/g/{prefix}", 2)
        publisher.publish_all(prefix, numbered(2), 2)
        first = received(wire, 2)
        wire.acknowledge("pubrec", first[0]["packet_identifier"])
        wire.receive("pubrel")
        other.subscribe(f"$share/g/{prefix}", 2)
    publisher.publish(prefix, b"2", 2)
    assert payloads(other.all_received()) == [b"2"]
    with Wire(shared_broker.port) as wire:
        assert wire.connect(prefix)["session_present"]
        found = dict(filter(None, [wire.next_packet(), wire.next_packet()]))
        assert found["pubrel"]["packet_identifier"] == first[0]["packet_identifier"]
        again = found["publish"]
        assert (again["payload"], again["dup"], again["qos"]) == (b"1", True, 2)
        assert again["packet_identifier"] == first[1]["packet_identifier"]
    with Wire(shared_broker.port) as wire:
        wire.connect(prefix, clean_start=True)
        wire.ping()
    # The session that had it has ended: nobody else gets it [MQTT-4.8.2-5].
    assert other.all_received() == []


def test_who_leaves_gets_no_more_and_completes_what_it_has(
    shared_broker: BrokerProcess, device: MakeDevice, prefix: str
) -> None:
    publisher, stays = (device(f"{prefix}{n}", clean_start=True) for n in "ps")
    with Wire(shared_broker.port) as leaver:
        leaver.connect(f"{prefix}l")
        leaver.subscribe(f"$share/g/{prefix}", 1)
        publisher.publish_all(prefix, numbered(3), 1)
        had = received(leaver, 3)
        stays.subscribe(f"$share/g/{prefix}", 1)
        leaver.send("unsubscribe", packet_identifier=9, topic_filters=[f"$share/g/{prefix}"])
        assert leaver.receive("unsuback")["reason_codes"] == [0]
        publisher.publish_all(prefix, numbered(4, 3), 1)
        assert payloads(stays.receive_many(4)) == numbered(4, 3)
        for fields in had[:2]:
            leaver.acknowledge("puback", fields["packet_identifier"])
        leaver.ping()
    # What it had not answered is the group's again.
    assert payloads(stays.receive_many(1)) == [b"2"]


def test_the_backlog_waits_for_whoever_comes_first_under_whatever_name(
    device: MakeDevice, prefix: str, version: int
) -> None:
    publisher = device(f"{prefix}p", clean_start=True)
    first = device(f"{prefix}1", version=version, SessionExpiryInterval=3_600)
    first.subscribe(f"$share/g/{prefix}", 1)
    first.disconnect()
    publisher.publish_all(prefix, numbered(50), 1)
    newcomer = device(f"{prefix}new", version=version, clean_start=True)
    newcomer.subscribe(f"$share/g/{prefix}", 1)
    assert payloads(newcomer.receive_many(50)) == numbered(50)
    first.connect()
    assert first.all_received() == []
    publisher.publish_all(prefix, numbered(10), 1)
    assert sorted(map(len, everything([first, newcomer]))) == [5, 5]


@pytest.mark.parametrize("ending", ["disconnect", "clean start", "unsubscribe"])
def test_a_group_ends_with_its_last_subscription(
    device: MakeDevice, prefix: str, ending: str
) -> None:
    publisher = device(f"{prefix}p", clean_start=True)
    kept = {} if ending == "disconnect" else {"SessionExpiryInterval": 3_600}
    last = device(prefix, clean_start=ending == "disconnect", **kept)
    last.subscribe(f"$share/g/{prefix}", 1)
    if ending == "unsubscribe":
        assert last.unsubscribe(f"$share/g/{prefix}") == [0]
    last.disconnect()
    if ending == "clean start":
        device(prefix, clean_start=True)
    publisher.publish(prefix, b"lost", 1)
    again = device(f"{prefix}2", clean_start=True)
    again.subscribe(f"$share/g/{prefix}", 1)
    assert again.all_received() == []


def test_a_takeover_stays_a_member_and_gives_back_what_it_had(
    shared_broker: BrokerProcess, device: MakeDevice, prefix: str
) -> None:
    publisher = device(f"{prefix}p", clean_start=True)
    with Wire(shared_broker.port) as old:
        old.connect(prefix)
        old.subscribe(f"$share/g/{prefix}", 1)
        publisher.publish_all(prefix, numbered(3), 1)
        received(old, 3)
        with Wire(shared_broker.port) as new:
            new.connect(prefix)
            assert contents(received(new, 3)) == numbered(3)
            publisher.publish(prefix, b"3", 1)
            assert contents(received(new, 1)) == [b"3"]


def test_after_kill_9_nothing_acknowledged_comes_again_and_all_else_does(
    own_broker: BrokerProcess, own_device: MakeDevice
) -> None:
    publisher = own_device("publisher", clean_start=True)
    with Wire(own_broker.port) as one, Wire(own_broker.port) as two:
        for name, wire, qos in (("one", one, 1), ("two", two, 2)):
            wire.connect(name, receive_maximum=20)
            wire.subscribe("$share/g/a/#", qos)
        publisher.publish_all("a/b", numbered(100), 2)
        by_one, by_two = received(one, 20), received(two, 20)
        for fields in by_one[5:15]:
            one.acknowledge("puback", fields["packet_identifier"])
        for fields in by_two[:10]:
            two.acknowledge("pubrec", fields["packet_identifier"])
        received_in_turn = [two.receive("pubrel") for _ in range(10)]
        assert len(received_in_turn) == 10
        by_one += received(one, 10)
        one.ping()
        # Progress waits for company; what is answered behind it is durable after it.
        publisher.publish("elsewhere", b"", 1)
        own_broker.kill()
    done = {fields["payload"] for fields in (*by_one[5:15], *by_two)}
    own_broker.start()
    left = [payload for payload in numbered(100) if payload not in done]
    with Wire(own_broker.port) as newcomer:
        newcomer.connect("three", clean_start=True, session_expiry_interval=0)
        newcomer.subscribe("$share/g/a/#", 1)
        assert contents(received(newcomer, len(left))) == left
        newcomer.ping()
        with Wire(own_broker.port) as two:
            assert two.connect("two", receive_maximum=20)["session_present"]
            found = [two.next_packet() for _ in range(20)]
            again = [fields for kind, fields in filter(None, found) if kind == "publish"]
            assert contents(again) == contents(by_two[10:])
            assert all(fields["dup"] for fields in again)


def test_a_backlog_survives_kill_9_while_nobody_is_there(
    own_broker: BrokerProcess, own_device: MakeDevice
) -> None:
    member = own_device("member", SessionExpiryInterval=3_600)
    member.subscribe("$share/g/#", 1)
    member.disconnect()
    own_device("publisher", clean_start=True).publish_all("a/b", numbered(500), 1)
    own_broker.kill()
    own_broker.start()
    newcomer = own_device("newcomer", clean_start=True)
    newcomer.subscribe("$share/g/#", 1)
    assert payloads(newcomer.receive_many(500)) == numbered(500)


def test_a_group_without_subscribers_keeps_its_queue_as_long_as_is_configured(
    tmp_path: Any, prefix: str
) -> None:
    broker = BrokerProcess(tmp_path, shared_group_expiry_s="1h", queue_messages_maximum=20)
    broker.start()
    try:
        worker = Device(broker.port, "worker-1", clean_start=True).connect()
        worker.subscribe("$share/g/a", 1)
        worker.disconnect()
        publisher = Device(broker.port, "publisher", clean_start=True).connect()
        publisher.publish_all("a", numbered(30), 1)
        broker.kill()
        broker.start()
        worker = Device(broker.port, "worker-2", clean_start=True).connect()
        worker.subscribe("$share/g/a", 1)
        # As many as an absent session may have; the loss ledger names the rest.
        assert payloads(worker.receive_many(20)) == numbered(20, 10)
        worker.close()
        publisher.close()
    finally:
        assert broker.stop() == 0, broker.log()
