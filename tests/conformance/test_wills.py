"""Wills: published when and as they were asked for, and in no other case."""

import pytest

from tests.conformance import packets
from tests.conformance.brokers import VirtualBroker
from tests.conformance.conftest import Join
from tests.conformance.packets import Property, Will
from tests.conformance.peer import Peer

WITH_WILL = 0x04
NO_LOCAL = 0x04
NEVER_S = 3_600


def watching(peer: Join, name: str, version: int = 5, kept: bool = False) -> Peer:
    """A watcher of `name`."""
    watcher = peer(version)
    watcher.connect(f"{name}w", kept=kept)
    watcher.subscribe(name, 2)
    return watcher


def delayed(name: str, delay_s: int) -> Will:
    return Will(name, properties=[("will_delay_interval", delay_s)])


def expiring(seconds: int) -> list[Property]:
    return [("session_expiry_interval", seconds)]


@pytest.mark.proves(
    "MQTT5-3.1.2-7",
    "MQTT5-3.1.2-8",
    "MQTT5-3.1.2-10",
    "MQTT5-3.1.2-12",
    "MQTT311-3.1.2-8",
    "MQTT311-3.1.2-10",
    "MQTT311-3.1.2-14",
)
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("kept", [True, False])
def test_a_lost_connections_will_is_published_once(
    peer: Join, name: str, version: int, qos: int, kept: bool
) -> None:
    watcher, client = watching(peer, name, version), peer(version)
    client.connect(name, will=Will(name, b"gone", qos), kept=kept)
    watcher.quiet()
    client.drop()
    found = watcher.message(name, b"gone")
    assert (found.qos, found.retain) == (qos, False)
    again = peer(version)
    again.connect(name, kept=kept)
    again.drop()
    watcher.quiet()


@pytest.mark.proves("MQTT5-3.1.2-10", "MQTT5-3.14.4-3", "MQTT311-3.1.2-10", "MQTT311-3.14.4-3")
@pytest.mark.parametrize("kept", [True, False])
def test_a_normal_disconnect_discards_the_will(
    peer: Join, name: str, version: int, kept: bool
) -> None:
    watcher, client = watching(peer, name, version), peer(version)
    client.connect(name, will=Will(name), kept=kept)
    client.disconnect()
    watcher.quiet()
    again = peer(version)
    again.connect(name, kept=kept)
    again.drop()
    watcher.quiet()


@pytest.mark.proves("MQTT311-3.1.2-12", "MQTT5-3.1.2-8")
def test_without_a_will_none_is_published(peer: Join, name: str, version: int) -> None:
    watcher = watching(peer, name, version)
    client = peer(version)
    client.connect(name)
    client.drop()
    watcher.quiet()


@pytest.mark.proves("MQTT5-3.1.2-8", "MQTT5-3.14.2-1")
@pytest.mark.parametrize(
    "reason_code",
    [WITH_WILL, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99],
)
def test_a_disconnect_for_another_reason_leaves_the_will(
    peer: Join, name: str, reason_code: int
) -> None:
    watcher, client = watching(peer, name), peer()
    client.connect(name, will=Will(name))
    client.disconnect(reason_code)
    watcher.message(name, b"gone")


@pytest.mark.proves("MQTT5-3.1.2-8", "MQTT311-3.1.2-8")
def test_a_client_at_fault_leaves_its_will(peer: Join, name: str, version: int) -> None:
    watcher, client = watching(peer, name, version), peer(version)
    client.connect(name, will=Will(name))
    client.send(packets.packet(0x00, b""))
    client.expelled(0x81, 0x82)
    watcher.message(name, b"gone")


@pytest.mark.proves("MQTT5-3.1.2-22", "MQTT5-3.1.2-8", "MQTT311-3.1.2-24")
def test_a_silent_clients_will_is_published(
    own_broker: VirtualBroker, own_peer: Join, name: str, version: int
) -> None:
    watcher, client = watching(own_peer, name, version), own_peer(version)
    client.connect(name, will=Will(name), keep_alive_s=10)
    own_broker.pass_time(17)
    watcher.message(name, b"gone")


@pytest.mark.proves("MQTT5-3.1.2-14", "MQTT5-3.1.2-15", "MQTT311-3.1.2-16", "MQTT311-3.1.2-17")
@pytest.mark.parametrize("retain", [True, False])
def test_a_will_is_retained_if_it_says_so(
    peer: Join, name: str, version: int, retain: bool
) -> None:
    watcher, client = watching(peer, name, version), peer(version)
    client.connect(name, will=Will(name, b"gone", 1, retain))
    client.drop()
    assert watcher.message(name, b"gone").retain is False
    reader = peer(version)
    reader.connect(f"{name}r")
    reader.subscribe(name, 1)
    if retain:
        assert reader.message(name, b"gone").retain
    reader.quiet()


