"""A day without the remote: what is published waits on disk, and all of it arrives in its order."""

import asyncio

import pytest

from tests.simulation.carriage import check_a_message_is_sent_once_on_a_connection
from tests.simulation.pair import Pair, with_pair

DAY_S = 86_400
HOURS = 24
EACH_HOUR = 400
LONGEST_WAIT_S = 150
POSITIONS_MAXIMUM = 4_096
"""What a queue keeps in memory (`QUEUE_ENTRIES_MAXIMUM` of the kernel)."""


@pytest.mark.slow
@pytest.mark.accepts("S1.43", "S1.49", "S1.53", "S1.57", "S1.58", "S1.70")
def test_a_day_without_the_remote_delays_messages_and_loses_none() -> None:
    async def body(pair: Pair) -> None:
        await pair.cut_off()
        pair.far.machine.kill()
        link, published = pair.link, list[str]()
        buffered = list[int]()
        for hour in range(HOURS):
            batch = [f"{hour}-{number}" for number in range(EACH_HOUR)]
            await pair.publish(*batch, qos=1 + hour % 2)
            published += batch
            await asyncio.sleep(DAY_S / HOURS)
            buffered.append(link.queue.polled_to() - link.queue.mark())
        attempts = link.counts.attempts
        assert DAY_S / LONGEST_WAIT_S < attempts < DAY_S / 120 + 10, "at the cap, and for ever"
        assert pair.sent() == []
        assert link.queue.shelved() == (0, 0)
        # Memory is full early in the day, and as full at its end with twice as much on disk.
        assert POSITIONS_MAXIMUM - EACH_HOUR < buffered[HOURS // 2] == buffered[-1]
        assert buffered[-1] <= POSITIONS_MAXIMUM
        pair.far.machine.recover()
        await pair.wire.open()
        await pair.until(pair.near.is_drained, LONGEST_WAIT_S + 60)
        for qos in (1, 2):
            mine = [text for text in published if 1 + int(text.split("-")[0]) % 2 == qos]
            assert pair.sent(qos=qos) == mine
        assert len(pair.sent()) == len(published)
        assert check_a_message_is_sent_once_on_a_connection(pair.wire.seen) == []
        assert pair.lost() == {}

    with_pair(body)
