"""The read interface over HTTP: where the log begins and ends, and what is in it.

Owns: a few readers of the data directory, used by one request at a time each.
Never: writes to the log, or reads on the loop's own thread.

Invariants:
1. Nothing at or past the durable offset is returned.
2. Memory is bounded: at most ANSWERS_MAXIMUM answers of READ_BYTES_MAXIMUM exist at once, and a
   peer that does not take its answer is cut off.

Flow: HTTP -> query -> LogDirectory (on a thread) -> Arrow stream or JSON.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

from aiohttp import web
from msgspec import Meta, Struct, UnsetType

from holdfast.broker.admin.http import query
from holdfast.broker.admin.http.arrow_stream import ARROW_STREAM, encode_stream, send
from holdfast.broker.admin.http.operation import (
    JSON,
    Answered,
    Asked,
    Audience,
    Operation,
    Parameter,
    ProblemError,
    bad_request,
    number,
    text,
)
from holdfast.broker.admin.v1.ranges import AskedParts, AskedRange, AskedReach, AskedRecords
from holdfast.broker.admin.v1.taken import TakenFromReaders
from holdfast.core.cursor import CursorSeen
from holdfast.core.limits import READ_PARTS_MAXIMUM
from holdfast.reading.criteria import Criteria
from holdfast.reading.directory import LogDirectory
from holdfast.reading.log import (
    BATCH_BYTES_MAXIMUM,
    BATCH_ROWS_MAXIMUM,
    Question,
    RecordsGoneError,
)
from holdfast.reading.log import COLUMNS as NAMES

READERS_MAXIMUM = 4
"""More would only take turns: two cores, and one disk."""
ANSWERS_MAXIMUM = 16
"""Answers on their way; the next request waits for one of them to end."""

OFFSET = {"type": "integer", "minimum": 0, "maximum": query.OFFSET_MAXIMUM}
FILTER = Parameter(
    "filter",
    {"type": "array", "items": {"type": "string"}, "maxItems": query.FILTERS_MAXIMUM},
    "A topic filter; given several times, a message has to match one of them. None: everything.",
    query.filters,
)
TIME = Parameter(
    "time",
    {"type": "string"},
    "Microseconds since 1970, or ISO 8601.",
    query.time_us,
)
FROM = Parameter("from", OFFSET, "From this offset on.", query.offset("from"))
TO = Parameter("to", OFFSET, "Up to before this offset.", query.offset("to"))
CURSOR = text(
    "cursor",
    "The name of a cursor: the range may begin at its place, where the log itself begins later,"
    " since what it has not released is kept. The filters are its own.",
)
COLUMNS = Parameter(
    "columns",
    {"type": "string"},
    f"Columns, separated by commas: {', '.join(NAMES)}. None: all but headers.",
    query.columns,
)
PARTS = number("parts", 1, 1, READ_PARTS_MAXIMUM, "How many ranges there are at most.")
ROWS = Parameter(
    "rows",
    {"type": "integer", "minimum": 1, "maximum": query.OFFSET_MAXIMUM},
    "The most messages of its topics that the range may have.",
    query.count("rows"),
)
SIZE_BYTES = Parameter(
    "size_bytes",
    {"type": "integer", "minimum": 1, "maximum": query.OFFSET_MAXIMUM},
    "About the most bytes of them that it may have.",
    query.count("size_bytes"),
)
MAX_ROWS = number(
    "max_rows", BATCH_ROWS_MAXIMUM, 1, query.READ_ROWS_MAXIMUM, "The most messages of one answer."
)
MAX_BYTES = number(
    "max_bytes", BATCH_BYTES_MAXIMUM, 1, query.READ_BYTES_MAXIMUM, "The most bytes of one answer."
)
GONE = Answered("Retention has taken the beginning of the range; `available_from` is what is left.")
T = TypeVar("T", bound=AskedRange)
Run = Callable[[Asked], Awaitable[web.StreamResponse | Struct]]


class Shard(Struct, kw_only=True):
    """One log, and the files that it lies in."""

    shard: int
    begin: int
    end: int
    segments: list[dict[str, Any]]


class LogExtent(Struct, kw_only=True):
    """Which log it is, and where it begins and ends."""

    epoch: str
    shards: list[Shard]
    retention: dict[str, int]


class OffsetAt(Struct, kw_only=True):
    """The first offset at a time."""

    offset: int
    time_us: int


class Part(Struct, kw_only=True, rename={"from_offset": "from", "to_offset": "to"}):
    """A range of offsets."""

    from_offset: int
    to_offset: int


class Parts(Struct, kw_only=True):
    """Ranges that cover a range."""

    parts: list[Part]


class RangeEnd(Struct, kw_only=True):
    """How far a range reaches, and where the log begins and ends at the same moment."""

    end: int
    rows: Annotated[int, Meta(description="Messages of its topics in the range.")]
    epoch: str
    log_begin: int
    log_end: int
    next_at_us: Annotated[
        int | None, Meta(description="When the first message behind the range was stored, if any.")
    ]
    now_us: Annotated[
        int, Meta(description="The time then, by the clock of the machine that the log is on.")
    ]
    behind: Annotated[
        int, Meta(description="Messages of its topics from there to the end of the log.")
    ]
    behind_exact: Annotated[
        bool, Meta(description="False: there was too much to count; behind is at least so.")
    ]
    before_at_us: Annotated[
        int | None, Meta(description="When the message just before `from` was stored, if known.")
    ]
    last_at_us: Annotated[
        int | None, Meta(description="When the last message of the range was stored, if known.")
    ]
    taken: Annotated[
        int, Meta(description="Offsets that retention took before this reader had read them.")
    ]


class LogReaders:
    """Readers of the data directory, opened when first needed, lent to one request at a time."""

    def __init__(self, data_dir: str, durable_offset: Callable[[], int]) -> None:
        self._data_dir = data_dir
        self._durable_offset = durable_offset
        self._idle: list[LogDirectory] = []
        self._places = asyncio.Semaphore(READERS_MAXIMUM)

    @asynccontextmanager
    async def lend(self, kept_from: int | None = None) -> AsyncIterator[LogDirectory]:
        """A reader that sees what is durable now, from where the log is whole; or from before that,
        where it has all that is asked for."""
        async with self._places:
            if self._idle:
                reader = self._idle.pop()
            else:
                reader = await asyncio.to_thread(LogDirectory, self._data_dir)
            # Asked here, on the loop's thread, where nothing else uses the log meanwhile.
            reader.durable_offset = self._durable_offset()
            reader.kept_from = kept_from
            yield reader
            # Reached only when the request went well: a reader that failed is not used again.
            self._idle.append(reader)


class Reading:
    """The read interface: where the log begins and ends, and what is in it."""

    def __init__(
        self,
        readers: LogReaders,
        retention: Mapping[str, int],
        cursor_of: Callable[[str], CursorSeen | None],
    ) -> None:
        self._readers = readers
        self._cursor_of = cursor_of
        self._retention = retention
        self._answers = asyncio.Semaphore(ANSWERS_MAXIMUM)
        self._taken = TakenFromReaders()

    def operations(self) -> list[Operation]:
        """What can be asked for."""

        selection = (FILTER, FROM, TO, CURSOR)
        return [
            Operation(
                method="GET",
                path="/v1/log",
                name="describeLog",
                summary="Which log it is, and its files.",
                run=self.log,
                answers={200: Answered("Which log it is, and its files.", LogExtent)},
                parameters=(CURSOR,),
                audience=Audience.READERS,
            ),
            Operation(
                method="GET",
                path="/v1/log/offset",
                name="offsetAt",
                summary="The first offset at a time.",
                run=self.offset,
                answers={200: Answered("The first offset at a time.", OffsetAt)},
                parameters=(TIME,),
                audience=Audience.READERS,
            ),
            *_asked_twice(
                "/v1/log/records",
                "readRecords",
                "Matching messages as an Arrow stream.",
                self.records,
                AskedRecords,
                None,
                *selection,
                MAX_ROWS,
                MAX_BYTES,
                COLUMNS,
            ),
            *_asked_twice(
                "/v1/log/plan",
                "planParts",
                "Ranges of about equal bytes, for readers in parallel.",
                self.plan,
                AskedParts,
                Parts,
                *selection,
                PARTS,
            ),
            *_asked_twice(
                "/v1/log/end",
                "reach",
                "How far a range reaches that has so much, and the extent of the log.",
                self.end,
                AskedReach,
                RangeEnd,
                *selection,
                ROWS,
                SIZE_BYTES,
            ),
        ]

    async def log(self, asked: Asked) -> LogExtent:
        """Which log it is, where it begins and ends, and the files that it lies in."""
        name = asked.query["cursor"]
        kept_from = self._cursor(name).place if name else None
        async with self._readers.lend(kept_from) as reader:
            extent = await asyncio.to_thread(reader.extent)
            segments = await asyncio.to_thread(reader.segments)
        shard = Shard(shard=0, begin=extent.begin, end=extent.end, segments=segments)
        return LogExtent(epoch=extent.epoch, shards=[shard], retention=dict(self._retention))

    async def offset(self, asked: Asked) -> OffsetAt:
        """The first offset appended at or after a time."""
        time_us = asked.query["time"]
        async with self._readers.lend() as reader:
            offset = await asyncio.to_thread(reader.offset_at, time_us)
        return OffsetAt(offset=offset, time_us=time_us)

    async def plan(self, asked: Asked) -> Parts:
        """Ranges of about equal bytes that cover a range, for readers in parallel."""
        wanted: AskedParts = _body(asked, AskedParts)
        criteria = wanted.criteria()
        rows = None if isinstance(wanted.rows, UnsetType) else wanted.rows
        async with self._readers.lend(self._kept_from(wanted)) as reader:
            begin, end = await _range(reader, wanted)
            ranges = await asyncio.to_thread(
                reader.split, criteria, begin, end, wanted.parts, rows=rows
            )
        return Parts(parts=[Part(from_offset=first, to_offset=to) for first, to in ranges])

    async def end(self, asked: Asked) -> RangeEnd:
        """How far a range reaches that has so much, and the extent of the log."""
        wanted: AskedReach = _body(asked, AskedReach)
        criteria = wanted.criteria()
        wanted.within(0, query.OFFSET_MAXIMUM)
        taken = self._taken.offsets(wanted.reader)
        async with self._readers.lend(self._kept_from(wanted)) as reader:
            return await asyncio.to_thread(_reach, reader, criteria, wanted, taken)

    async def records(self, asked: Asked) -> web.StreamResponse:
        """Matching messages as an Arrow stream, up to a number of rows and bytes."""
        wanted: AskedRecords = _body(asked, AskedRecords)
        try:
            return await self._send_records(asked, wanted)
        except RecordsGoneError as gone:
            if wanted.reader:
                self._taken.note(wanted.reader, gone.begin, gone.available_from)
            raise

    async def _send_records(self, asked: Asked, wanted: AskedRecords) -> web.StreamResponse:
        criteria, columns = wanted.criteria(), wanted.names()
        async with self._answers:
            async with self._readers.lend(self._kept_from(wanted)) as reader:
                answer = await asyncio.to_thread(_answer, reader, criteria, columns, wanted)
                if wanted.cursor:
                    # What it has lost meanwhile would be missing without a word.
                    reader.kept_from = self._kept_from(wanted)
                    available_from = (await asyncio.to_thread(reader.extent)).begin
                    if answer.begin < available_from:
                        raise RecordsGoneError(answer.begin, min(available_from, answer.end))
            if answer.missing and wanted.reader:
                # Damage is a loss to it as well; which offsets exactly it took, nobody asks.
                self._taken.note(wanted.reader, answer.begin, answer.begin + answer.missing)
            return await send(asked.request, answer.pieces)

    def _kept_from(self, wanted: AskedRange) -> int | None:
        """From where all is there that is asked for by a cursor."""
        if not wanted.cursor:
            return None
        cursor = self._cursor(wanted.cursor)
        if wanted.spans or set(wanted.filter) != set(cursor.selection):
            raise bad_request(f"the filters are not those of the cursor {cursor.name!r}")
        return cursor.place

    def _cursor(self, name: str) -> CursorSeen:
        cursor = self._cursor_of(name)
        if cursor is None:
            raise ProblemError(404, "no_such_cursor", f"no cursor is called {name!r}")
        return cursor


def _asked_twice(
    path: str,
    name: str,
    summary: str,
    run: Run,
    body: type[AskedRange],
    kind: Any,
    *parameters: Parameter,
) -> list[Operation]:
    """What can be asked by a query, and, of many topics, by a body."""
    content_type = ARROW_STREAM if kind is None else JSON
    answers = {200: Answered(summary, kind, content_type), 410: GONE}
    as_query = Operation(
        method="GET",
        path=path,
        name=name,
        summary=summary,
        run=run,
        answers=answers,
        parameters=parameters,
        audience=Audience.READERS,
    )
    as_body = replace(
        as_query,
        method="POST",
        name=f"{name}OfTopics",
        summary=f"{summary} With a body, which has room for thousands of topics.",
        parameters=(),
        body=body,
    )
    return [as_query, as_body]


def _body(asked: Asked, kind: type[T]) -> T:
    """What was asked, whether by a body or by a query."""
    if asked.body is not None:
        assert isinstance(asked.body, kind)
        return asked.body
    names = {"from": "from_offset", "to": "to_offset"}
    given = {names.get(name, name): value for name, value in asked.query.items()}
    return kind(**{name: value for name, value in given.items() if value is not None})


async def _range(reader: LogDirectory, wanted: AskedRange) -> tuple[int, int]:
    extent = await asyncio.to_thread(reader.extent)
    return wanted.within(extent.begin, extent.end)


def _reach(reader: LogDirectory, criteria: Criteria, wanted: AskedReach, taken: int) -> RangeEnd:
    def given(value: int | UnsetType) -> int | None:
        return None if isinstance(value, UnsetType) else value

    reach = reader.reach(
        criteria,
        given(wanted.from_offset),
        given(wanted.to_offset),
        rows=given(wanted.rows),
        size_bytes=given(wanted.size_bytes),
    )
    return RangeEnd(
        end=reach.end,
        rows=reach.rows,
        epoch=reach.extent.epoch,
        log_begin=reach.extent.begin,
        log_end=reach.extent.end,
        next_at_us=reach.next_at_us,
        now_us=reach.now_us,
        behind=reach.behind,
        behind_exact=reach.behind_exact,
        before_at_us=reach.before_at_us,
        last_at_us=reach.last_at_us,
        taken=taken,
    )


@dataclass(frozen=True, slots=True)
class _RecordsAnswer:
    """Which range was asked for, and what is answered."""

    begin: int
    end: int
    missing: int
    pieces: Sequence[memoryview]


def _answer(
    reader: LogDirectory, criteria: Criteria, columns: list[str] | None, wanted: AskedRecords
) -> _RecordsAnswer:
    """All of an answer at one go, so that no part of it waits for the loop to come round."""
    extent = reader.extent()
    begin, end = wanted.within(extent.begin, extent.end)
    names = None if columns is None else tuple(columns)
    question = Question(criteria, begin, end, names, wanted.max_rows, wanted.max_bytes)
    chunk = reader.read(question)
    told = {
        "epoch": chunk.epoch,
        "begin": str(begin),
        "end": str(end),
        "next_offset": str(chunk.next_offset),
        "missing": str(chunk.missing),
    }
    pieces = encode_stream(chunk.batch.replace_schema_metadata(told))
    return _RecordsAnswer(begin, end, chunk.missing, pieces)
