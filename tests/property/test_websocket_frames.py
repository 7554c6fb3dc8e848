"""A WebSocket hands up the bytes of its binary frames, however frames and reads are cut."""

import asyncio
import gc
import weakref
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.counts import Counts
from holdfast.broker.sockets.websocket import WebSocketLayer, WebSocketRules
from tests.builders.websocket import (
    ACCEPT,
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    frame,
    parse,
    request,
)

FRAME_BYTES_MAXIMUM = 5_000
RULES = WebSocketRules((), True, FRAME_BYTES_MAXIMUM)


class Socket(asyncio.Transport):
    """What the layer writes stays here."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.ended = False
        self.is_paused = False
        self.waiting = 0

    def write(self, data: Any) -> None:
        self.written += data

    def write_eof(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def get_write_buffer_size(self) -> int:
        return self.waiting


class Upper(asyncio.BufferedProtocol):
    """What comes up; pauses after every so many bytes."""

    def __init__(self, buffer: bytearray, pause_every: int = 0) -> None:
        self.received = bytearray()
        self.lost = False
        self._buffer = buffer
        self._pause_every = pause_every

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def buffer_updated(self, count: int) -> None:
        before = len(self.received)
        self.received += self._buffer[:count]
        if self._pause_every and before // self._pause_every != len(self.received) // (
            self._pause_every
        ):
            self.transport.pause_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        self.lost = True


class Peer:
    """A layer between a socket and a connection that are not there."""

    def __init__(self, buffer_bytes: int = 1_000, pause_every: int = 0) -> None:
        self.buffer = bytearray(buffer_bytes)
        self.socket = Socket()
        self.counts = Counts()
        self.upper = Upper(self.buffer, pause_every)
        self.layer = WebSocketLayer(self.upper, RULES, self.buffer, self.counts)
        self.layer.connection_made(self.socket)

    def send(self, data: bytes, cuts: list[int] | None = None) -> None:
        """Sends bytes in reads that end at `cuts`; whoever pauses reads on before the next."""
        ends = sorted({cut % (len(data) + 1) for cut in cuts or []} | {len(data)})
        begin = 0
        for end in ends:
            while begin < end:
                view = self.layer.get_buffer(-1)
                count = min(len(view), end - begin)
                view[:count] = data[begin : begin + count]
                begin += count
                self.layer.buffer_updated(count)
                self.read_on()

    def read_on(self) -> None:
        while self.socket.is_paused and not self.upper.lost:
            self.layer.resume_reading()

    def answers(self) -> list[tuple[int, bytes]]:
        """The frames that were written, after the handshake's answer."""
        _, _, rest = bytes(self.socket.written).partition(b"\r\n\r\n")
        frames, left = parse(rest)
        assert not left
        return frames


payloads = st.lists(st.binary(max_size=3_000), max_size=6)
cuts = st.lists(st.integers(0, 20_000), max_size=30)


@given(payloads, st.data(), cuts, st.integers(0, 400))
def test_bytes_come_up_as_they_were_sent(
    parts: list[bytes], data: st.DataObject, cuts: list[int], pause_every: int
) -> None:
    """Messages of any fragments, pings between them, in any reads, whoever pauses when."""
    peer = Peer(pause_every=pause_every)
    sent = request()
    pings = []
    for number, part in enumerate(parts):
        fragments = data.draw(st.lists(st.integers(0, len(part)), max_size=4).map(sorted))
        ends = [*fragments, len(part)]
        begin = 0
        for place, end in enumerate(ends):
            opcode = CONTINUATION if place else BINARY
            sent += frame(part[begin:end], opcode, final=place == len(ends) - 1)
            if data.draw(st.booleans()):
                pings.append(b"%d.%d" % (number, place))
                sent += frame(pings[-1], PING)
            begin = end
    peer.send(sent, cuts)
    assert peer.upper.received == b"".join(parts)
    assert ACCEPT in peer.socket.written
    assert peer.answers() == [(PONG, ping) for ping in pings]
    assert not peer.upper.lost


@given(st.binary(max_size=2_000), cuts)
def test_any_bytes_after_the_handshake_end_in_order_or_wait(junk: bytes, cuts: list[int]) -> None:
    peer = Peer()
    peer.send(request())
    peer.send(junk, cuts)
    assert peer.socket.ended == peer.upper.lost
    if peer.upper.lost:
        assert peer.answers()[-1][0] == CLOSE


@given(st.binary(max_size=2_000), cuts)
def test_any_bytes_instead_of_a_handshake_are_refused_or_wait(junk: bytes, cuts: list[int]) -> None:
    peer = Peer()
    peer.send(junk, cuts)
    assert not peer.upper.received
    if peer.socket.ended:
        assert peer.socket.written.startswith(b"HTTP/1.1 4")


def test_who_pings_and_does_not_read_costs_no_memory() -> None:
    peer = Peer()
    peer.send(request())
    peer.layer.pause_writing()
    peer.send(frame(b"x" * 125, PING) * 1_000)
    assert peer.answers() == []
    peer.layer.resume_writing()
    peer.send(frame(b"again", PING))
    assert peer.answers() == [(PONG, b"again")]


def test_what_one_turn_writes_is_one_frame() -> None:
    peer = Peer()
    peer.send(request())
    peer.layer.write(b"a" * 70_000)
    assert peer.answers() == [(BINARY, b"a" * 70_000)]


def test_a_websocket_that_is_gone_leaves_no_circle() -> None:
    peer = Peer()
    peer.send(request() + frame(b"x") + frame(b"half")[:7])
    upper = weakref.ref(peer.upper)
    framing = weakref.ref(peer.layer._framing)
    gc.disable()
    try:
        peer.layer.connection_lost(None)
        del peer
        assert upper() is None
        assert framing() is None
    finally:
        gc.enable()
