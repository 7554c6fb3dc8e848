"""A day without the remote: what is published waits on disk, and all of it arrives in its order."""

import asyncio

import pytest

from tests.simulation.carriage import check_a_message_is_sent_once_on_a_connection
from tests.simulation.pair import Pair, with_pair

DAY_S = 86_400
HOURS = 24
EACH_HOUR = 400
LONGEST_WAIT_S = 150


@pytest.mark.slow
@pytest.mark.accepts("S1.43", "S1.49", "S1.53", "S1.57", "S1.58", "S1.70")
def test_a_day_without_the_remote_delays_messages_and_loses_none() -> None:
    async def body(pair: Pair) -> None:
        await pair.cut_off()
        pair.far.machine.kill()
        published = list[str]()
        for hour in range(HOURS):
            batch = [f"{hour}-{number}" for number in range(EACH_HOUR)]
            await pair.publish(*batch, qos=1 + hour % 2)
            published += batch
            await asyncio.sleep(DAY_S / HOURS)
        link = pair.link
        attempts = link.counts.attempts
        assert DAY_S / LONGEST_WAIT_S < attempts < DAY_S / 120 + 10, "at the cap, and for ever"
        assert pair.sent() == []
        assert link.queue.shelved() == (0, 0)
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
