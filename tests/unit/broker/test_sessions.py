"""Sessions on a real log: how many there are, and who is cleared away."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker.access.access import Identity
from holdfast.broker.assemble import assemble
from holdfast.broker.chores import at_once
from holdfast.broker.dispatch import sessions
from holdfast.broker.dispatch.sessions import Attached, Opened, Sessions
from holdfast.broker.store.tables import parse_will
from holdfast.core.config import Config
from holdfast.kernel import Log
from holdfast.protocols.mqtt.handshake import Opening
from holdfast.protocols.mqtt.packets import Will
from holdfast.protocols.mqtt.will import Ending
from tests.builders.still import NOW_US, StillWorld

SECOND_US = 1_000_000

OPENING = Opening(
    client_identifier="c",
    identifier_assigned=False,
    protocol_version=5,
    clean_start=False,
    requested_expiry_s=1,
    expiry_s=1,
    requested_keep_alive_s=0,
    keep_alive_s=0,
    will=None,
    receive_maximum=10,
    maximum_packet_size_bytes=1_000,
    topic_alias_maximum=0,
    wants_reasons=True,
)


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
        left = at_once(self.sessions.leave(opening, now_us))
        return self.sessions.open(opening, Identity(user_name=None), connection, left, now_us)

    def clear_expired(self, by_us: int, now_us: int) -> None:
        """A whole run, which is durable at the end."""
        pieces = self.sessions.clear_expired(by_us, lambda: now_us)
        for ready in pieces:
            self.commit()
            assert ready is None or ready()

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
        bench.open(replace(OPENING, expiry_s=3_600), 2, later_us)
        # The view still has the session that expired; what came after it is not durable yet.
        bench.clear_expired(later_us, later_us)
        assert bench.server._records.refresh().session_count() == 1
        assert bench.sessions.recorded() == 1

    asyncio.run(run())


def test_what_expired_is_cleared_away_once(directory: Path) -> None:
    async def run() -> None:
        bench = Bench(directory)
        for number in range(3):
            bench.pass_by(replace(OPENING, client_identifier=f"c{number}"), number + 1)
        assert bench.sessions.recorded() == 3
        bench.commit()
        for _ in range(2):
            bench.clear_expired(NOW_US + 2 * SECOND_US, NOW_US + 2 * SECOND_US)
            assert bench.sessions.recorded() == 0
        bench.commit()
        assert bench.server._records.refresh().session_count() == 0

    asyncio.run(run())


def test_many_sessions_are_cleared_away_in_several_slices(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "SLICE_SESSIONS", 2)

    async def run() -> None:
        bench = Bench(directory)
        for number in range(5):
            bench.pass_by(replace(OPENING, client_identifier=f"c{number}"), number + 1)
        late = replace(OPENING, client_identifier="late", expiry_s=4)
        bench.pass_by(late, 9)
        bench.commit()
        by_us = NOW_US + 2 * SECOND_US
        bench.clear_expired(by_us, by_us + 3 * SECOND_US)
        # What expired after the run had begun waits for the next one.
        assert bench.sessions.recorded() == 1

    asyncio.run(run())


def test_wills_of_sessions_that_ended_wait_in_the_order_of_their_ends(directory: Path) -> None:
    async def run() -> None:
        bench = Bench(directory)

        def begin(number: int, now_us: int) -> Attached:
            will = replace(WILL, payload=b"%d" % number)
            opening = replace(OPENING, clean_start=True, expiry_s=60, will=will)
            return bench.open(opening, number, now_us).attached

        first = begin(1, NOW_US)
        bench.sessions.close(first, Ending.ABNORMAL, NOW_US)
        # The next one ends the session at rest; two more, at one moment, end connected ones.
        begin(2, NOW_US + SECOND_US)
        begin(3, NOW_US + 2 * SECOND_US)
        begin(4, NOW_US + 2 * SECOND_US)
        bench.commit()
        waiting = bench.server._records.refresh().wills_of_ended(10)
        assert [parse_will(value).payload for _, value in waiting] == [b"1", b"2", b"3"]

    asyncio.run(run())


def test_sessions_on_record_are_counted_anew_at_a_start(directory: Path) -> None:
    async def run() -> None:
        bench = Bench(directory)
        for number in range(3):
            bench.pass_by(replace(OPENING, client_identifier=f"c{number}"), number + 1)
        passing = replace(OPENING, client_identifier="passing", expiry_s=0)
        bench.pass_by(passing, 9)
        await bench.server.stop()
        assert Bench(directory).sessions.recorded() == 3

    asyncio.run(run())
