"""What a bridge does while its remote is away, and in which order when it is back."""

import asyncio
import logging

import pytest

from holdfast.broker.bridge.link import State
from tests.simulation.carriage import check_a_message_is_sent_once_on_a_connection
from tests.simulation.pair import Pair, with_pair
from tests.simulation.sites import carries
from tests.simulation.wire import Seen


def numbered(count: int, prefix: str = "m") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


class Once:
    """Breaks a wire at the first packet of a kind."""

    def __init__(self, kind: str, *, is_outbound: bool) -> None:
        self._wanted = (kind, is_outbound)
        self.has_broken = False

    def __call__(self, seen: Seen) -> bool:
        if self.has_broken or (seen.kind, seen.is_outbound) != self._wanted:
            return False
        self.has_broken = True
        return True


# --- one message, and its marker ----------------------------------------------------------------


@pytest.mark.accepts("S1.3", "S1.4", "S1.5", "S1.6", "S1.61", "S1.67", "S1.69")
def test_a_message_of_qos_0_has_one_attempt_and_no_marker() -> None:
    async def body(pair: Pair) -> None:
        pair.wire.breaks_at = Once("publish", is_outbound=True)
        await pair.publish("lost", qos=0)
        assert pair.link.queue.in_flight() == 0
        await pair.until(pair.near.is_drained)
        await pair.publish("kept", qos=0)
        assert pair.sent() == ["lost", "kept"]
        assert pair.collector.payloads() == [b"kept"]

    with_pair(body)


@pytest.mark.accepts("S1.7", "S1.8", "S1.9", "S1.10", "S1.63", "S1.68")
def test_a_message_of_qos_1_is_marked_until_puback_and_sent_once_more_on_the_next_connection() -> (
    None
):
    async def body(pair: Pair) -> None:
        queue, mark = pair.link.queue, pair.link.queue.mark()
        pair.wire.breaks_at = lambda seen: seen.kind == "publish" and bool(pair.wire.silence())
        await pair.publish("m")
        await asyncio.sleep(20)
        assert (queue.in_flight(), queue.mark(), pair.sent()) == (1, mark, ["m"])
        pair.wire.breaks_at = lambda _seen: False
        pair.wire.cut()
        await pair.until(pair.near.is_drained)
        first, again = pair.wire.of_kind("publish")
        assert (first.fields["dup"], again.fields["dup"]) == (False, True)
        assert first.fields["packet_identifier"] == again.fields["packet_identifier"]
        assert (queue.in_flight(), queue.mark()) == (0, mark + 1)

    with_pair(body)


@pytest.mark.accepts("S1.11", "S1.12", "S1.13")
@pytest.mark.parametrize(
    ("kind", "outbound"),
    [("publish", True), ("pubrec", False), ("pubrel", True), ("pubcomp", False)],
)
@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_an_exchange_of_qos_2_that_is_cut_at_any_step_hands_on_once(
    kind: str, outbound: bool, version: str
) -> None:
    async def body(pair: Pair) -> None:
        queue = pair.link.queue
        cut = pair.wire.breaks_at = Once(kind, is_outbound=outbound)
        await pair.publish("m", qos=2)
        assert cut.has_broken
        assert queue.in_flight() == 1, "it is not done before PUBCOMP"
        await pair.until(lambda: queue.in_flight() == 0)
        await asyncio.sleep(1)
        assert pair.collector.payloads() == [b"m"]
        assert pair.wire.of_kind("pubcomp", outbound=False)

    with_pair(body, protocol_version=version)


@pytest.mark.accepts("S1.65")
def test_what_was_on_its_way_when_the_connection_broke_is_not_stuck() -> None:
    async def body(pair: Pair) -> None:
        pair.wire.breaks_at = Once("publish", is_outbound=True)
        await pair.publish(*numbered(20))
        await pair.until(pair.near.is_drained)
        await asyncio.sleep(1)
        assert pair.collector.payloads() == [text.encode() for text in numbered(20)]

    with_pair(body)


# --- an outage ----------------------------------------------------------------------------------


