"""What stands between a socket and its connection: TLS, WebSocket, the PROXY protocol.

A layer is the protocol of what is below it and the transport of what is above it, so that a
connection sees no difference between them and a socket, and layers stand on one another:

    socket - [PROXY protocol] - [TLS] - [WebSocket] - connection

Owns: what all layers have in common. Never: keeps bytes that could be handed on.

Invariants:
1. The connection above exists from the moment the socket was accepted, so the limits on
   connections and the deadline for CONNECT cover handshakes that never end.
2. All layers read into the one read buffer: what comes up has replaced what it was made of.
3. A layer without its handshake is counted as unfinished when its socket goes.
4. A layer whose socket is gone refers to nothing above it.
"""

import asyncio
from typing import Any, ClassVar, cast

from holdfast.broker.counts import Counts, Event

ANSWERS_BYTES_MAXIMUM = 2_097_152
"""What may wait for a peer that makes a layer answer (a ping, new keys) and does not read: more
than one outbox holds, so that a slow reader who asks nothing never comes near."""


class Upper(asyncio.BufferedProtocol):
    """What stands on a layer: another one, or the connection."""

    __slots__ = ()

    def ready(self) -> None:
        """All handshakes below are over."""

    def broken(self, reason: str) -> None:
        """A layer below ends it; why, for people."""


class Layer(asyncio.Transport, Upper):
    """Bytes through, both ways; each kind changes what it must."""

    __slots__ = ("_buffer", "_counts", "_is_finished", "_is_ready", "_upper", "transport")

    UNFINISHED: ClassVar[Event]
    """Its handshake had not ended when the socket went."""
    NOT_READING: ClassVar[Event]
    """The peer does not take what this layer has to say."""

    def __init__(self, upper: Upper, buffer: bytearray, counts: Counts) -> None:
        self._upper = upper
        self._buffer = buffer
        self._counts = counts
        self._is_ready = False
        """Its handshake is over."""
        self._is_finished = False
        """It has sent the last that it will ever send."""
        self.transport: asyncio.Transport

    # --- the protocol of what is below ----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        self.transport = cast(asyncio.Transport, transport)
        self._upper.connection_made(self)

    def broken(self, reason: str) -> None:
        """A layer below ends it."""
        self._upper.broken(reason)

    def get_buffer(self, size_hint: int) -> bytearray | memoryview:
        """The one buffer that everybody reads into, or what of it the layer above wants filled."""
        return cast(bytearray, self._upper.get_buffer(size_hint))

    def pause_writing(self) -> None:
        """The peer does not read as fast as we write."""
        self._upper.pause_writing()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._upper.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone."""
        if not self._is_ready:
            self._end_handshake(self.UNFINISHED)
        self._upper.connection_lost(error)
        # The connection still knows its transport: a circle, which only the garbage collector
        # would find, with all that TLS keeps for it.
        del self._upper

    # --- the transport of what is above ---------------------------------------------------------

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """When `pause_writing` is called."""
        self.transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Bytes that wait for the peer."""
        return self.transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        """Nothing more is read from the peer."""
        self.transport.pause_reading()

    def resume_reading(self) -> None:
        """It is read again."""
        self.transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What the socket below knows."""
        return self.transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """True if nothing can be written any more."""
        return self.transport.is_closing()

    def can_write_eof(self) -> bool:
        """Every layer can end one direction and leave the other open."""
        return True

    def abort(self) -> None:
        """Ends the connection where it is."""
        self.transport.abort()

    # --- for the kinds of layers ----------------------------------------------------------------

    def _end_handshake(self, how: Event, reason: int | None = None) -> None:
        """Counts that it has failed, once: those of the layers above have not begun."""
        self._counts.add(how, reason)
        layer: asyncio.BufferedProtocol = self
        while isinstance(layer, Layer):
            layer._is_ready = True
            layer = layer._upper

    def _finish(self) -> None:
        """Sends nothing more, and waits for the peer to end its side too.

        What it still sends is thrown away. A socket that was closed with bytes unread would take
        back what was written last, and that says why. Whoever closes connections bounds the wait.
        """
        if self._is_finished:
            return
        self._is_finished = True
        if not self.transport.is_closing():
            self.transport.write_eof()
            self.transport.resume_reading()
        # Layers between here and the connection learn it when the socket goes.
        upper: asyncio.BufferedProtocol = self
        while isinstance(upper, Layer):
            upper = upper._upper
        upper.connection_lost(None)

    def _answer(self, data: bytes) -> None:
        """Writes what this layer itself has to say."""
        if self.transport.get_write_buffer_size() > ANSWERS_BYTES_MAXIMUM:
            self._counts.add(self.NOT_READING)
            self.transport.abort()
        elif not self.transport.is_closing():
            self.transport.write(data)
