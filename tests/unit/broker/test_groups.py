"""Groups of shared subscriptions: how long they live, and what an operator sees of them."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker.assemble import assemble
from holdfast.broker.chores import at_once
from holdfast.broker.delivery.queue_at_rest import waiting
from holdfast.broker.server import Server
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.tables import Table, parse_queue
from holdfast.core.config import Config
from holdfast.core.limits import SHARED_GROUPS_MAXIMUM, SHARED_MEMBERS_MAXIMUM
from holdfast.core.subscription import Subscription
from holdfast.kernel import encode_packet
from tests.builders.still import StillWorld, Wire, settled

SECOND_US = 1_000_000


class Broker:
    """A broker that stands still until a test lets it go on."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.world = StillWorld()
        self.server: Server = assemble(
            Config(data_dir=directory, retention_bytes=2**30, **settings), self.world
        )
        self.groups = self.server._stages.groups

    async def client(self, name: str, *, clean: bool = True) -> Wire:
        wire = Wire(self.server._stages.connections.make())
        connect = {"client_identifier": name, "clean_start": clean, "keep_alive_s": 0}
        wire.send(encode_packet("connect", connect, protocol_version=4))
        await settled(self.world)
        return wire

    async def subscribe(self, wire: Wire, topic_filter: str, qos: int = 1) -> None:
        wanted = {
            "packet_identifier": 1,
            "subscriptions": [{"topic_filter": topic_filter, "qos": qos}],
        }
        wire.send(encode_packet("subscribe", wanted, protocol_version=4))
        await settled(self.world)

    async def publish(self, wire: Wire, topic: str, count: int) -> None:
        fields = {"topic_name": topic, "payload": b"x", "qos": 1, "retain": False, "dup": False}
        for number in range(1, count + 1):
            packet = fields | {"packet_identifier": number}
            wire.send(encode_packet("publish", packet, protocol_version=4))
        await settled(self.world)

    async def leave(self, wire: Wire) -> None:
        wire.send(encode_packet("disconnect", {}, protocol_version=4))
        await settled(self.world)

    def later(self, seconds: int) -> None:
        self.world.time_us += seconds * SECOND_US
        self.server._sweep.run(self.world.time_us)

    def overview(self) -> list[dict[str, Any]]:
        def client_of(connection: int) -> str:
            attached = self.server._stages.sessions.of(connection)
            assert attached is not None
            return attached.session.client_identifier

        log = self.server._stages.kernel.log
        return [
            self.groups.describe(name, client_of)
            | {"queued": at_once(self.groups.queued(name, Inquiry(log)))}
            for name in self.groups.names()
        ]


def run(test: Callable[[], Any]) -> None:
    asyncio.run(test())


def test_the_overview_names_members_and_counts_what_waits_and_what_is_in_flight(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        broker = Broker(tmp_path)
        publisher = await broker.client("publisher")
        member, away = await broker.client("member"), await broker.client("away", clean=False)
        for wire in (member, away):
            await broker.subscribe(wire, "$share/g/a/+")
        await broker.leave(away)
        member.stop_reading()
        await broker.publish(publisher, "a/b", 7)
        (seen,) = broker.overview()
        assert (seen["name"], seen["topic_filter"]) == ("g", "a/+")
        assert (seen["members"], seen["subscribers"]) == (["member"], 2)
        assert (seen["queued"], seen["in_flight"]) == (7, 0)
        member.go_on_reading()
        await settled(broker.world)
        (seen,) = broker.overview()
        assert (seen["queued"], seen["in_flight"]) == (0, 7)
        await broker.leave(member)
        await broker.publish(publisher, "a/b", 3)
        (seen,) = broker.overview()
        assert (seen["members"], seen["subscribers"]) == ([], 1)
        assert (seen["queued"], seen["in_flight"]) == (10, 0)

    run(story)


@pytest.mark.parametrize(("kept_s", "waits_s", "left"), [(0, 0, 0), (60, 59, 1), (60, 60, 0)])
def test_a_group_without_subscribers_is_kept_as_long_as_is_configured(
    tmp_path: Path, kept_s: int, waits_s: int, left: int
) -> None:
    async def story() -> None:
        broker = Broker(tmp_path, shared_group_expiry_s=kept_s)
        member = await broker.client("member")
        await broker.subscribe(member, "$share/g/a")
        await broker.leave(member)
        broker.later(waits_s)
        assert len(broker.groups) == left
        await settled(broker.world)
        assert len(broker.server.records.catch_up().shared_queues()) == left

    run(story)


def test_who_comes_in_time_keeps_the_group(tmp_path: Path) -> None:
    async def story() -> None:
        broker = Broker(tmp_path, shared_group_expiry_s=60)
        member = await broker.client("member")
        await broker.subscribe(member, "$share/g/a")
        await broker.leave(member)
        broker.later(59)
        member = await broker.client("another")
        await broker.subscribe(member, "$share/g/a")
        broker.later(1_000)
        (seen,) = broker.overview()
        assert (seen["members"], seen["ends_at_us"]) == (["another"], None)

    run(story)


def test_a_group_and_the_broker_have_only_so_much_room(tmp_path: Path) -> None:
    async def story() -> None:
        broker = Broker(tmp_path)
        for party in range(1, SHARED_MEMBERS_MAXIMUM + 1):
            broker.groups._subscribed(_subscription("$share/g/a"), party, broker.world.time_us)
        assert broker.groups.has_room("$share/g/a", 1, 0), "who is a member stays one"
        assert not broker.groups.has_room("$share/g/a", SHARED_MEMBERS_MAXIMUM + 1, 0)
        assert broker.groups.has_room("$share/h/a", 1, SHARED_GROUPS_MAXIMUM - 2)
        assert not broker.groups.has_room("$share/h/a", 1, SHARED_GROUPS_MAXIMUM - 1)

    run(story)


@pytest.mark.parametrize("filters", [("a",), ("$share/g/a",)])
def test_what_retention_gives_up_while_somebody_comes_back_is_not_delivered(
    tmp_path: Path, filters: tuple[str]
) -> None:
    async def story() -> None:
        broker = Broker(tmp_path)
        client, publisher = await broker.client("c", clean=False), await broker.client("p")
        await broker.subscribe(client, *filters)
        await broker.leave(client)
        await broker.publish(publisher, "a", 3)
        stages, now_us = broker.server.stages, broker.world.time_us
        (value,) = [
            value for _, value in broker.server.records.catch_up().rows(Table.QUEUES, b"", 9)
        ]
        record = parse_queue(value)
        prepared = at_once(stages.queues.prepare(record, now_us))
        stages.kernel.log.give_up(record.party, 0, 2, now_us)
        queue = stages.queues.cut(record, record.owner, prepared, now_us)
        assert at_once(waiting(Inquiry(stages.kernel.log), queue, 3)).count == 1

    run(story)


def _subscription(topic_filter: str) -> Subscription:
    return Subscription(
        topic_filter=topic_filter,
        qos=1,
        no_local=False,
        retain_as_published=False,
        identifier=None,
        from_offset=0,
    )
