"""Sessions on a real log: how many there are, and who is cleared away."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker.access.access import Identity
from holdfast.broker.assemble import assemble
from holdfast.broker.chores import at_once
from holdfast.broker.mqtt import sessions
from holdfast.broker.mqtt.attached import Attached, Opened
from holdfast.broker.mqtt.session import own_queue
from holdfast.broker.mqtt.session_records import parse_will_row
from holdfast.broker.mqtt.sessions import Sessions
from holdfast.broker.mqtt.subscription_records import Recalled
from holdfast.broker.store.tables import QueueRecord
from holdfast.core.config import Config
from holdfast.core.held_subscriptions import NOTHING_HELD
from holdfast.core.subscription import Subscription
from holdfast.kernel import Log
from holdfast.protocols.mqtt.handshake import Offer, Opening, Terms
from holdfast.protocols.mqtt.packets import Will
from holdfast.protocols.mqtt.will import Ending
from tests.builders.still import NOW_US, StillWorld

SECOND_US = 1_000_000

TERMS = Terms(
    offer=Offer.of(Config()),
    protocol_version=5,
    clean_start=False,
    requested_expiry_s=1,
    expiry_s=1,
    requested_keep_alive_s=0,
    keep_alive_s=0,
    receive_maximum=10,
    maximum_packet_size_bytes=1_000,
    topic_alias_maximum=0,
    wants_reasons=True,
)
OPENING = Opening(client_identifier="c", identifier_assigned=False, terms=TERMS, will=None)


def opens(client_identifier: str = "c", *, will: Will | None = None, **terms: Any) -> Opening:
    """A client that comes on other terms."""
    agreed = replace(TERMS, **terms)
    return replace(OPENING, client_identifier=client_identifier, will=will, terms=agreed)


WILL = Will(topic_name="t", payload=b"", qos=1, retain=False, delay_interval_s=20, properties={})


class SlowDisk(StillWorld):
    """A world in which nothing is durable before the test says so."""

    def open_log(self, config: Config) -> tuple[Log, dict[str, Any]]:
        return Log.open(
            str(config.data_dir),
            segment_bytes=config.segment_bytes,
            cache_bytes=config.cache_bytes,
            reserve_bytes=config.reserve_bytes,
            durability="os",
            seed=7,
            now_us=NOW_US,
        )


class Bench:
    """Sessions of a broker whose disk takes what it has when the test says so."""

    def __init__(self, directory: Path) -> None:
        self.world = SlowDisk()
        self.server = assemble(Config(data_dir=directory, retention_bytes=2**30), self.world)

    @property
    def sessions(self) -> Sessions:
        return self.server._stages.sessions

    def commit(self) -> None:
        """All that was put is durable, and the view may have it."""
        while self.world.commits_made._log.commit():
            pass

    def open(self, opening: Opening, connection: int, now_us: int) -> Opened:
        """A client comes."""
        recalled = at_once(self.sessions.recall(opening, now_us))
        return self.sessions.open(opening, Identity(user_name=None), connection, recalled, now_us)

    def pass_by(self, opening: Opening, connection: int, now_us: int = NOW_US) -> None:
        """A client comes and goes."""
        opened = self.open(opening, connection, now_us)
        self.sessions.close(opened.attached, Ending.NORMAL, now_us)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    return tmp_path / "log"


def test_who_came_back_while_the_disk_was_slow_is_not_cleared_away(directory: Path) -> None:
    async def run() -> None:
        bench = Bench(directory)
        bench.pass_by(OPENING, 1)
        bench.commit()
        later_us = NOW_US + 2 * SECOND_US
        bench.open(opens(expiry_s=3_600), 2, later_us)
        # The view still has the session that expired; what came after it is not durable yet.
        at_once(bench.sessions.clear_expired(later_us, lambda: later_us))
        bench.commit()
        assert bench.server._records.catch_up().session_count() == 1
        assert bench.sessions.recorded() == 1

    asyncio.run(run())


def test_what_expired_is_cleared_away_once(directory: Path) -> None:
    async def run() -> None:
        bench = Bench(directory)
        for number in range(3):
            bench.pass_by(replace(OPENING, client_identifier=f"c{number}"), number + 1)
        assert bench.sessions.recorded() == 3
        bench.commit()
        later_us = NOW_US + 2 * SECOND_US
        for _ in range(2):
            at_once(bench.sessions.clear_expired(later_us, lambda: later_us))
            assert bench.sessions.recorded() == 0
        bench.commit()
        assert bench.server._records.catch_up().session_count() == 0

    asyncio.run(run())


def test_many_sessions_are_cleared_away_in_several_pieces(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "ENDS_IN_A_PIECE", 2)

    async def run() -> None:
        bench = Bench(directory)
        for number in range(5):
            bench.pass_by(replace(OPENING, client_identifier=f"c{number}"), number + 1)
        late = opens("late", expiry_s=4)
        bench.pass_by(late, 9)
        bench.commit()
        by_us = NOW_US + 2 * SECOND_US
        left = []
        for _ in bench.sessions.clear_expired(by_us, lambda: by_us):
            left.append(bench.sessions.recorded())
        # What expired after the run had begun waits for the next one.
        assert left == [4, 2, 1]

    asyncio.run(run())


READS = Subscription(
    topic_filter="t",
    qos=1,
    no_local=False,
    retain_as_published=False,
    identifier=None,
    from_offset=0,
)


def test_whoever_connects_has_the_record_of_a_queue_made_once_if_it_reads_something(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[QueueRecord]()

    def make(*parts: Any) -> QueueRecord:
        made.append(own_queue(*parts))
        return made[-1]

    monkeypatch.setattr(sessions, "own_queue", make)

    async def run() -> None:
        bench = Bench(directory)
        for number, (reads, records) in enumerate([((), []), ((READS,), [(READS,)])], 1):
            client = replace(OPENING, client_identifier=f"c{number}")
            attached = bench.open(client, number, NOW_US).attached
            bench.sessions.resubscribe(attached, NOTHING_HELD.joined_by(reads), NOW_US)
            made.clear()
            prepared = at_once(bench.sessions.prepare(attached, NOW_US))
            bench.sessions.attach(attached, prepared, NOW_US)
            assert [record.reads for record in made] == records

    asyncio.run(run())


def test_what_it_may_not_read_any_more_since_its_queue_was_looked_at_it_does_not_get(
    directory: Path,
) -> None:
    async def run() -> None:
        bench = Bench(directory)
        attached = bench.open(OPENING, 1, NOW_US).attached
        bench.sessions.resubscribe(attached, NOTHING_HELD.joined_by((READS,)), NOW_US)
        prepared = at_once(bench.sessions.prepare(attached, NOW_US))
        bench.sessions.resubscribe(attached, NOTHING_HELD, NOW_US)
        bench.sessions.attach(attached, prepared, NOW_US)
        assert attached.subscriptions == ()
        assert bench.server._stages.kernel.routes.match(b"t") == []

    asyncio.run(run())


def left_connected(directory: Path, *, will: Will | None) -> Bench:
    """A broker that has just recovered from a crash in which `c` was connected, for a minute."""
    bench = Bench(directory)
    opening = opens(expiry_s=60, will=will)
    bench.open(opening, 1, NOW_US)
    bench.commit()
    return Bench(directory)


def test_who_was_connected_before_a_crash_is_at_rest_before_its_record_says_so(
    directory: Path,
) -> None:
    async def run() -> None:
        bench = left_connected(directory, will=WILL)
        session = bench.sessions.on_record("c")
        assert session is not None
        assert (session.connected, session.expires_at_us) == (False, NOW_US + 60 * SECOND_US)
        assert session.will_due_at_us == NOW_US + 20 * SECOND_US
        assert bench.server.records.catch_up().connected(b"", 10)
        assert bench.sessions.recorded_attached() == 0

        assert at_once(bench.sessions.write_recovered(lambda: NOW_US + SECOND_US)) == 1
        bench.commit()
        assert bench.sessions.on_record("c") == session
        assert not bench.server.records.catch_up().connected(b"", 10)

    asyncio.run(run())


def test_who_has_come_back_since_the_crash_stays_connected_on_record(directory: Path) -> None:
    async def run() -> None:
        bench = left_connected(directory, will=None)
        again = opens(expiry_s=60)
        opened = bench.open(again, 1, NOW_US + SECOND_US)
        assert opened.session_present
        assert at_once(bench.sessions.write_recovered(lambda: NOW_US + SECOND_US)) == 0
        bench.commit()
        assert bench.server.records.catch_up().connected(b"", 10)
        assert bench.sessions.recorded_attached() == 1

    asyncio.run(run())


def test_the_expiry_of_who_was_connected_counts_from_the_start_though_nothing_is_written_yet(
    directory: Path,
) -> None:
    async def run() -> None:
        bench = left_connected(directory, will=None)
        late_us = NOW_US + 61 * SECOND_US
        again = opens(expiry_s=60)
        opened = bench.open(again, 1, late_us)
        assert not opened.session_present

    asyncio.run(run())


def test_wills_of_sessions_that_ended_wait_in_the_order_of_their_ends(directory: Path) -> None:
    async def run() -> None:
        bench = Bench(directory)

        def begin(number: int, now_us: int) -> Attached:
            will = replace(WILL, payload=b"%d" % number)
            opening = opens(clean_start=True, expiry_s=60, will=will)
            return bench.open(opening, number, now_us).attached

        first = begin(1, NOW_US)
        bench.sessions.close(first, Ending.ABNORMAL, NOW_US)
        # The next one ends the session at rest; two more, at one moment, end connected ones.
        begin(2, NOW_US + SECOND_US)
        begin(3, NOW_US + 2 * SECOND_US)
        begin(4, NOW_US + 2 * SECOND_US)
        bench.commit()
        waiting = bench.server._records.catch_up().wills_of_ended(10)
        assert [parse_will_row(*row)[0].payload for row in waiting] == [b"1", b"2", b"3"]

    asyncio.run(run())


def test_sessions_on_record_are_counted_anew_at_a_start(directory: Path) -> None:
    async def run() -> None:
        bench = Bench(directory)
        for number in range(3):
            bench.pass_by(replace(OPENING, client_identifier=f"c{number}"), number + 1)
        passing = opens("passing", expiry_s=0)
        bench.pass_by(passing, 9)
        await bench.server.stop()
        assert Bench(directory).sessions.recorded() == 3

    asyncio.run(run())


def test_a_will_has_nobody_wait_and_without_one_nothing_is_written(directory: Path) -> None:
    async def run() -> None:
        bench = Bench(directory)
        passing = opens(expiry_s=0, clean_start=True)
        bench.pass_by(passing, 1)
        log = bench.server.stages.kernel.log
        before = log.end_position()
        bench.pass_by(passing, 2)
        assert log.end_position() == before
        opened = bench.open(replace(passing, will=WILL), 3, NOW_US)
        assert opened.position is None
        assert log.end_position() > before
        bench.commit()
        assert bench.server._records.catch_up().wills_of_ended(10) == []
        assert len(bench.server._records.catch_up().wills_of_connected(b"", 10)) == 1
        bench.sessions.close(opened.attached, Ending.NORMAL, NOW_US)
        bench.commit()
        assert bench.server._records.catch_up().wills_of_connected(b"", 10) == []

    asyncio.run(run())


def test_what_thousands_of_filters_hold_is_read_in_pieces_and_not_again(directory: Path) -> None:
    async def run() -> None:
        bench = Bench(directory)
        kept = opens(expiry_s=3_600, clean_start=False)
        reads = [READS._replace(topic_filter=f"t/{number}") for number in range(2_500)]
        shared = READS._replace(topic_filter="$share/group/t")
        attached = bench.open(kept, 1, NOW_US).attached
        bench.sessions.resubscribe(attached, NOTHING_HELD.joined_by((*reads, shared)), NOW_US)
        bench.sessions.record(attached, NOW_US)
        bench.sessions.close(attached, Ending.NORMAL, NOW_US)

        def come_back() -> tuple[Recalled, int]:
            pieces, given_way = bench.sessions.recall(kept, NOW_US), 0
            while True:
                try:
                    next(pieces)
                except StopIteration as end:
                    return end.value, given_way
                given_way += 1

        recalled, given_way = come_back()
        assert recalled.recorded is not None
        assert given_way == 3
        who = Identity(user_name=None)
        attached = bench.sessions.open(kept, who, 2, recalled, NOW_US).attached
        assert attached.held is recalled.recorded.held
        assert attached.subscriptions == (*reads, shared)
        # What has changed since is read anew.
        bench.sessions.resubscribe(attached, NOTHING_HELD.joined_by(reads[:5]), NOW_US)
        bench.sessions.record(attached, NOW_US)
        bench.sessions.close(attached, Ending.NORMAL, NOW_US)
        attached = bench.sessions.open(kept, who, 3, recalled, NOW_US).attached
        assert attached.subscriptions == tuple(reads[:5])

    asyncio.run(run())
