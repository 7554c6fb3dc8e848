"""TLS on a connection.

Owns: what an `ssl.SSLObject` needs to be a layer. Never: decides what is acceptable; the context
does (certificates).

A handshake takes about a millisecond of processor time, most of it for one signature. Its steps are
done by workers, beside the loop and without the interpreter's lock; nothing is read from the peer
meanwhile, so no two threads meet in one connection.

The event loop could do this too, but it would tell nobody about a handshake before it has
succeeded: neither the limits on connections nor any counter would see one that never does. Here
the read buffer serves twice, for what comes in and for what it turns out to say, so an idle
connection keeps no buffer of its own.

Flow: socket -> here -> WebSocket or connection.
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, cast

from holdfast.broker.counts import Counts, Event
from holdfast.broker.sockets.connection import Connection
from holdfast.broker.sockets.layer import Layer, Upper
from holdfast.broker.world import Workers
from holdfast.core.limits import HANDSHAKE_READ_BYTES, HANDSHAKES_AT_ONCE

log = logging.getLogger(__name__)


class Handshakes:
    """Steps of handshakes beside the loop, HANDSHAKES_AT_ONCE of them; the others wait in the order
    in which they came, as many as there may be connections without CONNECT."""

    def __init__(self, workers: Callable[[int], Workers]) -> None:
        """`workers` makes so many."""
        self._workers = workers(HANDSHAKES_AT_ONCE)
        self._is_stopped = False

    def step(self, tls: ssl.SSLObject, done: Callable[[ssl.SSLError | None], None]) -> None:
        """Goes on with a handshake as far as what has come lets it; `done` is told what is wrong
        with it: `SSLWantReadError` if more has to come."""
        if not self._is_stopped:
            self._workers.run(partial(_step, tls), done)

    def stop(self) -> None:
        """None gets any further."""
        self._is_stopped = True
        self._workers.stop()


def _step(tls: ssl.SSLObject) -> ssl.SSLError | None:
    try:
        tls.do_handshake()
    except ssl.SSLError as error:
        return error
    return None


class TlsLayer(Layer):
    """TLS on one connection."""

    __slots__ = ("_connection", "_handshakes", "_incoming", "_outgoing", "_tls")

    UNFINISHED = Event.TLS_HANDSHAKES_UNFINISHED
    NOT_READING = Event.TLS_PEERS_NOT_READING
    REFUSED: ClassVar = Event.TLS_HANDSHAKES_REFUSED
    BROKEN: ClassVar = Event.TLS_CONNECTIONS_BROKEN

    def __init__(
        self,
        upper: Upper,
        connection: Connection,
        context: ssl.SSLContext,
        handshakes: Handshakes,
        buffer: bytearray,
        counts: Counts,
        server_name: str | None = None,
    ) -> None:
        """`server_name` is whom a client means to reach; `None`: we are the server."""
        super().__init__(upper, buffer, counts)
        self._handshakes = handshakes
        self._connection = connection
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_name is None,
            server_hostname=server_name,
        )

    def get_buffer(self, size_hint: int) -> bytearray | memoryview:
        """Before the handshake is over, little: it is kept until a worker has seen to it."""
        if self._is_ready:
            return super().get_buffer(size_hint)
        return memoryview(self._buffer)[:HANDSHAKE_READ_BYTES]

    def buffer_updated(self, count: int) -> None:
        """`count` encrypted bytes have come."""
        if self._is_finished:
            return
        self._incoming.write(memoryview(self._buffer)[:count])
        if self._is_ready:
            self._go_on()
        else:
            self.transport.pause_reading()
            self._handshakes.step(self._tls, self._stepped)

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone."""
        super().connection_lost(error)
        self._is_finished = True
        del self._connection

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypts and sends."""
        if self._is_finished or not self._is_ready or self.transport.is_closing():
            return
        rest = memoryview(data)
        while rest:
            rest = rest[self._tls.write(rest) :]
        self.transport.write(self._outgoing.read())

    def write_eof(self) -> None:
        """Says that nothing more follows."""
        self._say_goodbye()
        self.transport.write_eof()

    def close(self) -> None:
        """Ends the connection when what was written has been sent."""
        if not self._is_finished:
            self._say_goodbye()
            self.transport.close()

    def _stepped(self, error: ssl.SSLError | None) -> None:
        """A worker has gone on with the handshake."""
        # The socket may have gone, or the broker have had enough of it, in the meantime.
        if self._is_finished or self.transport.is_closing():
            return
        self.transport.resume_reading()
        if error is None:
            self._is_ready = True
            if (name := common_name(self._tls.getpeercert())) is not None:
                self._connection.certificate_name = name
            self._upper.ready()
            self._go_on()
        elif isinstance(error, ssl.SSLWantReadError):
            self._send()
        else:
            self._refuse(error)

    def _go_on(self) -> None:
        try:
            self._read()
        except ssl.SSLError as error:
            self._refuse(error)
        self._send()

    def _send(self) -> None:
        if self._outgoing.pending:
            self._answer(self._outgoing.read())

    def _read(self) -> None:
        """Hands up what can be decrypted."""
        view = memoryview(self._buffer)
        filled = 0
        try:
            while count := self._read_into(view[filled:]):
                filled += count
                if filled == len(view):
                    self._upper.buffer_updated(filled)
                    filled = 0
            ended = True  # The peer has said that nothing more follows.
        except ssl.SSLWantReadError:
            ended = False
        except ssl.SSLZeroReturnError:
            ended = True
        if filled:
            self._upper.buffer_updated(filled)
        if ended:
            self.close()

    def _read_into(self, view: memoryview) -> int:
        # With a buffer it returns a number; the stubs know only bytes.
        return cast(int, self._tls.read(len(view), view))

    def _refuse(self, error: ssl.SSLError) -> None:
        """What came is not TLS, or not what the context accepts; the peer is told in an alert."""
        self._end_handshake(self.BROKEN if self._is_ready else self.REFUSED)
        self._upper.broken(sentence_of(error))
        fields = {"peer": self._connection.peer, "reason": error.reason}
        # Not more: whoever reaches the port can cause it, as often as he likes.
        log.debug("TLS refused", extra={"fields": fields})
        self._send()
        self._finish()

    def _say_goodbye(self) -> None:
        if not self._is_ready or self.transport.is_closing():
            return
        # The peer's own goodbye is not here yet, or nobody can say one any more.
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        if self._outgoing.pending:
            self.transport.write(self._outgoing.read())


class TlsLinkLayer(TlsLayer):
    """The client's side of TLS."""

    __slots__ = ()

    UNFINISHED = Event.LINK_HANDSHAKES_UNFINISHED
    NOT_READING = Event.LINK_PEERS_NOT_READING
    REFUSED = Event.LINK_HANDSHAKES_REFUSED
    BROKEN = Event.LINK_CONNECTIONS_BROKEN

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open: a client begins."""
        super().connection_made(transport)
        # Not by a worker: it takes a fraction of a millisecond, and what the peer sends may not
        # come in between.
        _step(self._tls)
        self._send()


def sentence_of(error: ssl.SSLError) -> str:
    """Why TLS was refused, for people."""
    reason = (error.reason or "").replace("_", " ").lower() or "not TLS"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: the remote's certificate was refused: {error.verify_message.rstrip('.')}"
    if "alert" in reason and ("certificate" in reason or "unknown ca" in reason):
        return f"TLS: the remote refused this broker's certificate ({reason})"
    return f"TLS: {reason}"


def common_name(certificate: dict[str, Any] | None) -> str | None:
    """The common name of a certificate's subject, if it has exactly one."""
    names = [
        value
        for parts in (certificate or {}).get("subject", ())
        for key, value in parts
        if key == "commonName"
    ]
    return names[0] if len(names) == 1 else None
