"""Brokers that are joined by bridges, under faults: seeds, and faults that the judges must find."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from holdfast.broker.bridge.link import Link
from holdfast.broker.bridge.queue import BridgeQueue
from holdfast.testing.hardships import Hardships
from holdfast.testing.loop import SimulationFailedError
from tests.simulation.carriage import (
    Arrived,
    check_a_message_is_sent_once_on_a_connection,
    check_nothing_is_stuck,
)
from tests.simulation.joined import Plan, run
from tests.simulation.wire import Seen

CALM = Hardships()
BREAKING = Plan(messages=60, break_share=0.02, outage_after_s=10.0, receive_maximum=20)


@pytest.mark.accepts("S1.12", "S1.13", "S1.39", "S1.42", "S1.69", "S1.70")
@pytest.mark.parametrize("seed", range(16))
def test_what_is_acknowledged_here_arrives_there(seed: int) -> None:
    outcome, _ = run(seed)
    assert outcome.received


@pytest.mark.accepts("S1.13")
@pytest.mark.parametrize("version", ["5", "3.1.1"])
@pytest.mark.parametrize("window", [1, 20])
def test_a_connection_that_is_cut_at_any_packet_costs_nothing(version: str, window: int) -> None:
    plan = replace(BREAKING, version=version, receive_maximum=window, break_share=0.05)
    outcome, _ = run(7, CALM, plan)
    assert outcome.connections > 10


def test_a_run_can_be_repeated() -> None:
    assert run(5) == run(5)


# --- planted faults: each judge finds the one that is meant for it ------------------------------


def forget_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is lost takes with it what the queue has in flight."""
    lost = BridgeQueue.lost

    def lost_with_all(queue: BridgeQueue, now_us: int) -> None:
        lost(queue, now_us)
        queue._queues.begin(queue.record.party, queue._kernel.log.end_offset(), [], now_us)

    def connected(queue: BridgeQueue, *arguments: Any, **named: Any) -> bytes:
        queue._rest(arguments[-1])
        queue._queues.begin(queue.record.party, queue._kernel.log.end_offset(), [], arguments[-1])
        queue._attach(queue._connection, queue.record.reads, 1, queue._queues.at_rest(queue.record))
        return originally(queue, *arguments, **named)

    originally = BridgeQueue.connected
    monkeypatch.setattr(BridgeQueue, "lost", lost_with_all)
    monkeypatch.setattr(BridgeQueue, "connected", connected)


def send_all_as_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each connection everything is sent again as if it never had been."""

    def begun_anew(queue: BridgeQueue, now_us: int) -> None:
        state = queue._kernel.deliveries.mark(queue._queue)
        rest(queue, now_us)
        queue._queues.begin(queue.record.party, state, [], now_us)

    rest = BridgeQueue._rest
    monkeypatch.setattr(BridgeQueue, "_rest", begun_anew)


def forget_what_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came from the remote and is not released is forgotten with each connection."""

    def connected(queue: BridgeQueue, *arguments: Any, **named: Any) -> bytes:
        originally(queue, *arguments, **named)
        return b""

    originally = BridgeQueue.connected
    monkeypatch.setattr(BridgeQueue, "connected", connected)


def never_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a connection has been lost nothing goes out any more, and nobody notices."""
    give = Link._give

    def gave(link: Link, is_giving: bool) -> None:
        give(link, is_giving and link.counts.connections < 2)

    monkeypatch.setattr(Link, "_give", gave)


@pytest.mark.parametrize(
    ("plant", "judge"),
    [
        (forget_what_waits, "check_nothing_acknowledged_is_lost"),
        (send_all_as_new, "check_repeats_are_marked"),
        (forget_what_came, "check_qos_2_never_twice"),
        (never_give, "check_nothing_acknowledged_is_lost"),
    ],
)
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], judge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(SimulationFailedError, match=judge):
        run_seeds(5)


def run_seeds(count: int) -> None:
    for seed in range(count):
        run(seed, CALM, BREAKING)


def seen(kind: str, connection: int = 1, *, out: bool = True, **fields: Any) -> Seen:
    return Seen(0.0, connection, out, kind, {"packet_identifier": 1, "payload": b"m"} | fields)


FIRST = seen("publish", qos=2, dup=False)
AGAIN = seen("publish", 2, qos=2, dup=True)


def test_one_repeat_on_the_next_connection_is_as_it_should_be() -> None:
    answered = seen("pubcomp", 2, out=False)
    other = seen("publish", 2, qos=2, dup=False, payload=b"n")
    assert not check_a_message_is_sent_once_on_a_connection([FIRST, AGAIN, answered, other])


@pytest.mark.parametrize(
    ("packets", "sentence"),
    [
        ([FIRST, FIRST], "sent twice on connection"),
        ([FIRST, AGAIN, AGAIN], "sent twice on connection"),
        ([FIRST, replace(FIRST, connection=2)], "without DUP"),
    ],
)
def test_a_repeat_too_many_is_found(packets: list[Seen], sentence: str) -> None:
    assert sentence in check_a_message_is_sent_once_on_a_connection(packets)[0]


def test_a_marker_that_is_stuck_is_found() -> None:
    assert not check_nothing_is_stuck([Arrived("a", 0, 0)])
    assert check_nothing_is_stuck([Arrived("a", 1, 0)])
    assert check_nothing_is_stuck([Arrived("a", 0, 1)])
