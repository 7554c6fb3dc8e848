"""Answers as Arrow streams: encoded where the columns lie, and sent beside the loop.

Owns: the threads that send, and how long a peer may take. Never: knows what is in an answer.

To send a megabyte to a program on this machine takes a millisecond, and a reader at full speed
takes hundreds each second: by the loop, everybody would wait for each of them.

Invariants:
1. While a thread sends to a socket the loop writes nothing to it.
2. At most SENDERS_MAXIMUM answers have a thread; others are sent by the loop, chunk by chunk, as
   are those of one chunk, and those that go through TLS.
3. A peer that does not take its answer within SEND_TIMEOUT_S is cut off.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from socket import SHUT_RDWR, socket
from typing import TYPE_CHECKING, Final

from aiohttp import web

from holdfast.broker.threads import ThreadsBeside

if TYPE_CHECKING:
    import pyarrow as pa

ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"
SENDERS_MAXIMUM: Final = 8
"""Threads; most of the time they wait for their peers."""
SEND_TIMEOUT_S: Final = 60
"""A peer that has not taken its answer by then does not read."""
CHUNK_BYTES: Final = 256 << 10
"""What the loop writes to a socket at a time; the next follows when the peer has taken it."""
SENT_BYTES: Final = 32 << 10
"""What a thread sends at a time. Many systems let nobody else have the core before such a call
returns: with megabytes at a time a publisher beside a reader had 0.72 of its rate, with this 0.83.
A reader alone is as fast; with half of this it is not."""
WHOLE_BYTES: Final = 64 << 10
"""From this size on a buffer of an answer is sent from where it lies; smaller ones are gathered,
since a write of its own costs more than to copy it."""
FLUSHED_WITHIN: Final = 10
"""Iterations of the loop: one or two are enough, unless the peer takes nothing."""


class Senders:
    """Threads that send, begun when there is something to send."""

    def __init__(self) -> None:
        self._threads = ThreadsBeside(SENDERS_MAXIMUM, "sender")
        self.busy = 0

    async def send(self, transport: asyncio.Transport, pieces: Sequence[memoryview]) -> bool:
        """Sends all of it, and returns true; or false, and nothing was sent, if that is for the
        loop. Raises `OSError` if the peer has gone."""
        is_large = sum(piece.nbytes for piece in pieces) > CHUNK_BYTES
        is_plain = transport.get_extra_info("sslcontext") is None
        is_for_a_thread = is_large and is_plain and await _is_flushed(transport)
        # Asked last: others may have begun while that was awaited.
        if not is_for_a_thread or self.busy == SENDERS_MAXIMUM:
            return False
        # Of its own, so that it stays what it is if the loop closes the connection meanwhile.
        copy = socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        copy.settimeout(SEND_TIMEOUT_S)
        work = self._threads.submit(_send_all, copy, pieces)
        self.busy += 1
        try:
            await asyncio.wrap_future(work)
        except asyncio.CancelledError:
            _give_up(copy, has_begun=not work.cancelled())
            raise
        finally:
            self.busy -= 1
        return True

    def close(self) -> None:
        """Ends the threads; none of them sends."""
        self._threads.shutdown(cancel_futures=True)


SENDERS: Final = web.AppKey("senders", Senders)


async def senders_of(app: web.Application) -> AsyncIterator[None]:
    """Those of an application, for as long as it answers."""
    app[SENDERS] = Senders()
    yield
    app[SENDERS].close()


async def send(request: web.Request, pieces: Sequence[memoryview]) -> web.StreamResponse:
    """Sends an Arrow stream, as fast as the peer takes it."""
    response = web.StreamResponse(headers={"Content-Type": ARROW_STREAM})
    response.content_length = sum(piece.nbytes for piece in pieces)
    await response.prepare(request)
    transport = request.transport
    try:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            # With what stands before the body, so that both are one packet.
            first, *others = pieces
            await _write(response, first[:WHOLE_BYTES])
            rest = [first[WHOLE_BYTES:], *others]
            if transport is None or not await request.app[SENDERS].send(transport, rest):
                for piece in rest:
                    await _write(response, piece)
            await response.write_eof()
    except OSError:
        # A time that is up is one of these.
        if transport is not None:
            transport.abort()
    return response


def encode_stream(batch: "pa.RecordBatch") -> Sequence[memoryview]:
    """One batch as an Arrow stream, in pieces of which the large ones are the batch's own."""
    import pyarrow as pa  # Loaded behind the start (`reading.log` says why).

    sink = _Pieces()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), batch.schema) as stream:
        stream.write_batch(batch)
    return sink.take()


async def _write(response: web.StreamResponse, piece: memoryview) -> None:
    for at in range(0, len(piece), CHUNK_BYTES):
        await response.write(piece[at : at + CHUNK_BYTES])


async def _is_flushed(transport: asyncio.Transport) -> bool:
    """True if the loop has written all that it was given."""
    for _ in range(FLUSHED_WITHIN):
        if transport.is_closing() or transport.get_write_buffer_size() == 0:
            break
        await asyncio.sleep(0)
    return not transport.is_closing() and transport.get_write_buffer_size() == 0


def _send_all(copy: socket, pieces: Sequence[memoryview]) -> None:
    with copy:
        for piece in pieces:
            for at in range(0, len(piece), SENT_BYTES):
                copy.sendall(piece[at : at + SENT_BYTES])


def _give_up(copy: socket, *, has_begun: bool) -> None:
    """Whoever sends to it need not wait for the peer any more."""
    if has_begun:
        # It is closed by its thread, which has done so if it was just about to.
        with suppress(OSError):
            copy.shutdown(SHUT_RDWR)
    else:
        copy.close()


class _Pieces:
    """A file that is written and keeps what is written where it lies, but for what is small."""

    closed = False

    def __init__(self) -> None:
        self._gathered = bytearray()
        self._pieces: list[memoryview] = []

    def write(self, data: "bytes | pa.Buffer") -> int:
        """Takes the next bytes; nobody changes them any more."""
        if len(data) < WHOLE_BYTES:
            self._gathered += data
        else:
            self._close_gathered()
            self._pieces.append(memoryview(data))
        return len(data)

    def flush(self) -> None:
        """There is nothing that waits."""

    def take(self) -> Sequence[memoryview]:
        """All that was written."""
        self._close_gathered()
        return self._pieces

    def _close_gathered(self) -> None:
        if self._gathered:
            self._pieces.append(memoryview(self._gathered))
            self._gathered = bytearray()