@pytest.mark.accepts("S1.43", "S1.44", "S1.45", "S1.46", "S1.47", "S1.76")
def test_messages_of_each_qos_wait_while_the_remote_is_away() -> None:
    async def body(pair: Pair) -> None:
        queue, mark = pair.link.queue, pair.link.queue.mark()
        await pair.cut_off()
        for qos in (0, 1, 2):
            await pair.publish(*numbered(5), qos=qos)
        assert (queue.shelved()[0], queue.mark(), pair.sent()) == (5, mark, [])
        await pair.wire.open()
        await pair.until(pair.near.is_drained)
        await asyncio.sleep(1)
        assert (queue.shelved(), queue.mark()) == ((0, 0), mark + 10)
        assert sorted(pair.collector.payloads()) == sorted(
            text.encode() for text in numbered(5) * 3
        )

    with_pair(body)


@pytest.mark.accepts("S1.58", "S1.59", "S1.60", "S1.62", "S1.64")
@pytest.mark.parametrize("window", [1, 4, 1_000])
def test_what_waited_goes_first_in_its_order_and_once(window: int) -> None:
    async def body(pair: Pair) -> None:
        await pair.cut_off()
        for number in range(10):
            for qos in (2, 1, 0):
                await pair.publish(f"{qos}-{number}", qos=qos)
        await pair.wire.open()
        await pair.until(lambda: bool(pair.sent()))
        await pair.publish("new", qos=1)
        await pair.until(pair.near.is_drained)
        sent = pair.sent()
        assert sent[:10] == numbered(10, "0-"), "what is only in memory leaves first"
        assert pair.sent(qos=1) == [*numbered(10, "1-"), "new"]
        assert pair.sent(qos=2) == numbered(10, "2-")
        assert len(sent) == len(set(sent)) == 31
        assert check_a_message_is_sent_once_on_a_connection(pair.wire.seen) == []

    with_pair(body, window=window)


@pytest.mark.accepts("S1.71", "S1.72", "S1.73", "S1.74", "S1.75")
def test_a_flapping_network_delivers_the_retry_first_and_the_rest_in_order() -> None:
    async def body(pair: Pair) -> None:
        wire, queue = pair.wire, pair.link.queue
        await pair.publish("M1")
        assert (pair.sent(), queue.in_flight()) == (["M1"], 0)
        await pair.cut_off()
        await pair.publish("M2", "M3")
        assert (pair.sent(), pair.link.state) == (["M1"], State.WAITING)
        cut = wire.breaks_at = Once("puback", is_outbound=False)
        await wire.open()
        await pair.until(lambda: cut.has_broken)
        wire.close()
        assert pair.sent() == ["M1", "M2"], "down again before it is acknowledged"
        await asyncio.sleep(0.5)
        await pair.publish("M4")
        assert pair.sent() == ["M1", "M2"]
        await wire.open()
        await pair.until(pair.near.is_drained)
        last = wire.of_kind("publish")[2:]
        assert [item.payload for item in last] == [b"M2", b"M3", b"M4"]
        assert [item.fields["dup"] for item in last] == [True, False, False]
        answered = wire.of_kind("puback", outbound=False)[2:]
        identifiers = [item.fields["packet_identifier"] for item in last]
        assert [item.fields["packet_identifier"] for item in answered] == identifiers
        await asyncio.sleep(1)
        assert pair.collector.payloads() == [b"M1", b"M2", b"M2", b"M3", b"M4"]

    with_pair(body, window=1)


# --- persist = false ----------------------------------------------------------------------------


