"""What is published is delivered, waits, or stands in the ledger of losses."""

import asyncio

import msgspec
import pytest

from tests.simulation.pair import Pair, with_pair
from tests.simulation.remote import Bridged, with_remote

SMALL_BUFFER_BYTES = 64 * 1024
LARGE = "x" * 1_000


@pytest.mark.accepts("S1.46", "S1.76")
def test_what_a_full_shelf_loses_is_in_the_ledger() -> None:
    async def body(pair: Pair) -> None:
        await pair.cut_off()
        for number in range(100):
            await pair.publish(f"{number} {LARGE}", qos=0)
        waiting, size_bytes = pair.link.queue.shelved()
        assert 0 < waiting < 100
        assert size_bytes <= SMALL_BUFFER_BYTES
        await asyncio.sleep(2)
        assert pair.lost() == {"overflow": 100 - waiting}
        await pair.wire.open()
        await pair.until(pair.near.is_drained)
        newest = [int(text.split()[0]) for text in pair.sent()]
        assert newest == list(range(100 - waiting, 100)), "the oldest have gone"

    with_pair(body, settings={"bridges_buffer_bytes": SMALL_BUFFER_BYTES})


@pytest.mark.accepts("S1.49")
def test_a_shelf_that_is_full_costs_no_message_of_qos_1_or_2() -> None:
    async def body(pair: Pair) -> None:
        await pair.cut_off()
        for number in range(40):
            for qos in (0, 1, 2):
                await pair.publish(f"{qos} {number} {LARGE * 2}", qos=qos)
        await pair.wire.open()
        await pair.until(pair.near.is_drained)
        await asyncio.sleep(1)
        for qos in (1, 2):
            assert [text.split()[1] for text in pair.sent(qos=qos)] == [str(n) for n in range(40)]
        assert pair.lost() == {"overflow": 40 - len(pair.sent(qos=0))}

    with_pair(body, settings={"bridges_buffer_bytes": SMALL_BUFFER_BYTES})


def test_what_retention_takes_from_a_bridge_is_in_the_ledger() -> None:
    async def body(pair: Pair) -> None:
        await pair.cut_off()
        for number in range(200):
            await pair.publish(f"{number} {LARGE}")
        await asyncio.sleep(30)
        lost = pair.lost()
        await pair.wire.open()
        await pair.until(pair.near.is_drained)
        assert lost["retention"] > 0
        assert len(pair.sent()) + lost["retention"] == 200
        assert pair.lost() == lost

    # A log that keeps nothing that is sealed.
    with_pair(body, settings={"retention_bytes": 0})


@pytest.mark.parametrize("how", ["stopped", "changed", "removed"])
def test_what_a_bridge_that_ends_had_in_memory_is_in_the_ledger(how: str) -> None:
    async def body(bridged: Bridged) -> None:
        bridges, bridge = bridged.server.stages.bridges, bridged.link.bridge
        bridges.run("b", is_running=False, now_us=1)
        bridged.remote.ends_at_once = True
        bridges.put(msgspec.structs.replace(bridge, name="c"), 1)
        await bridged.publish("up/x", b"1", b"2", b"3", qos=0)
        assert bridged.link.queue.shelved()[0] == 3
        match how:
            case "stopped":
                bridges.run("c", is_running=False, now_us=1)
            case "changed":
                bridges.put(msgspec.structs.replace(bridge, name="c", keep_alive_s=30), 1)
            case "removed":
                bridges.remove("c", 1)
        await asyncio.sleep(3)
        assert bridged.losses() == [("c", "session_ended", 3)]

    with_remote(body)
