"""TLS on a connection.

Owns: what an `ssl.SSLObject` needs to be a layer. Never: decides what is acceptable; the context
does (certificates).

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
from collections import Counter
from typing import Any, cast

from holdfast.broker.ingress.connection import Connection
from holdfast.broker.ingress.layer import Layer

log = logging.getLogger(__name__)


class TlsLayer(Layer):
    """The server's side of TLS."""

    __slots__ = ("_connection", "_incoming", "_outgoing", "_tls")

    NAME = "tls"

    def __init__(
        self,
        upper: asyncio.BufferedProtocol,
        connection: Connection,
        context: ssl.SSLContext,
        buffer: bytearray,
        counts: Counter[str],
    ) -> None:
        super().__init__(upper, buffer, counts)
        self._connection = connection
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def buffer_updated(self, count: int) -> None:
        """`count` encrypted bytes have come."""
        if self._is_finished:
            return
        self._incoming.write(memoryview(self._buffer)[:count])
        try:
            if self._is_ready or self._handshake():
                self._read()
        except ssl.SSLError as error:
            self._refuse(error)
        if self._outgoing.pending:
            self._answer(self._outgoing.read())

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone."""
        super().connection_lost(error)
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

    def _handshake(self) -> bool:
        """Goes on with the handshake; true when it has succeeded."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self._is_ready = True
        if (name := common_name(self._tls.getpeercert())) is not None:
            self._connection.certificate_name = name
        return True

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
        self._end_handshake("connections_broken" if self._is_ready else "handshakes_refused")
        fields = {"peer": self._connection.peer, "reason": error.reason}
        # Not more: whoever reaches the port can cause it, as often as he likes.
        log.debug("TLS refused", extra={"fields": fields})
        if self._outgoing.pending:
            self._answer(self._outgoing.read())
        self._finish()

    def _say_goodbye(self) -> None:
        if not self._is_ready or self.transport.is_closing():
            return
        # The peer's own goodbye is not here yet, or nobody can say one any more.
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        if self._outgoing.pending:
            self.transport.write(self._outgoing.read())


def common_name(certificate: dict[str, Any] | None) -> str | None:
    """The common name of a certificate's subject, if it has exactly one."""
    names = [
        value
        for parts in (certificate or {}).get("subject", ())
        for key, value in parts
        if key == "commonName"
    ]
    return names[0] if len(names) == 1 else None
