"""A day without the remote while messages come by the million: they wait on disk, memory stays, and
the drain is complete and in order."""

import asyncio
from collections import Counter

import pytest

from holdfast.broker.bridge.link import State
from holdfast.core.units import MIB
from holdfast.testing.hardships import Hardships
from holdfast.testing.loop import VirtualLoop, simulate
from tests.equipment.history import Ledger
from tests.simulation.bulk import BATCH_MESSAGES, TOPIC, BulkPublisher, BulkRemote
from tests.simulation.carriage import left_over
from tests.simulation.sites import Site, carries

DAY_S = 86_400
HOURS = 24
HOST, PORT = "10.9.9.9", 1883
LONGEST_WAIT_S = 150
DRAINED_WITHIN_S = LONGEST_WAIT_S + 600
BUFFER_BYTES = 1 * MIB
MARGIN_BYTES = 16 * MIB
"""What a bridge may take beside its buffer, whatever waits: positions, and bytes for the socket."""
POSITIONS_MAXIMUM = 4_096
"""What a queue keeps in memory (`QUEUE_ENTRIES_MAXIMUM` of the kernel)."""
SEGMENT_BYTES = 4 * MIB


class Day:
    """One site whose remote is away for a day."""

    def __init__(self, loop: VirtualLoop, messages: int) -> None:
        self._batch = -(-messages // HOURS)
        self.remote = BulkRemote(self._look)
        self.publisher = BulkPublisher()
        self.site = Site(
            loop,
            "a",
            bridges_storage="FILE_NATIVE",
            bridges_buffer_bytes=BUFFER_BYTES,
            receive_maximum=BATCH_MESSAGES,
            segment_bytes=SEGMENT_BYTES,
            checkpoint_bytes=4 * SEGMENT_BYTES,
            reserve_bytes=4 * SEGMENT_BYTES,
        )
        filters = [carries(TOPIC)]
        self.site.join("b", address=f"mqtt://{HOST}:{PORT}", local_subscriptions=filters)
        self.sent = dict.fromkeys((0, 1, 2), 0)
        self.memory_bytes = 0
        """The most that was seen."""

    async def begin(self) -> None:
        """The bridge is connected, and then the remote goes away."""
        await self.remote.open(HOST, PORT)
        await self.site.start()
        await asyncio.sleep(1)
        await self.publisher.connect(self.site.host, PORT)
        assert self.site.link("b").state is State.CONNECTED
        self.remote.close()

    async def live_through(self) -> None:
        """Each hour its share comes, at QoS 1 and 2 by turns, and some at QoS 0."""
        link = self.site.link("b")
        for hour in range(HOURS):
            qos = 1 + hour % 2
            await self._publish(self._batch, qos)
            await self._publish(self._batch // HOURS, 0)
            await asyncio.sleep(DAY_S / HOURS)
            self._look()
            assert link.queue.polled_to() - link.queue.mark() <= POSITIONS_MAXIMUM
        assert self.remote.connections == 1

    async def drain(self) -> None:
        """The remote is back, and all goes there."""
        await self.remote.open(HOST, PORT)
        async with asyncio.timeout(DRAINED_WITHIN_S):
            while not self.site.is_drained():  # noqa: ASYNC110 (as in `Pair.until`)
                await asyncio.sleep(1)

    def lost(self) -> dict[str, int]:
        """What the ledger says that the bridge has lost, by reason."""
        found = Counter[str]()
        for event in left_over(self.site):
            if isinstance(event, Ledger):
                found[str(event.reason)] += event.count
        return found

    async def _publish(self, count: int, qos: int) -> None:
        for begin in range(0, count, BATCH_MESSAGES):
            size = min(BATCH_MESSAGES, count - begin)
            await self.publisher.publish(self.sent[qos], self.sent[qos] + size, qos)
            self.sent[qos] += size

    def _look(self) -> None:
        queue = self.site.link("b").queue
        outboxes = self.site.server.stages.kernel.outboxes
        waiting_bytes = outboxes.waiting_bytes(queue._connection)
        self.memory_bytes = max(self.memory_bytes, queue.shelved()[1] + waiting_bytes)


@pytest.mark.slow
@pytest.mark.accepts("S1.43", "S1.44", "S1.49", "S1.57")
@pytest.mark.parametrize("messages", [1_000_000, pytest.param(10_000_000, marks=pytest.mark.long)])
def test_what_waits_for_a_day_takes_no_memory_and_arrives_in_order(messages: int) -> None:
    async def main(loop: VirtualLoop) -> None:
        day = Day(loop, messages)
        await day.begin()
        await day.live_through()
        assert day.memory_bytes <= BUFFER_BYTES + MARGIN_BYTES
        await day.drain()
        assert day.memory_bytes <= BUFFER_BYTES + MARGIN_BYTES
        arrived, sent = day.remote.arrived, day.sent
        assert (arrived[1], arrived[2]) == (sent[1], sent[2])
        assert day.remote.misplaced == []
        assert day.lost() == {"overflow": sent[0] - arrived[0]}, "the oldest of QoS 0"

    simulate(main, seed=1, repeat="this test", hardships=Hardships())