@pytest.mark.accepts("S1.16", "S1.17", "S1.18", "S1.19", "S1.48")
def test_without_persistence_everything_is_carried_at_qos_0(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Runs in virtual time keep the product's log to themselves.
    monkeypatch.setattr(logging.getLogger("holdfast"), "propagate", True)

    async def body(pair: Pair) -> None:
        queue = pair.link.queue
        await pair.publish("now", qos=2)
        await pair.cut_off()
        await pair.publish("one", qos=1)
        await pair.publish("two", qos=2)
        assert (queue.in_flight(), queue.shelved()[0]) == (0, 2)
        await pair.wire.open()
        await pair.until(pair.near.is_drained)
        assert pair.sent(qos=0) == pair.sent() == ["now", "one", "two"]
        assert pair.wire.of_kind("puback", "pubrec", outbound=False) == []

    with_pair(body, local_subscriptions=[carries("t/#", persist=False)])
    sentence = "QoS for publishes from local subscriptions will be downgraded to AT_MOST_ONCE"
    assert sentence in [record.getMessage() for record in caplog.records]


# --- restarts -----------------------------------------------------------------------------------


@pytest.mark.accepts("S1.33", "S1.34", "S1.38", "S1.40", "S1.41")
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("storage", "persist", "left"),
    [("FILE_NATIVE", True, 15), ("IN_MEMORY", True, 0), ("FILE_NATIVE", False, 0)],
)
def test_a_restart_leaves_what_its_storage_says(
    storage: str, persist: bool, left: int, clean: bool
) -> None:
    async def body(pair: Pair) -> None:
        if persist:
            pair.wire.breaks_at = lambda seen: seen.kind == "publish" and bool(pair.wire.silence())
        else:
            await pair.cut_off()
        await pair.publish(*numbered(15))
        if persist:
            assert pair.link.queue.in_flight() == 3, "as many as the remote takes at once"
        await pair.cut_off()
        await pair.publish(*numbered(8, "z"), qos=0)
        assert pair.link.queue.shelved()[0] == 8 + (0 if persist else 15)
        pair.wire.seen.clear()
        pair.wire.breaks_at = lambda _seen: False
        await pair.restart(clean=clean)
        assert pair.link.queue.shelved() == (0, 0)
        await pair.wire.open()
        await pair.until(pair.near.is_drained)
        assert pair.sent() == numbered(left)
        await pair.publish("next")
        assert pair.sent()[-1] == "next"

    with_pair(
        body, storage=storage, window=3, local_subscriptions=[carries("t/#", persist=persist)]
    )


@pytest.mark.accepts("S1.42")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_crash_in_the_middle_of_forwarding_loses_nothing(qos: int) -> None:
    async def body(pair: Pair) -> None:
        await pair.cut_off()
        await pair.publish(*numbered(50), qos=qos)
        answer = "puback" if qos == 1 else "pubrec"
        await pair.wire.open()
        await pair.until(lambda: bool(pair.wire.of_kind(answer, outbound=False)))
        await pair.restart()
        await pair.until(pair.near.is_drained)
        await asyncio.sleep(1)
        found = pair.collector.payloads()
        assert list(dict.fromkeys(found)) == [text.encode() for text in numbered(50)]
        assert qos == 1 or len(found) == 50

    with_pair(body, window=2)


def test_two_crashes_do_not_forget_what_may_have_been_sent() -> None:
    async def body(pair: Pair) -> None:
        pair.wire.breaks_at = lambda seen: seen.kind == "publish" and bool(pair.wire.silence())
        await pair.publish("m")
        pair.wire.close()
        pair.near.machine.kill()
        pair.near.machine.recover()
        await asyncio.sleep(2)
        await pair.restart()
        pair.wire.breaks_at = lambda _seen: False
        await pair.wire.open()
        await pair.until(pair.near.is_drained)
        assert [item.fields["dup"] for item in pair.wire.of_kind("publish")] == [False, True]

    with_pair(body)


def test_what_waits_goes_as_soon_as_it_is_durable_that_the_bridge_is_connected() -> None:
    async def body(pair: Pair) -> None:
        # Once a second everything is brought to the disk anyway: so at several moments of it.
        for number in range(8):
            await pair.cut_off()
            await pair.publish("m")
            await pair.wire.open()
            await pair.until(lambda: pair.link.connected_at_us is not None)
            await pair.until(lambda sent=number + 1: len(pair.sent()) == sent, within_s=0.2)
            await asyncio.sleep(number * 0.13)

    with_pair(body)


@pytest.mark.parametrize("storage", ["IN_MEMORY", "FILE_NATIVE"])
def test_a_message_of_qos_2_from_the_remote_is_stored_once_over_a_crash(storage: str) -> None:
    async def body(pair: Pair) -> None:
        pair.wire.breaks_at = Once("pubrec", is_outbound=True)
        log = pair.near.server.stages.kernel.log
        before = log.end_offset()
        pair.collector.publish("down/x", b"m", qos=2, identifier=7)
        await pair.until(lambda: bool(pair.wire.of_kind("pubrec")))
        await pair.cut_off()
        await pair.restart()
        await pair.wire.open()
        await pair.until(lambda: bool(pair.wire.of_kind("pubcomp")))
        assert [item.fields["dup"] for item in pair.wire.of_kind("publish", outbound=False)] == [
            False,
            True,
        ]
        assert pair.near.server.stages.kernel.log.end_offset() == before + 1

    with_pair(body, storage=storage, remote_subscriptions=[carries("down/#")])
