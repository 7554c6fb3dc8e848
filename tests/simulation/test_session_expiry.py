"""When sessions end, and when what they had is cleared away: a whole broker in virtual time."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from holdfast.broker.mqtt.session_records import parse_session
from holdfast.broker.store.tables import parse_loss
from holdfast.testing.clock import FIRST_NOW_US
from tests.conformance.brokers import VirtualBroker
from tests.conformance.packets import Will
from tests.conformance.peer import Peer

Begin = Callable[..., VirtualBroker]

SWEPT_S = 1.5
"""The broker looks once a second."""
LONG_S = 36_000
"""Longer than a test."""


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Begins a broker with these settings."""
    begun: list[VirtualBroker] = []

    def make(**settings: Any) -> VirtualBroker:
        begun.append(VirtualBroker(**settings))
        return begun[-1]

    yield make
    for broker in begun:
        broker.close()


def pass_by(broker: VirtualBroker, client: str, expiry_s: int, topic: str = "a") -> None:
    """A client comes, subscribes and goes."""
    peer = Peer(broker)
    peer.connect(client, clean=False, items=[("session_expiry_interval", expiry_s)])
    peer.subscribe(topic, 1)
    peer.disconnect()


def on_record(broker: VirtualBroker) -> list[str]:
    """Clients whose sessions are on record."""
    rows = broker.server().records.catch_up().sessions()
    return sorted(parse_session(value).client_identifier for value, _ in rows)


def until(broker: VirtualBroker, moment: str) -> None:
    """Lets time pass up to a second before a moment."""
    there_us = int(datetime.fromisoformat(moment).timestamp()) * 1_000_000
    broker.pass_time((there_us - broker.server().now_us()) / 1_000_000 - 1)


@pytest.mark.accepts("S2.39")
def test_what_has_expired_is_cleared_away_every_hour_and_not_before(begin: Begin) -> None:
    broker = begin()
    assert datetime.fromisoformat("2023-11-14T22:13:20Z").timestamp() * 1e6 == FIRST_NOW_US
    pass_by(broker, "brief", 10)
    pass_by(broker, "lasting", LONG_S)
    until(broker, "2023-11-14T23:00:00Z")
    assert on_record(broker) == ["brief", "lasting"]
    broker.pass_time(1 + SWEPT_S)
    assert on_record(broker) == ["lasting"]
    pass_by(broker, "brief", 10)
    until(broker, "2023-11-15T00:00:00Z")
    assert on_record(broker) == ["brief", "lasting"]
    broker.pass_time(1 + SWEPT_S)
    assert on_record(broker) == ["lasting"]


@pytest.mark.accepts("S2.40")
def test_the_schedule_is_meant_in_its_time_zone(begin: Begin) -> None:
    broker = begin(session_expiry_cron="0 0 4 * * ?", session_expiry_zone="Asia/Tokyo")
    pass_by(broker, "brief", 10)
    until(broker, "2023-11-16T04:00:00+09:00")
    assert on_record(broker) == ["brief"]
    broker.pass_time(1 + SWEPT_S)
    assert on_record(broker) == []


def test_a_plain_expression_with_five_fields_is_as_good(begin: Begin) -> None:
    broker = begin(session_expiry_cron="30 22 * * *")
    pass_by(broker, "brief", 10)
    until(broker, "2023-11-14T22:30:00Z")
    assert on_record(broker) == ["brief"]
    broker.pass_time(1 + SWEPT_S)
    assert on_record(broker) == []


@pytest.mark.accepts("S2.45", "S2.3")
def test_who_comes_back_between_expiry_and_the_next_run_begins_anew(begin: Begin) -> None:
    broker = begin()
    pass_by(broker, "brief", 10)
    publisher = Peer(broker)
    publisher.connect("p")
    publisher.publish("a", b"discarded with its session", qos=1)
    broker.pass_time(10 + SWEPT_S)
    publisher.publish("a", b"for nobody", qos=1)
    assert on_record(broker) == ["brief"]
    back = Peer(broker)
    connack = back.connect("brief", clean=False, items=[("session_expiry_interval", 10)])
    assert not connack.session_present
    publisher.publish("a", b"without a subscription", qos=1)
    back.quiet()
    # What waited is lost with the first session; what came after its end was not for it.
    rows = broker.server().records.catch_up().losses(10)
    lost = [parse_loss(value) for _, value in rows]
    assert [(loss.client_identifier, loss.reason, loss.count) for loss in lost] == [
        ("brief", "session_ended", 1)
    ]
    # The run finds a session that lives, and leaves it alone.
    broker.pass_time(3_600)
    back.quiet()
    assert on_record(broker) == ["brief"]


