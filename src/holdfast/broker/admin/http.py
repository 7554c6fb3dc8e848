"""Answer HTTP: health, metrics, and the read interface over the durable log.

Owns: a few readers of the data directory, used by one request at a time each.
Never: writes to the log, or reads on the loop's own thread.

Invariants:
1. Nothing at or past the durable offset is returned.
2. Memory is bounded: at most ANSWERS_MAXIMUM answers of READ_BYTES_MAXIMUM exist at once, and a
   peer that does not take its answer is cut off.
3. Every refusal is JSON, `{"error": ..., "detail": ...}`, with the status that fits.

Flow: HTTP -> query -> LogDirectory (on a thread) -> Arrow stream or JSON.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa
from aiohttp import web

from holdfast.broker.admin import metrics, query
from holdfast.kernel import DamagedError
from holdfast.reading.directory import LogDirectory
from holdfast.reading.log import (
    BATCH_BYTES_MAXIMUM,
    BATCH_ROWS_MAXIMUM,
    Chunk,
    RecordsGoneError,
    UnreadableLogError,
)

READERS_MAXIMUM = 4
"""More would only take turns: two cores, and one disk."""
ANSWERS_MAXIMUM = 16
"""Answers on their way; the next request waits for one of them to end."""
SEND_TIMEOUT_S = 60
"""A peer that has not taken its answer by then does not read."""
CHUNK_BYTES = 256 << 10
"""What is written to a socket at a time; the next follows when the peer has taken it."""
ARROW_STREAM = "application/vnd.apache.arrow.stream"

log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(
    *,
    data_dir: str,
    durable_offset: Callable[[], int],
    ready: Callable[[], bool],
    statistics: Callable[[], Mapping[str, Any]],
    retention: Mapping[str, int] | None = None,
) -> web.Application:
    """The broker's HTTP interface. The callables are asked per request, on the loop's thread."""
    app = web.Application(middlewares=[_refusals_as_json])
    health = Health(ready, statistics)
    reading = Reading(LogReaders(data_dir, durable_offset), retention or {})
    app.router.add_get("/health/live", health.live)
    app.router.add_get("/health/ready", health.ready)
    app.router.add_get("/metrics", health.metrics)
    app.router.add_get("/v1/log", reading.log)
    app.router.add_get("/v1/log/records", reading.records)
    app.router.add_get("/v1/log/offset", reading.offset)
    app.router.add_get("/v1/log/plan", reading.plan)
    app.router.add_get("/v1/log/end", reading.end)
    return app


async def start(app: web.Application) -> web.AppRunner:
    """Makes it ready to be listened for; `await runner.cleanup()` ends it and every listener."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    return runner


async def listen(runner: web.AppRunner, host: str, port: int) -> None:
    """Listens over TCP; `runner.addresses` says where. Raises `OSError`."""
    await web.TCPSite(runner, host, port).start()


class LogReaders:
    """Readers of the data directory, opened when first needed, lent to one request at a time."""

    def __init__(self, data_dir: str, durable_offset: Callable[[], int]) -> None:
        self._data_dir = data_dir
        self._durable_offset = durable_offset
        self._idle: list[LogDirectory] = []
        self._places = asyncio.Semaphore(READERS_MAXIMUM)

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[LogDirectory]:
        """A reader that sees what is durable now."""
        async with self._places:
            if self._idle:
                reader = self._idle.pop()
            else:
                reader = await asyncio.to_thread(LogDirectory, self._data_dir)
            # Asked here, on the loop's thread, where nothing else uses the log meanwhile.
            reader.durable_offset = self._durable_offset()
            yield reader
            # Reached only when the request went well: a reader that failed is not used again.
            self._idle.append(reader)


