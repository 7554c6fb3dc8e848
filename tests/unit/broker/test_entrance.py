"""What enters without a connection is stored, sent and answered as what a client publishes."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.broker.assemble import assemble
from holdfast.broker.counts import Counts, Event
from holdfast.broker.delivery.entrance import (
    IN_FLIGHT_MAXIMUM,
    ITSELF,
    Entrance,
    NotTaken,
    Publication,
    Publisher,
)
from holdfast.broker.delivery.parties import BROKER_PARTY
from holdfast.core.config import Config
from holdfast.core.subscription import Subscription
from holdfast.kernel import (
    LIMITS,
    Arrivals,
    BusyError,
    Inbox,
    Log,
    Outboxes,
    Routes,
    SimulatedDisk,
    decode_packets,
    encode_packet,
)
from tests.builders.still import StillWorld, Wire, settled
from tests.conformance.brokers import VirtualBroker

NOW_US = 1_000_000
Told = list[tuple[str, NotTaken | None]]


class Desk:
    """An entrance, and the log behind it."""

    def __init__(self, *, reserve_bytes: int = 0) -> None:
        self.log, _ = Log.open_simulated(
            SimulatedDisk(1),
            segment_bytes=2**20,
            cache_bytes=2**16,
            reserve_bytes=reserve_bytes,
            durability="fsync",
            seed=7,
            now_us=NOW_US,
        )
        self.counts = Counts()
        self.entrance = Entrance(self.counts)
        self.told: Told = []
        self._inbox = Inbox(bytearray(64))
        self._arrivals = Arrivals()

    def publish(self, name: str, qos: int, *, retain: bool = False) -> None:
        """`told` has of it what it is told."""

        def tell(what: str) -> Callable[[NotTaken | None], None]:
            return lambda not_taken: self.told.append((f"{name} {what}", not_taken))

        publication = Publication(
            name, b"x", qos, retain, appended=tell("appended"), answered=tell("answered")
        )
        self.entrance.publish(publication)

    def turn(self) -> int:
        """What a turn does of it; how many entered."""
        self._inbox.decode(self._arrivals, NOW_US)
        self.entrance.enter(self._arrivals)
        entered = self._arrivals.publishes
        self.log.append(self._arrivals, [], NOW_US)
        self.entrance.appended(self._arrivals)
        self.entrance.durable(self.log.durable_position())
        return entered


@pytest.mark.parametrize("qos", [1, 2])
def test_it_is_answered_when_the_disk_has_it(qos: int) -> None:
    desk = Desk()
    desk.publish("a", qos)
    assert desk.entrance.waiting()
    assert desk.turn() == 1
    assert desk.told == [("a appended", None)]
    assert desk.entrance.unanswered
    assert not desk.entrance.waiting()
    desk.log.commit()
    desk.turn()
    assert desk.told == [("a appended", None), ("a answered", None)]
    assert not desk.entrance.unanswered
    assert desk.entrance.published == 1


def test_at_qos_0_it_is_answered_when_it_is_on_its_way() -> None:
    desk = Desk()
    desk.publish("a", 0)
    desk.turn()
    assert desk.told == [("a appended", None), ("a answered", None)]
    assert desk.log.end_offset() == 0


def test_what_the_log_refuses_is_told_why_and_counted() -> None:
    desk = Desk(reserve_bytes=2**63)
    desk.publish("a", 1)
    desk.publish("b", 0, retain=True)
    desk.turn()
    assert desk.told == [
        ("a appended", NotTaken.NO_ROOM),
        ("a answered", NotTaken.NO_ROOM),
        ("b appended", None),
        ("b answered", None),
    ], "at QoS 0 nothing is promised"
    assert desk.counts.total(Event.OWN_PUBLISHES_REFUSED) == 1
    assert not desk.entrance.unanswered


def test_so_many_wait_for_the_disk_and_the_others_here_in_their_order() -> None:
    desk = Desk()
    names = [f"t{number}" for number in range(IN_FLIGHT_MAXIMUM + 10)]
    for name in names:
        desk.publish(name, 1)
    assert desk.turn() == IN_FLIGHT_MAXIMUM
    assert not desk.entrance.waiting()
    assert desk.turn() == 0
    desk.log.commit()
    desk.turn()
    assert desk.entrance.waiting()
    assert desk.turn() == 10
    desk.log.commit()
    desk.turn()
    answered = [what for what, _ in desk.told if what.endswith("answered")]
    assert answered == [f"{name} answered" for name in names]


def test_a_turn_takes_so_many_and_the_next_one_more() -> None:
    desk = Desk()
    maximum = LIMITS["submissions_maximum"]
    for number in range(maximum + 1):
        desk.publish(f"t{number}", 0)
    assert desk.turn() == maximum
    assert desk.entrance.waiting()
    assert desk.turn() == 1
    assert not desk.entrance.waiting()


def put(arrivals: Arrivals, topic_name: bytes = b"a", **properties: object) -> None:
    arrivals.put(
        topic_name, b"x", qos=1, retain=False, properties=properties, party=BROKER_PARTY, key_slot=0
    )


def test_a_full_turn_and_a_message_that_nobody_may_publish_are_told_apart() -> None:
    arrivals = Arrivals()
    for topic_name in (b"", b"a/+", b"\xff"):
        with pytest.raises(ValueError, match="nobody may publish"):
            put(arrivals, topic_name)
    for name in ("topic_alias", "subscription_identifier"):
        with pytest.raises(ValueError, match="does not travel"):
            put(arrivals, **{name: 1})
    with pytest.raises(ValueError, match="Response Topic"):
        put(arrivals, response_topic="a/+")
    assert arrivals.publishes == 0
    for _ in range(LIMITS["submissions_maximum"]):
        put(arrivals)
    with pytest.raises(BusyError):
        put(arrivals)


def test_a_subscriber_gets_it_with_what_travels_with_it(tmp_path: Path) -> None:
    async def story() -> None:
        world = StillWorld()
        server = assemble(Config(data_dir=tmp_path, retention_bytes=2**30), world)
        wire = Wire(server.stages.connections.make())
        connect = {"client_identifier": "c", "clean_start": True, "keep_alive_s": 0}
        wire.send(encode_packet("connect", connect, protocol_version=5))
        await settled(world)
        wanted = [{"topic_filter": "$SYS/#", "qos": 1}]
        subscribe = {"packet_identifier": 1, "subscriptions": wanted}
        wire.send(encode_packet("subscribe", subscribe, protocol_version=5))
        await settled(world)
        wire.written.clear()
        properties = {"content_type": "text/plain", "user_property": [("b", "1"), ("a", "2")]}
        expiring = {**properties, "message_expiry_interval": 60}
        server.stages.entrance.publish(Publication("$SYS/a", b"x", 1, False, expiring))
        server.ask_turn()
        await settled(world)
        [packet] = decode_packets(bytes(wire.written), protocol_version=5, role="client")[0]
        assert (packet.kind, packet.fields["topic_name"]) == ("publish", "$SYS/a")
        assert packet.fields["properties"] == expiring

    asyncio.run(story())


def test_no_local_keeps_it_from_whoever_it_counts_as() -> None:
    desk, routes = Desk(), Routes(1)
    owner = Publisher(BROKER_PARTY + 5, 0)
    reads = Subscription(topic_filter="a", qos=1, from_offset=0, no_local=True)
    routes.subscribe(1, 1, owner.party, [reads])
    for publisher in (owner, ITSELF):
        desk.entrance.publish(Publication("a", b"x", 0, False, publisher=publisher))
    outboxes = Outboxes()
    outboxes.open(
        1,
        protocol_version=4,
        maximum_packet_size_bytes=2**20,
        topic_alias_maximum=0,
        party=owner.party,
    )
    arrivals = Arrivals()
    desk.entrance.enter(arrivals)
    routes.route(arrivals)
    outboxes.pass_through(arrivals)
    assert outboxes.counters()["publishes_sent"] == 1


def test_what_waits_when_the_broker_stops_is_in_the_log_when_it_has_stopped() -> None:
    broker = VirtualBroker()
    server, wanted = broker.server(), 3 * IN_FLIGHT_MAXIMUM
    for number in range(wanted):
        server._stages.entrance.publish(Publication(f"t/{number}", b"", 1, retain=False))
    broker.stop()
    broker.begin()
    assert broker.server()._stages.kernel.log.end_offset() == wanted
    broker.stop()
    broker.close()
