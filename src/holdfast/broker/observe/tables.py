"""Tables of one moment: what is on record, in memory and in the log, as Arrow files.

Owns: the files of the moments that somebody may still ask for. Never: looks into a part; what is in
memory is handed out by `broker.moments`, piece by piece.

Invariants:
1. All tables of a moment are of that moment, which an offset of the log names.
2. Memory is bounded by the number of sessions and queues, for their names; rows go to the disk, a
   piece at a time, on a thread.
3. At most MOMENTS_MAXIMUM moments are kept, each for MOMENT_KEPT_US after it was last asked for.
"""

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast import system
from holdfast.broker.moments import Moment
from holdfast.broker.observe.table_rows import TableRows
from holdfast.broker.state.broker import Broker
from holdfast.core.layout import LOG_DIRECTORY, TABLES_DIRECTORY
from holdfast.core.units import SECOND_US
from holdfast.reading.directory import LogDirectory

MOMENTS_MAXIMUM: Final = 8
"""Whoever looks every few seconds leaves that many behind; the oldest goes first."""
MOMENT_KEPT_US: Final = 600 * SECOND_US
"""A query that reads slowly asks for its tables one after the other."""
NAME_BYTES: Final = 8
"""Of the name of a moment, which no other broker has given out either."""
IN_MEMORY: Final = frozenset({"deliveries", "acknowledgements", "cursors"})
ON_RECORD: Final = frozenset({"sessions", "subscriptions", "groups", "queues", "losses"})


@dataclass(frozen=True, slots=True)
class TableTaken:
    """A table that was taken."""

    name: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentTaken:
    """Tables of one moment."""

    moment: str
    offset: int
    """Everything below it had been stored."""
    begin_offset: int
    """The oldest message that the log had."""
    at_us: int
    epoch: str
    tables: list[TableTaken]


@dataclass(slots=True)
class _Kept:
    directory: Path
    asked_at_us: int


class Tables:
    """Takes moments, and keeps their files."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._directory = broker.config().data_dir / TABLES_DIRECTORY
        self._kept: dict[str, _Kept] = {}
        self._is_clean = False

    async def take(self, names: Sequence[str]) -> MomentTaken:
        """Takes these tables of one moment."""
        await self._make_room()
        name = system.entropy(NAME_BYTES).hex()
        directory = self._directory / name
        await asyncio.to_thread(directory.mkdir, parents=True)
        try:
            async with self._broker.moments.one() as moment:
                taken = await self._write(moment, frozenset(names), directory)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        self._kept[name] = _Kept(directory, self._broker.now_us())
        return MomentTaken(
            moment=name,
            offset=moment.offset,
            begin_offset=moment.begin_offset,
            at_us=moment.at_us,
            epoch=self._broker.log.epoch(),
            tables=taken,
        )

    def file(self, moment: str, table: str) -> Path | None:
        """A table of a moment, if both are there."""
        kept = self._kept.get(moment)
        if kept is None:
            return None
        kept.asked_at_us = self._broker.now_us()
        path = kept.directory / f"{table}.arrow"
        return path if path.is_file() else None

    async def _write(
        self, moment: Moment, names: frozenset[str], directory: Path
    ) -> list[TableTaken]:
        recorded = await asyncio.to_thread(self._broker.recorded.moment)
        self._broker.moments.go_on()
        rows = await asyncio.to_thread(TableRows, directory, names, moment, recorded)
        try:
            if names & (ON_RECORD | IN_MEMORY):
                await asyncio.to_thread(rows.write_recorded)
            if names & IN_MEMORY:
                await self._write_deliveries(rows)
            if "retained" in names:
                await self._write_retained(rows)
            if "topics" in names:
                await asyncio.to_thread(self._write_topics, rows, moment.offset)
        finally:
            files = await asyncio.to_thread(rows.close)
        return [TableTaken(file.path.stem, file.rows, file.path.stat().st_size) for file in files]

    async def _write_deliveries(self, rows: TableRows) -> None:
        is_all = False
        while not is_all:
            columns, is_all = await self._broker.moments.in_flight()
            await asyncio.to_thread(rows.write_in_flight, columns)
        after = None
        is_all = False
        while not is_all:
            acknowledged, at_rest, after = await self._broker.moments.states(after)
            await asyncio.to_thread(rows.write_states, acknowledged, at_rest)
            is_all = after is None

    async def _write_retained(self, rows: TableRows) -> None:
        is_all = False
        while not is_all:
            columns, is_all = await self._broker.moments.retained()
            await asyncio.to_thread(rows.write_retained, columns)

    def _write_topics(self, rows: TableRows, offset: int) -> None:
        # One of its own: others have seen what is behind the moment.
        log = LogDirectory(str(self._broker.config().data_dir / LOG_DIRECTORY))
        log.durable_offset = offset
        rows.write_topics(log)

    async def _make_room(self) -> None:
        if not self._is_clean:
            # What a broker before has left.
            await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)
            self._is_clean = True
        now_us = self._broker.now_us()
        oldest_first = sorted(self._kept, key=lambda name: self._kept[name].asked_at_us)
        surplus = len(self._kept) - MOMENTS_MAXIMUM + 1
        for number, name in enumerate(oldest_first):
            kept = self._kept[name]
            if number < surplus or kept.asked_at_us + MOMENT_KEPT_US < now_us:
                del self._kept[name]
                await asyncio.to_thread(shutil.rmtree, kept.directory, ignore_errors=True)
