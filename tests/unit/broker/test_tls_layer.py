"""A handshake of TLS: a worker does its steps, and nobody is read from meanwhile."""

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any, cast

import pytest

from holdfast.broker.counts import Counted, Counts, Event
from holdfast.broker.sockets.connection import Connection
from holdfast.broker.sockets.layer import Upper
from holdfast.broker.sockets.tls import Handshakes, TlsLayer
from holdfast.core.limits import HANDSHAKE_READ_BYTES, HANDSHAKES_AT_ONCE
from tests.builders.certificates import Authority
from tests.unit.broker.access.builders import HandWorkers


class Recorder(Upper):
    """What stands on TLS: it keeps what comes."""

    def __init__(self, buffer: bytearray) -> None:
        self.certificate_name: str | None = None
        self.peer = ""
        self.received = b""
        self.is_lost = False
        self._buffer = buffer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def get_buffer(self, _size_hint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self.received += self._buffer[:count]

    def connection_lost(self, _error: Exception | None) -> None:
        self.is_lost = True


class Socket(asyncio.Transport):
    """Keeps what is written, and whether it is read from."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_paused = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def write_eof(self) -> None:
        pass


class Door:
    """A server's side of TLS, a client's, and workers who work when a test says so."""

    def __init__(self, authority: Authority) -> None:
        certificate, key = authority.server()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.workers = HandWorkers()
        self.asked: list[int] = []
        self.handshakes = Handshakes(self._make)
        self.buffer = bytearray(262_144)
        self.upper = Recorder(self.buffer)
        self.counts = Counts()
        self.layer = TlsLayer(
            self.upper,
            cast(Connection, self.upper),
            context,
            self.handshakes,
            self.buffer,
            self.counts,
        )
        self.socket = Socket()
        self.layer.connection_made(self.socket)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = authority.trusting().wrap_bio(
            self.incoming, self.outgoing, server_hostname="127.0.0.1"
        )

    def _make(self, count: int) -> HandWorkers:
        self.asked.append(count)
        return self.workers

    def feed(self, data: bytes) -> None:
        assert not self.socket.is_paused
        room = self.layer.get_buffer(-1)
        assert len(data) <= len(room)
        room[: len(data)] = data
        self.layer.buffer_updated(len(data))

    def client_steps(self, step: Callable[[], object]) -> None:
        self.incoming.write(self.socket.written)
        self.socket.written = b""
        with contextlib.suppress(ssl.SSLWantReadError):
            step()


@pytest.fixture
def door(tmp_path_factory: pytest.TempPathFactory) -> Door:
    return Door(Authority(tmp_path_factory.mktemp("certificates")))


def test_a_worker_does_the_handshake_and_nothing_is_read_meanwhile(door: Door) -> None:
    assert door.asked == [HANDSHAKES_AT_ONCE]
    door.client_steps(door.client.do_handshake)
    door.feed(door.outgoing.read())
    assert door.socket.is_paused
    assert door.socket.written == b""
    door.workers.work()
    assert not door.socket.is_paused
    door.client_steps(door.client.do_handshake)
    door.client.write(b"first words")
    door.feed(door.outgoing.read())
    assert door.upper.received == b""
    door.workers.work()
    assert door.upper.received == b"first words"
    assert not door.counts.all()


def test_little_is_taken_of_who_has_not_shaken_hands(door: Door) -> None:
    assert len(door.layer.get_buffer(-1)) == HANDSHAKE_READ_BYTES
    for _ in range(2):
        door.client_steps(door.client.do_handshake)
        door.feed(door.outgoing.read())
        door.workers.work()
    assert len(door.layer.get_buffer(-1)) == len(door.buffer)


def test_what_is_not_tls_is_told_so_when_a_worker_has_seen_it(door: Door) -> None:
    door.feed(b"GET / HTTP/1.1\r\n\r\n")
    assert not door.upper.is_lost
    door.workers.work()
    assert door.upper.is_lost
    assert door.counts.all() == {Counted(Event.TLS_HANDSHAKES_REFUSED): 1}


def test_who_goes_while_a_worker_is_at_it_is_counted_once_and_left(door: Door) -> None:
    door.client_steps(door.client.do_handshake)
    door.feed(door.outgoing.read())
    door.layer.connection_lost(None)
    door.workers.work()
    assert door.socket.written == b""
    assert door.counts.all() == {Counted(Event.TLS_HANDSHAKES_UNFINISHED): 1}


def test_after_the_end_no_handshake_goes_on(door: Door) -> None:
    door.client_steps(door.client.do_handshake)
    door.handshakes.stop()
    door.feed(door.outgoing.read())
    assert not door.workers.waiting