class Health:
    """Is the process alive, does it serve, and what has it counted."""

    def __init__(
        self, ready: Callable[[], bool], statistics: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._ready = ready
        self._statistics = statistics

    async def live(self, _request: web.Request) -> web.Response:
        """The process answers; nothing more is promised."""
        return web.json_response({"status": "live"})

    async def ready(self, _request: web.Request) -> web.Response:
        """200 once clients are served, 503 before."""
        if self._ready():
            return web.json_response({"status": "ready"})
        return web.json_response({"status": "starting"}, status=503)

    async def metrics(self, _request: web.Request) -> web.Response:
        """All counters, as Prometheus text."""
        text = metrics.format_metrics(self._statistics())
        return web.Response(body=text.encode(), headers={"Content-Type": metrics.CONTENT_TYPE})


class Reading:
    """The read interface: where the log begins and ends, and what is in it."""

    def __init__(self, readers: LogReaders, retention: Mapping[str, int]) -> None:
        self._readers = readers
        self._retention = retention
        self._answers = asyncio.Semaphore(ANSWERS_MAXIMUM)

    async def log(self, request: web.Request) -> web.Response:
        """Which log it is, where it begins and ends, and the files that it lies in."""
        query.known_only(request.query)
        async with self._readers.lend() as reader:
            extent = await asyncio.to_thread(reader.extent)
            segments = await asyncio.to_thread(reader.segments)
        shard = {"shard": 0, "begin": extent.begin, "end": extent.end, "segments": segments}
        return web.json_response(
            {"epoch": extent.epoch, "shards": [shard], "retention": dict(self._retention)}
        )

    async def offset(self, request: web.Request) -> web.Response:
        """The first offset appended at or after a time."""
        query.known_only(request.query, "time")
        time_us = query.time_us(request.query)
        async with self._readers.lend() as reader:
            offset = await asyncio.to_thread(reader.offset_at, time_us)
        return web.json_response({"offset": offset, "time_us": time_us})

    async def plan(self, request: web.Request) -> web.Response:
        """Ranges of about equal bytes that cover a range, for readers in parallel."""
        query.known_only(request.query, "filter", "from", "to", "parts")
        filters = query.filters(request.query)
        parts = query.number(request.query, "parts", 1, 1, query.PARTS_MAXIMUM)
        async with self._readers.lend() as reader:
            begin, end = await _requested_range(reader, request)
            ranges = await asyncio.to_thread(reader.split, filters, begin, end, parts)
        return web.json_response({"parts": [{"from": first, "to": to} for first, to in ranges]})

    async def end(self, request: web.Request) -> web.Response:
        """Where a range ends that has so many matching messages."""
        query.known_only(request.query, "filter", "from", "to", "rows")
        filters = query.filters(request.query)
        rows = query.number(request.query, "rows", None, 1, query.OFFSET_MAXIMUM)
        async with self._readers.lend() as reader:
            begin, end = await _requested_range(reader, request)
            found = await asyncio.to_thread(reader.end_after_rows, filters, begin, end, rows)
        return web.json_response({"end": found})

    async def records(self, request: web.Request) -> web.StreamResponse:
        """Matching messages as an Arrow stream, up to a number of rows and bytes."""
        names = ("filter", "from", "to", "max_rows", "max_bytes", "columns")
        query.known_only(request.query, *names)
        filters, columns = query.filters(request.query), query.columns(request.query)
        rows = query.number(
            request.query, "max_rows", BATCH_ROWS_MAXIMUM, 1, query.READ_ROWS_MAXIMUM
        )
        size_bytes = query.number(
            request.query, "max_bytes", BATCH_BYTES_MAXIMUM, 1, query.READ_BYTES_MAXIMUM
        )
        async with self._answers:
            async with self._readers.lend() as reader:
                begin, end = await _requested_range(reader, request)
                chunk = await asyncio.to_thread(
                    reader.read,
                    filters,
                    begin,
                    end,
                    columns=columns,
                    rows_maximum=rows,
                    bytes_maximum=size_bytes,
                )
            body = await asyncio.to_thread(encode_stream, chunk, begin, end)
            return await _send(request, body)


async def _requested_range(reader: LogDirectory, request: web.Request) -> tuple[int, int]:
    extent = await asyncio.to_thread(reader.extent)
    return query.offset_range(request.query, extent.begin, extent.end)


def encode_stream(chunk: Chunk, begin: int, end: int) -> pa.Buffer:
    """One batch as an Arrow stream; the schema's metadata say what was read and where to go on."""
    told = {"begin": str(begin), "end": str(end), "next_offset": str(chunk.next_offset)}
    batch = chunk.batch.replace_schema_metadata(told)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue()


async def _send(request: web.Request, body: pa.Buffer) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": ARROW_STREAM})
    response.content_length = body.size
    await response.prepare(request)
    view = memoryview(body)
    try:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            for at in range(0, len(view), CHUNK_BYTES):
                await response.write(view[at : at + CHUNK_BYTES])
            await response.write_eof()
    except (TimeoutError, ConnectionError):
        if request.transport is not None:
            request.transport.abort()
    return response


@web.middleware
async def _refusals_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as refused:
        error = refused.reason.lower().replace(" ", "_")
        detail = refused.text if isinstance(refused, web.HTTPBadRequest) else request.path
        return web.json_response({"error": error, "detail": detail}, status=refused.status)
    except RecordsGoneError as gone:
        missing = {"from": gone.begin, "available_from": gone.available_from}
        return web.json_response({"error": "gone", "detail": str(gone), **missing}, status=410)
    except (UnreadableLogError, DamagedError, OSError) as problem:
        log.error("cannot read the log for %s: %s", request.path, problem)
        return web.json_response({"error": "unreadable", "detail": str(problem)}, status=500)
