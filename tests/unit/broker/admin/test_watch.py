"""The watchdog tells who is stuck from who is slow, idle, or getting on."""

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.broker.chores import Chores, Pieces
from holdfast.broker.observe.watch import QUEUES_PER_LOOK, QUIET_AFTER_S, Watch
from holdfast.broker.state.connections import ConnectionSeen
from holdfast.broker.state.queues import QueueSeen, Unread
from holdfast.broker.state.sessions import AttachedSeen
from holdfast.core.subscription import Subscription

SECOND_US = 1_000_000
END = 100
SUBSCRIPTION = Subscription(
    topic_filter="t",
    qos=1,
    no_local=False,
    retain_as_published=False,
    identifier=None,
    from_offset=0,
)


class Broker:
    """One client for each number, as the watch asks about it."""

    def __init__(self, clients: int = 1) -> None:
        self.mark, self.in_flight, self.waiting_bytes = 0, 1, 0
        self.read: int | None = None
        """Everything below has been sent; by default as much as is in flight."""
        self.clients = clients
        self.counted = 0
        self.log_full = 0
        self.now_us = 0
        self.chores = Chores(lambda: None)
        seen: Any = SimpleNamespace(
            log=SimpleNamespace(durable_offset=lambda: END, inquire=lambda: Counting(self)),
            queues=SimpleNamespace(
                of=lambda _queue: QueueSeen(self.mark, self.in_flight),
                unread=lambda _queue: Unread(
                    self.mark + self.in_flight if self.read is None else self.read, 0
                ),
                of_sessions=lambda: [(number, number, number) for number in range(clients)],
            ),
            sessions=SimpleNamespace(on=self._attached, queue_on=lambda number: number),
            groups=SimpleNamespace(queues=list),
            subscriptions=SimpleNamespace(queues=list),
            connections=SimpleNamespace(
                of=lambda _handle: ConnectionSeen("peer", "tcp", 0, self.waiting_bytes, 0)
            ),
            log_full=lambda: self.log_full,
            chores=self.chores,
        )
        self.watch = Watch(seen)

    def look(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now_us += SECOND_US
            self.watch.look(self.now_us)
            while self.chores.is_busy():
                self.chores.run_piece()

    def _attached(self, number: int) -> Any:
        session: Any = SimpleNamespace(client_identifier=f"c{number}", party=number)
        return AttachedSeen(session, (SUBSCRIPTION,), number, number, 2, 60)

    def note_count(self) -> None:
        self.counted += 1


class Counting:
    """Counts as if every offset were a message that matches."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def count(self, _tables: object, _party: int, begin: int, end: int) -> Pieces[int]:
        self._broker.note_count()
        yield None
        return end - begin

    def rest(self) -> Pieces[None]:
        yield from ()


def test_a_client_that_could_be_sent_more_and_gets_nothing_is_stalled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = Broker()
    broker.look(40)
    assert broker.watch.stuck == {"stalled": 1}
    assert broker.watch.backlog_messages == END
    assert broker.watch.in_flight_messages == 1
    lines = [record for record in caplog.records if record.getMessage() == "queue stuck"]
    assert [getattr(line, "fields", {})["client_identifier"] for line in lines] == ["c0"]


def test_a_client_that_does_not_acknowledge_is_told_apart() -> None:
    broker = Broker()
    broker.in_flight = 2
    broker.look(40)
    assert broker.watch.stuck == {"unacknowledged": 1}


def test_a_client_that_gets_on_is_not_stuck() -> None:
    broker = Broker()
    for _ in range(10):
        broker.look(10)
        broker.mark += 1
    assert broker.watch.stuck == {}
    broker.mark = END
    broker.look(3)
    assert (broker.watch.queues_behind, broker.watch.backlog_messages) == (0, 0)


def test_a_client_that_does_not_read_its_socket_is_slow_and_not_stuck() -> None:
    broker = Broker()
    broker.waiting_bytes = 1
    broker.look(60)
    assert broker.watch.stuck == {}


def test_a_client_with_everything_in_flight_has_no_backlog() -> None:
    broker = Broker()
    broker.mark, broker.in_flight = END - 1, 1
    broker.look(60)
    assert broker.watch.stuck == {}


def test_what_is_acknowledged_behind_a_gap_does_not_wait() -> None:
    broker = Broker()
    broker.read = END
    broker.look(60)
    assert broker.watch.stuck == {}


def test_many_queues_are_seen_in_turn() -> None:
    broker = Broker(QUEUES_PER_LOOK * 2)
    broker.mark = END
    broker.in_flight = 3
    broker.look(1)
    assert broker.watch.in_flight_messages == 0
    broker.look(3)
    assert broker.watch.in_flight_messages == QUEUES_PER_LOOK * 2 * 3
    assert broker.counted == 0, "a queue at the end of the log costs no count"


def test_a_full_log_is_told_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    broker = Broker()
    broker.mark = END
    for _ in range(5):
        broker.log_full += 10
        broker.look(1)
    broker.look(QUIET_AFTER_S + 5)
    told = [record.getMessage() for record in caplog.records]
    assert [line.partition(":")[0] for line in told] == ["log full", "log takes messages again"]
    assert "log.reserve_bytes" in told[0], "retention alone may never make room"