@pytest.mark.proves("MQTT5-3.1.3-10", "MQTT5-3.3.2-18")
def test_a_wills_properties_come_with_it(peer: Join, name: str) -> None:
    items: list[Property] = [
        ("payload_format_indicator", 1),
        ("content_type", "text/plain"),
        ("response_topic", "a/b"),
        ("correlation_data", b"\0\1"),
        ("user_property", ("z", "1")),
        ("user_property", ("a", "2")),
        ("user_property", ("z", "1")),
    ]
    watcher, client = watching(peer, name), peer()
    will = Will(name, properties=[("will_delay_interval", 0), *items])
    client.connect(name, will=will)
    client.drop()
    found = watcher.message(name)
    assert sorted(found.properties) == sorted(items)
    assert found.every("user_property") == [("z", "1"), ("a", "2"), ("z", "1")]


def test_a_wills_expiry_counts_from_its_publication(
    own_broker: VirtualBroker, own_peer: Join, name: str
) -> None:
    watcher, client = watching(own_peer, name), own_peer()
    items = [("message_expiry_interval", 50), ("will_delay_interval", 20)]
    client.connect(name, items=expiring(NEVER_S), will=Will(name, properties=items))
    client.drop()
    own_broker.pass_time(30)
    assert watcher.message(name).property("message_expiry_interval") in {49, 50}


@pytest.mark.proves("MQTT5-3.1.2-8", "MQTT5-3.1.2-7")
@pytest.mark.parametrize(
    ("delay_s", "expiry_s", "due_s"), [(10, NEVER_S, 10), (100, 20, 20), (10, 10, 10), (10, 0, 0)]
)
def test_a_will_waits_for_its_delay_or_the_sessions_end(
    own_broker: VirtualBroker, own_peer: Join, name: str, delay_s: int, expiry_s: int, due_s: int
) -> None:
    watcher, client = watching(own_peer, name), own_peer()
    client.connect(name, will=delayed(name, delay_s), items=expiring(expiry_s), clean=False)
    client.close()
    if due_s:
        own_broker.pass_time(due_s - 3)
        watcher.quiet()
    own_broker.pass_time(3)
    watcher.message(name, b"gone")
    own_broker.pass_time(NEVER_S / 10)
    watcher.quiet()


@pytest.mark.proves("MQTT5-3.1.3-9", "MQTT5-3.1.2-8")
def test_a_connection_within_the_delay_keeps_the_will_back(
    own_broker: VirtualBroker, own_peer: Join, name: str
) -> None:
    watcher, client = watching(own_peer, name), own_peer()
    client.connect(name, will=delayed(name, 10), items=expiring(NEVER_S), clean=False)
    client.drop()
    again = own_peer()
    assert again.connect(name, clean=False, items=expiring(NEVER_S)).session_present
    own_broker.pass_time(60)
    watcher.quiet()


@pytest.mark.proves("MQTT5-3.1.2-8", "MQTT5-3.1.2-4")
@pytest.mark.parametrize("at_rest", [True, False])
def test_a_clean_start_within_the_delay_ends_the_session_and_publishes(
    own_peer: Join, name: str, at_rest: bool
) -> None:
    watcher, client = watching(own_peer, name), own_peer()
    client.connect(name, will=delayed(name, 1_000), items=expiring(NEVER_S), clean=False)
    if at_rest:
        client.drop()
        watcher.quiet()
    own_peer().connect(name)
    watcher.message(name, b"gone")
    watcher.quiet()


@pytest.mark.proves("MQTT5-3.1.4-3", "MQTT5-3.1.3-9", "MQTT5-3.1.2-8", "MQTT311-3.1.4-2")
@pytest.mark.parametrize(("delay_s", "published"), [(0, True), (10, False)])
def test_a_takeover_publishes_only_a_will_without_delay(
    own_broker: VirtualBroker, own_peer: Join, name: str, delay_s: int, published: bool
) -> None:
    watcher, client = watching(own_peer, name), own_peer()
    client.connect(name, will=delayed(name, delay_s), items=expiring(NEVER_S), clean=False)
    own_peer().connect(name, clean=False, items=expiring(NEVER_S))
    own_broker.pass_time(30)
    if published:
        watcher.message(name, b"gone")
    watcher.quiet()


@pytest.mark.proves("MQTT5-3.1.2-8")
def test_a_disconnect_may_shorten_the_session_and_with_it_the_delay(
    own_peer: Join, name: str
) -> None:
    watcher, client = watching(own_peer, name), own_peer()
    client.connect(name, will=delayed(name, 1_000), items=expiring(NEVER_S), clean=False)
    client.disconnect(WITH_WILL, expiring(0))
    watcher.message(name, b"gone")


@pytest.mark.proves("MQTT5-3.1.2-7", "MQTT5-3.1.2-8", "MQTT311-3.1.2-8")
@pytest.mark.parametrize("connected", [True, False])
@pytest.mark.parametrize("end", ["restart", "power cut"])
def test_a_will_outlives_the_broker(
    own_broker: VirtualBroker, own_peer: Join, name: str, connected: bool, end: str
) -> None:
    watching(own_peer, name, kept=True)
    client = own_peer()
    client.connect(name, will=delayed(name, 100), items=expiring(NEVER_S), clean=False)
    if not connected:
        client.drop()
    if end == "restart":
        own_broker.restart()
    else:
        own_broker.cut_power()
        own_broker.begin()
    watcher = own_peer()
    watcher.connect(f"{name}w", kept=True)
    own_broker.pass_time(80)
    watcher.quiet()
    own_broker.pass_time(30)
    watcher.message(name, b"gone")
    own_broker.pass_time(200)
    watcher.quiet()


