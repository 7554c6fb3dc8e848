"""A disk that fills up: publishers are refused as each can be told, consumers drain, and publishing
goes on by itself when there is room again."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tests.equipment.clients import Client, ClientOptions
from tests.equipment.history import Acknowledged, Event, History, Message, Received, Refused
from tests.interop.seen import Seen
from tests.process import HOST
from tests.small_disk import SmallDisk, small_disk

QUOTA_EXCEEDED = 0x97
PADDING_BYTES = 4_000
MESSAGES_MAXIMUM = 20_000
"""More than the disk holds: 80 MB."""
WITHIN_S = 60.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    place = tmp_path / "disk"
    place.mkdir()
    with small_disk(place) as made:
        yield made


@pytest.fixture
def broker(disk: SmallDisk) -> Iterator[Seen]:
    made = Seen(
        disk.directory,
        reserve_bytes=disk.reserve_bytes,
        segment_bytes="4MiB",
        maximum_packet_size_bytes="64KiB",
        retention_bytes="1GiB",
        queue_messages_maximum=65_535,
        store_all="zero/#",
    )
    made.start()
    yield made
    if made.is_running():
        made.kill()


class Site:
    """The clients of one test."""

    def __init__(self, port: int) -> None:
        self.history = History(watch=self._watch)
        self.acknowledged: set[Message] = set()
        self.refused: dict[Message, int] = {}
        self.received: list[Message] = []
        self._port = port
        self._changed = asyncio.Event()
        self._sequence = 0

    def _watch(self, event: Event) -> None:
        match event:
            case Acknowledged(message):
                self.acknowledged.add(message)
            case Refused(message, reason_code):
                self.refused[message] = reason_code
            case Received(_, message, _, _, _):
                self.received.append(message)
            case _:
                return
        self._changed.set()

    async def client(self, name: str, version: int = 5) -> Client:
        options = ClientOptions(protocol_version=version, receive_maximum=500)
        client = Client(name, self.history, options, Random(0))
        await client.connect(HOST, self._port)
        return client

    async def reconnect(self, client: Client) -> None:
        await client.connect(HOST, self._port)

    def publish(self, client: Client, qos: int, topic: str = "t") -> Message:
        self._sequence += 1
        padding = PADDING_BYTES
        message = Message(client.name, topic, self._sequence, qos, padding_bytes=padding)
        client.publish(message)
        return message

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    async def fill(self, client: Client, qos: int) -> None:
        """Publishes until it is refused."""
        for _ in range(MESSAGES_MAXIMUM):
            self.publish(client, qos)
            if client.waiting() > 100:
                await client.idle.wait()
            if self.refused:
                await client.idle.wait()
                return
        raise AssertionError("the disk was never full")

    async def publish_until_taken(self, client: Client) -> None:
        """Tries again and again, as a device does."""
        async with asyncio.timeout(WITHIN_S):
            while (message := self.publish(client, 1)) not in self.acknowledged:
                await client.idle.wait()
                if message in self.acknowledged:
                    return


def run(port: int, test: Callable[[Site], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(Site(port))

    asyncio.run(main())


def refusals(broker: Seen) -> float:
    """How often messages were refused, for whatever reason."""
    found = broker.get("/v1/statistics")["statistics"]
    return sum(
        value for name, value in found.items() if name.startswith("holdfast_publishes_refused")
    )


@pytest.mark.slow
@pytest.mark.parametrize("qos", [1, 2])
def test_publishers_are_refused_as_each_can_be_told(broker: Seen, qos: int) -> None:
    async def test(site: Site) -> None:
        publisher = await site.client("new")
        old = await site.client("old", 4)
        none = await site.client("none")
        await site.fill(publisher, qos)
        assert set(site.refused.values()) == {QUOTA_EXCEEDED}
        # An old client cannot be told: it is not acknowledged, and it is cut off.
        lost = site.publish(old, qos)
        async with asyncio.timeout(WITHIN_S):
            await old.lost.wait()
        assert lost not in site.acknowledged
        # At QoS 0 nobody can be told: it is dropped and counted.
        refused = refusals(broker)
        site.publish(none, 0, "zero/t")
        # Packets of a connection are dealt with in their order.
        await none.subscribe("another", 0)
        assert refusals(broker) == refused + 1

    run(broker.port, test)


@pytest.mark.slow
def test_consumers_drain_a_full_disk_and_publishing_goes_on_by_itself(
    broker: Seen, disk: SmallDisk
) -> None:
    disk.fill()

    async def fill(site: Site) -> None:
        away = await site.client("away")
        await away.subscribe("t", 1)
        away.disconnect()
        publisher = await site.client("publisher")
        await site.fill(publisher, 1)
        wanted = set(site.acknowledged)
        # A new session, its subscription and acknowledgements still have room.
        await (await site.client("newcomer")).subscribe("t", 1)
        await site.reconnect(away)
        await site.until(lambda: wanted <= set(site.received))
        away.disconnect()
        await away.lost.wait()
        disk.free()
        await site.publish_until_taken(publisher)

    run(broker.port, fill)


@pytest.mark.slow
def test_a_broker_that_is_killed_on_a_full_disk_starts_and_remembers(broker: Seen) -> None:
    async def fill(site: Site) -> None:
        away = await site.client("away")
        await away.subscribe("t", 1)
        away.disconnect()
        await site.fill(await site.client("publisher"), 1)
        await site.reconnect(away)
        wanted = set(site.acknowledged)
        await site.until(lambda: wanted <= set(site.received))
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
        site.refused.clear()
        publisher = await site.client("publisher")
        site.publish(publisher, 1)
        await publisher.idle.wait()
        assert set(site.refused.values()) == {QUOTA_EXCEEDED}
        assert await away.connect(HOST, broker.port), "the session was lost"

    run(broker.port, fill)