@pytest.mark.accepts("S2.46")
def test_a_connected_session_is_never_cleared_away(begin: Begin) -> None:
    broker = begin(session_expiry_cron="* * * ? * *")
    peer = Peer(broker)
    peer.connect("c", clean=False, items=[("session_expiry_interval", 1)], keep_alive_s=0)
    peer.subscribe("a", 1)
    broker.pass_time(100)
    assert on_record(broker) == ["c"]
    publisher = Peer(broker)
    publisher.connect("p")
    publisher.publish("a", b"x", qos=1)
    peer.message("a", b"x")


@pytest.mark.accepts("S2.11")
def test_a_will_comes_when_its_session_ends_and_not_when_that_is_cleared_away(begin: Begin) -> None:
    broker = begin()
    watcher = Peer(broker)
    watcher.connect("w", keep_alive_s=0)
    watcher.subscribe("will", 1)
    mortal = Peer(broker)
    will = Will("will", b"gone", properties=[("will_delay_interval", 3_000)])
    items = [("session_expiry_interval", 20)]
    mortal.connect("m", clean=False, items=items, will=will)
    mortal.drop()
    broker.pass_time(15)
    watcher.quiet()
    broker.pass_time(5)
    watcher.message("will", b"gone")
    assert on_record(broker) == ["m"]
    broker.pass_time(3_600)
    watcher.quiet()
    assert on_record(broker) == []


@pytest.mark.accepts("S2.12", "S2.39")
@pytest.mark.parametrize("end", ["restart", "power cut"])
def test_expiry_counts_from_the_disconnect_over_a_restart(begin: Begin, end: str) -> None:
    broker = begin()
    pass_by(broker, "brief", 100)
    pass_by(broker, "lasting", LONG_S)
    if end == "restart":
        broker.stop()
    else:
        broker.cut_power(synced=True)
    broker.wait(200)
    broker.begin()
    assert on_record(broker) == ["brief", "lasting"]
    back = Peer(broker)
    items = [("session_expiry_interval", 10)]
    assert not back.connect("brief", clean=False, items=items).session_present
    assert Peer(broker).connect("lasting", clean=False, items=items).session_present


@pytest.mark.accepts("S3.32", "S3.33")
def test_what_comes_within_the_hour_of_an_expiry_waits_for_who_was_cut_off(begin: Begin) -> None:
    broker = begin()
    items = [("session_expiry_interval", 3_600)]
    peer = Peer(broker)
    peer.connect("c", clean=False, items=items)
    peer.subscribe("a", 1)
    for hours in range(2):
        peer.drop()
        publisher = Peer(broker)
        publisher.connect(f"p{hours}", keep_alive_s=0)
        for number in range(3):
            publisher.publish("a", b"%d" % number, qos=1)
            broker.pass_time(1_199)
        publisher.disconnect()
        peer = Peer(broker)
        assert peer.connect("c", clean=False, items=items).session_present
        for number in range(3):
            peer.message("a", b"%d" % number)
        peer.quiet()
    peer.drop()
    broker.pass_time(3_601)
    assert not Peer(broker).connect("c", clean=False, items=items).session_present


def test_a_run_that_was_missed_is_done_by_the_next_one(begin: Begin) -> None:
    broker = begin()
    pass_by(broker, "brief", 10)
    broker.stop()
    broker.wait(2 * 3_600)
    broker.begin()
    broker.pass_time(60)
    assert on_record(broker) == ["brief"]
    broker.pass_time(3_600)
    assert on_record(broker) == []


@pytest.mark.parametrize(("stepped_s", "present"), [(-86_400, True), (86_400, False)])
def test_a_clock_that_was_set_is_believed_and_nothing_else_happens(
    begin: Begin, stepped_s: int, present: bool
) -> None:
    broker = begin()
    pass_by(broker, "c", 3_600)
    broker.set_clock(stepped_s)
    # A broker that runs goes on by the time that has passed.
    broker.pass_time(1_800)
    assert on_record(broker) == ["c"]
    broker.restart()
    back = Peer(broker)
    items = [("session_expiry_interval", 3_600)]
    assert back.connect("c", clean=False, items=items).session_present is present
    back.disconnect()
    # The schedule is found anew from where the clock stands.
    broker.pass_time(3 * 3_600)
    assert on_record(broker) == []


def test_a_reload_changes_the_schedule(begin: Begin) -> None:
    broker = begin(session_expiry_cron="0 0 0 1 1 ?")
    pass_by(broker, "brief", 10)
    broker.pass_time(7_200)
    assert on_record(broker) == ["brief"]
    server = broker.server()
    server.reconfigure(replace(server.config, session_expiry_cron="0 * * * * ?"))
    broker.pass_time(60 + SWEPT_S)
    assert on_record(broker) == []