@pytest.mark.parametrize("delay_s", [0, 100])
@pytest.mark.parametrize("comes_back", [False, True])
def test_a_will_that_was_planned_does_not_wait_for_a_clock_that_was_set_back(
    own_broker: VirtualBroker, own_peer: Join, name: str, delay_s: int, comes_back: bool
) -> None:
    watching(own_peer, name, kept=True)
    client = own_peer()
    client.connect(name, will=delayed(name, delay_s), items=expiring(2 * NEVER_S), clean=False)
    own_broker.cut_power(synced=True)
    own_broker.begin()
    # It is on record when the Will is due, and nobody has published it yet.
    own_broker.cut_power(synced=True)
    own_broker.set_clock(-NEVER_S)
    own_broker.begin()
    watcher = own_peer()
    watcher.connect(f"{name}w", kept=True)
    own_broker.pass_time(delay_s)
    if comes_back:
        own_peer().connect(name, clean=False)
    own_broker.settle()
    watcher.message(name, b"gone")


@pytest.mark.parametrize("moment", range(24))
def test_the_will_of_a_session_that_ends_is_never_lost(
    own_broker: VirtualBroker, own_peer: Join, name: str, moment: int
) -> None:
    """The power goes at every moment after a Clean Start has ended a session that has a Will."""
    watching(own_peer, name, kept=True)
    client = own_peer()
    will = Will(name, b"gone", 1, properties=[("will_delay_interval", 1_000)])
    client.connect(name, will=will, items=expiring(NEVER_S), clean=False)
    client.drop()
    taking_over = own_peer()
    taking_over.send(packets.connect(name))
    own_broker.take_turns(moment)
    own_broker.cut_power(synced=True)
    own_broker.begin()
    watcher = own_peer()
    watcher.connect(f"{name}w", kept=True)
    own_broker.pass_time(1_010)
    watcher.message(name, b"gone")


@pytest.mark.proves("MQTT5-3.8.3-3")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("at_rest", [True, False])
def test_no_local_keeps_a_clients_own_will_from_it(
    own_peer: Join, name: str, qos: int, at_rest: bool
) -> None:
    watcher, client = watching(own_peer, name), own_peer()
    client.connect(name, will=Will(name, b"gone", qos), items=expiring(NEVER_S), clean=False)
    client.subscribe(name, qos | NO_LOCAL)
    if at_rest:
        client.drop()
    again = own_peer()
    assert again.connect(name, items=expiring(NEVER_S), clean=False).session_present
    watcher.message(name, b"gone")
    again.quiet()


def test_a_will_takes_no_packet_identifier_of_its_client(
    own_broker: VirtualBroker, own_peer: Join, name: str
) -> None:
    client = own_peer()
    client.connect(name, will=Will(name, b"gone", 2), kept=True)
    client.drop()
    own_broker.cut_power(synced=True)
    own_broker.begin()
    watcher, client = watching(own_peer, name), own_peer()
    client.connect(name, kept=True)
    for _ in range(3):
        client.publish(name, b"here again", qos=2)
        watcher.message(name, b"here again")


@pytest.mark.proves("MQTT5-3.1.2-8", "MQTT311-3.1.2-8", "MQTT5-3.1.2-10", "MQTT311-3.1.2-10")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_will_outlives_the_broker_where_the_session_does_not(
    own_broker: VirtualBroker, own_peer: Join, name: str, version: int, qos: int
) -> None:
    watching(own_peer, name, version, kept=True)
    names = [f"{name}{end}" for end in ("connected", "said", "lost", "renewed", "renewed")]
    clients = {}
    for who in names:
        clients[who] = own_peer(version)
        clients[who].connect(who, will=Will(name, who.encode(), qos))
    clients[f"{name}said"].disconnect()
    clients[f"{name}lost"].drop()
    own_broker.pass_time(3)
    own_broker.cut_power()
    own_broker.begin()
    # Who is there again in the meantime has another Will.
    back = own_peer(version)
    back.connect(f"{name}connected", will=Will(name, b"later", qos))
    watcher = own_peer(version)
    watcher.connect(f"{name}w", kept=True)
    own_broker.pass_time(3)
    due = [f"{name}{end}".encode() for end in ("connected", "lost", "renewed", "renewed")]
    if qos:
        assert sorted(watcher.message(name).payload for _ in due) == sorted(due)
    watcher.quiet()
    back.drop()
    if qos:
        watcher.message(name, b"later")
    own_broker.pass_time(3)
    own_broker.cut_power()
    own_broker.begin()
    watcher = own_peer(version)
    watcher.connect(f"{name}w", kept=True)
    own_broker.pass_time(3)
    watcher.quiet()
