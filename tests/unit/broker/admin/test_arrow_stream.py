"""Answers of megabytes: sent beside the loop where that can be, and given up with their peer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from socket import socket
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from typing import TYPE_CHECKING

import pytest
import uvloop
from aiohttp import web

from holdfast.broker.admin.http import arrow_stream
from holdfast.broker.admin.http.arrow_stream import (
    CHUNK_BYTES,
    SENDERS,
    SENDERS_MAXIMUM,
    SENT_BYTES,
    Senders,
    send,
)
from tests.builders.certificates import Authority

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

HOST = "127.0.0.1"
HEAD, BODY = b"head", bytes(range(256)) * (32 << 10)
"""More than the system keeps of what a peer does not read."""
WITHIN_S = 30
REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"

Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Ask = Callable[[], Awaitable[Peer]]


@asynccontextmanager
async def served(
    *pieces: bytes, here: SSLContext | None = None, there: SSLContext | None = None
) -> AsyncIterator[tuple[Senders, Ask, web.AppRunner]]:
    """An application that answers with HEAD and BODY, in these pieces or as two, and how to ask it
    without reading; through TLS where there are contexts of both ends."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return await send(request, [memoryview(piece) for piece in pieces or (HEAD, BODY)])

    app = web.Application()
    app.cleanup_ctx.append(arrow_stream.senders_of)
    app.router.add_get("/", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0, ssl_context=here).start()
    peers: list[asyncio.StreamWriter] = []

    async def ask() -> Peer:
        reader, writer = await asyncio.open_connection(*runner.addresses[0], ssl=there)
        writer.write(REQUEST)
        peers.append(writer)
        return reader, writer

    try:
        async with asyncio.timeout(WITHIN_S):
            yield app[SENDERS], ask, runner
    finally:
        for peer in peers:
            peer.close()
        await runner.cleanup()


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    assert b"Content-Length: %d\r\n" % (len(HEAD) + len(BODY)) in head
    return await reader.readexactly(len(HEAD) + len(BODY))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - nothing tells of it.
        await asyncio.sleep(0)


def test_a_thread_sends_while_the_loop_goes_on_and_the_connection_is_used_again() -> None:
    async def run() -> None:
        async with served() as (senders, ask, _):
            reader, writer = await ask()
            # Its peer reads nothing, so that it would not be done yet.
            await until(lambda: senders.busy == 1)
            assert await read_answer(reader) == HEAD + BODY
            await until(lambda: senders.busy == 0)
            writer.write(REQUEST)
            assert await read_answer(reader) == HEAD + BODY

    uvloop.run(run())


def test_more_answers_than_threads_come_whole_too() -> None:
    async def run() -> None:
        async with served() as (senders, ask, _):
            peers = await asyncio.gather(*(ask() for _ in range(SENDERS_MAXIMUM + 3)))
            await until(lambda: senders.busy >= SENDERS_MAXIMUM)
            # From the last one on: those have no thread.
            for reader, _ in reversed(peers):
                assert await read_answer(reader) == HEAD + BODY
                assert senders.busy <= SENDERS_MAXIMUM
            await until(lambda: senders.busy == 0)

    uvloop.run(run())


def test_what_is_one_large_piece_has_a_thread_too() -> None:
    async def run() -> None:
        async with served(HEAD + BODY) as (senders, ask, _):
            reader, _writer = await ask()
            await until(lambda: senders.busy == 1)
            assert await read_answer(reader) == HEAD + BODY

    uvloop.run(run())


def test_a_thread_sends_little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    class Noted(socket):
        def sendall(self, data: "Buffer", flags: int = 0, /) -> None:
            sizes.append(len(memoryview(data)))
            super().sendall(data, flags)

    monkeypatch.setattr(arrow_stream, "socket", Noted)

    async def run() -> None:
        async with served(HEAD + BODY) as (_, ask, _runner):
            reader, _writer = await ask()
            assert await read_answer(reader) == HEAD + BODY

    uvloop.run(run())
    assert max(sizes) == SENT_BYTES
    assert sum(sizes) > len(BODY) - CHUNK_BYTES


def test_through_tls_the_loop_sends(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    here = SSLContext(PROTOCOL_TLS_SERVER)
    here.load_cert_chain(*authority.server())
    there = authority.trusting()

    async def run() -> None:
        async with served(here=here, there=there) as (senders, ask, _):
            reader, _writer = await ask()
            assert await read_answer(reader) == HEAD + BODY
            assert senders.busy == 0

    uvloop.run(run())


def test_a_peer_that_leaves_in_the_middle_costs_nobody_a_thread() -> None:
    async def run() -> None:
        async with served() as (senders, ask, _):
            for _ in range(SENDERS_MAXIMUM + 2):
                _, writer = await ask()
                await until(lambda: senders.busy == 1)
                writer.transport.abort()
                await until(lambda: senders.busy == 0)

    uvloop.run(run())


def test_a_peer_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_stream, "SEND_TIMEOUT_S", 0.5)

    async def run() -> None:
        async with served() as (senders, ask, _):
            reader, _ = await ask()
            await until(lambda: senders.busy == 1)
            await until(lambda: senders.busy == 0)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await read_answer(reader)

    uvloop.run(run())


def test_a_stop_does_not_wait_for_peers_that_do_not_read() -> None:
    async def run() -> None:
        async with served() as (senders, ask, runner):
            await asyncio.gather(*(ask() for _ in range(3)))
            await until(lambda: senders.busy == 3)
            await runner.cleanup()
            assert senders.busy == 0

    uvloop.run(run())
