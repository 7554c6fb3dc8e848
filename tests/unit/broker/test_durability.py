"""Nothing that has to outlive a crash is answered before the disk has it, and all of it is then."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.broker.access.users import Users
from holdfast.broker.admin.http.operation import Asked
from holdfast.broker.admin.v1.sessions import SessionsView
from holdfast.broker.assemble import assemble
from holdfast.broker.observe.watch import Watch
from holdfast.broker.state.broker import look_at
from holdfast.core.config import Config
from holdfast.kernel import Log, SimulatedDisk, encode_packet
from tests.builders.still import NOW_US, StillWorld, Wire

TURNS = 20
"""More than anything takes that waits for nobody."""


class PatientDisk(StillWorld):
    """A world whose disk takes what it has when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk(1)

    def open_log(self, config: Config) -> tuple[Log, dict[str, Any]]:
        return Log.open_simulated(
            self.disk,
            segment_bytes=config.segment_bytes,
            cache_bytes=config.cache_bytes,
            reserve_bytes=0,
            durability="fsync",
            seed=7,
            now_us=NOW_US,
        )


class Bench:
    """A broker on a patient disk, and its clients."""

    def __init__(self) -> None:
        self.world = PatientDisk()
        config = Config(data_dir=Path("simulated"), segment_bytes=2**20, retention_bytes=2**30)
        self.server = assemble(config, self.world)

    async def turns(self) -> None:
        """Everything is done that does not wait for the disk, whatever else makes a turn."""
        for _ in range(TURNS):
            self.server.ask_turn()
            await asyncio.sleep(0)

    async def connect(self, name: str, *, clean: bool) -> Wire:
        """A connection that has asked to be admitted."""
        wire = Wire(self.server.stages.connections.make())
        fields = {"client_identifier": name, "clean_start": clean, "keep_alive_s": 0}
        wire.send(encode_packet("connect", fields, protocol_version=4))
        await self.turns()
        return wire

    async def connected(self, name: str, *, clean: bool = False) -> Wire:
        """A connection on which everything has been answered."""
        wire = await self.connect(name, clean=clean)
        await self.sync()
        assert wire.packets() == {"connack": 1}
        return wire

    async def sync(self) -> None:
        """The disk has everything."""
        self.world.commits_made.commit()
        await self.turns()

    async def is_kept_back(self, wire: Wire, kind: str) -> None:
        """The answer comes, and it comes with the disk."""
        await self.turns()
        assert wire.packets() == {}, "it was answered before the disk had it"
        await self.sync()
        assert wire.packets() == {kind: 1}


def send(wire: Wire, kind: str, **fields: Any) -> None:
    wire.send(encode_packet(kind, fields, protocol_version=4))


def publish(wire: Wire, qos: int) -> None:
    message = {"topic_name": "t", "payload": b"x", "retain": False, "dup": False}
    send(wire, "publish", packet_identifier=1, qos=qos, **message)


def subscribe(wire: Wire) -> None:
    send(wire, "subscribe", packet_identifier=2, subscriptions=[{"topic_filter": "t", "qos": 1}])


def release(wire: Wire) -> None:
    send(wire, "pubrel", packet_identifier=1)


def run(story: Callable[[Bench], Awaitable[None]]) -> None:
    """Tells a story of a broker whose disk is slow."""

    async def main() -> None:
        await story(Bench())

    asyncio.run(main())


@pytest.mark.parametrize(("qos", "kind"), [(1, "puback"), (2, "pubrec")])
@pytest.mark.parametrize("clean", [False, True])
def test_a_message_is_acknowledged_when_it_is_durable(qos: int, kind: str, clean: bool) -> None:
    async def story(bench: Bench) -> None:
        publisher = await bench.connected("p", clean=clean)
        publish(publisher, qos)
        await bench.is_kept_back(publisher, kind)

    run(story)


def test_a_released_identifier_is_answered_when_that_is_durable() -> None:
    async def story(bench: Bench) -> None:
        publisher = await bench.connected("p")
        publish(publisher, 2)
        await bench.is_kept_back(publisher, "pubrec")
        release(publisher)
        await bench.is_kept_back(publisher, "pubcomp")

    run(story)


def test_a_session_that_is_kept_is_announced_when_it_is_durable() -> None:
    async def story(bench: Bench) -> None:
        await bench.is_kept_back(await bench.connect("c", clean=False), "connack")

    run(story)


def test_a_session_that_ends_is_gone_for_good_when_its_successor_is_announced() -> None:
    async def story(bench: Bench) -> None:
        (await bench.connected("c")).drop()
        await bench.sync()
        await bench.is_kept_back(await bench.connect("c", clean=True), "connack")

    run(story)


def test_subscriptions_of_a_kept_session_are_answered_when_they_are_durable() -> None:
    async def story(bench: Bench) -> None:
        subscriber = await bench.connected("c")
        subscribe(subscriber)
        await bench.is_kept_back(subscriber, "suback")
        send(subscriber, "unsubscribe", packet_identifier=3, topic_filters=["t"])
        await bench.is_kept_back(subscriber, "unsuback")

    run(story)


def test_a_delivery_at_qos_2_leaves_when_its_identifier_is_durable() -> None:
    async def story(bench: Bench) -> None:
        subscriber = await bench.connected("s")
        wanted = [{"topic_filter": "t", "qos": 2}]
        send(subscriber, "subscribe", packet_identifier=2, subscriptions=wanted)
        await bench.is_kept_back(subscriber, "suback")
        publisher = await bench.connected("p")
        publish(publisher, 2)
        await bench.turns()
        await bench.sync()
        assert publisher.packets() == {"pubrec": 1}
        await bench.is_kept_back(subscriber, "publish")

    run(story)


def test_what_ends_with_its_connection_waits_for_nothing() -> None:
    async def story(bench: Bench) -> None:
        client = await bench.connect("c", clean=True)
        assert client.packets() == {"connack": 1}
        subscribe(client)
        send(client, "pingreq")
        await bench.turns()
        assert client.packets() == {"suback": 1, "pingresp": 1}

    run(story)


CHANGES: dict[str, Callable[[Users], int]] = {
    "a user": lambda users: users.add({"name": "gate"}, "hash"),
    "its rules": lambda users: users.add({"name": "gate", "allow": ["a/#"]}, "hash"),
    "a rule for everyone": lambda users: users.replace_rules("everyone", []),
}


async def is_kept_back(bench: Bench, answer: Coroutine[Any, Any, object]) -> None:
    """An operator is answered, and with the disk."""
    async with asyncio.TaskGroup() as group:
        answering = group.create_task(answer)
        await bench.turns()
        assert not answering.done(), "it was answered before the disk had it"
        await bench.sync()
        assert answering.done()


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_operators_change_is_answered_when_it_is_durable(change: Callable[[Users], int]) -> None:
    async def story(bench: Bench) -> None:
        users, wait_durable = bench.server.users()

        async def answer() -> None:
            await wait_durable(change(users))

        await is_kept_back(bench, answer())

    run(story)


def test_a_session_that_an_operator_removes_is_gone_for_good_when_that_is_answered() -> None:
    async def story(bench: Bench) -> None:
        server = bench.server
        (await bench.connected("c")).drop()
        await bench.sync()
        sessions = SessionsView(look_at(server, "absent"), server.commands, cast(Watch, None))
        asked = Asked(cast(Any, None), {"client_identifier": "c"}, {}, {})
        await is_kept_back(bench, sessions.remove(asked))

    run(story)
