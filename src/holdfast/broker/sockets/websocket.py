"""MQTT over WebSocket: frames in, frames out (section 6 of MQTT, RFC 6455).

Owns: what of WebSocket MQTT allows, in one place for the listeners of its own, for `/mqtt` on the
HTTP listener, and for links (websocket_link). Never: parses a frame or a handshake; the library
does.

Invariants:
1. Only binary frames carry MQTT [MQTT-6.0.0-1]; packets begin and end in them anywhere
   [MQTT-6.0.0-2], so fragments go up as they come and no message is put together.
2. What one turn writes is one frame.
3. While the connection above does not read, frames wait here, and no more are read.

Flow: socket or TLS -> here -> connection.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from websockets.exceptions import SecurityError
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import OPEN, SERVER, Protocol
from websockets.server import ServerProtocol
from websockets.streams import StreamReader
from websockets.typing import Subprotocol

from holdfast.broker.counts import Counts, Event
from holdfast.broker.sockets.layer import Layer, Upper
from holdfast.broker.sockets.origins import is_welcome
from holdfast.core.limits import WEBSOCKET_READ_BYTES, WEBSOCKET_REQUEST_BYTES_MAXIMUM

SUBPROTOCOLS = (Subprotocol("mqtt"), Subprotocol("mqttv3.1"))
"""The registered name [MQTT-6.0.0-3], and what clients of MQTT 3.1 said before there was one."""

BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

# The library says that every connection has closed. That is not an event here.
library_log = logging.getLogger("holdfast.websocket")
library_log.setLevel(logging.ERROR)


@dataclass(slots=True)
class WebSocketRules:
    """What is accepted; a reload may change it for those who come later."""

    origins: tuple[str, ...]
    """See the setting `ws.origins`."""
    is_local: bool
    """Only this machine can reach us."""
    frame_bytes_maximum: int

    def answer(self, request: Request) -> Response:
        """What a handshake's request is answered: status 101, or a refusal that says why."""
        handshake = ServerProtocol(subprotocols=SUBPROTOCOLS, logger=library_log)
        if not is_welcome(request.headers, self.origins, is_local=self.is_local):
            return handshake.reject(403, "Pages of this origin may not connect (ws.origins).\n")
        return handshake.accept(request)


class FramedLayer(Layer):
    """One WebSocket, whichever side began it."""

    __slots__ = ("_frames", "_framing", "_is_paused", "_is_slow")

    def __init__(self, upper: Upper, framing: Protocol, buffer: bytearray, counts: Counts) -> None:
        super().__init__(upper, buffer, counts)
        self._framing = framing
        self._frames: deque[Frame] | None = None
        """Frames that wait because the connection above is not read."""
        self._is_paused = False
        self._is_slow = False
        """The peer does not read."""

    # --- the protocol of what is below ----------------------------------------------------------

    def get_buffer(self, _size_hint: int) -> memoryview:
        """A part of the read buffer: tiny frames are work, and others wait meanwhile."""
        return memoryview(self._buffer)[:WEBSOCKET_READ_BYTES]

    def buffer_updated(self, count: int) -> None:
        """`count` bytes of frames, or of the handshake, have come."""
        if self._is_finished:
            return
        data = bytes(memoryview(self._buffer)[:count])
        if not self._is_ready:
            data = self._shake_hands(data)
        if data:
            self._receive(data)

    def pause_writing(self) -> None:
        """The peer does not read as fast as we write."""
        self._is_slow = True
        super().pause_writing()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._is_slow = False
        super().resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone."""
        super().connection_lost(error)
        # The library's parser refers to itself.
        self._framing.parser.close()

    # --- the transport of what is above ---------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Sends one binary frame."""
        if self._framing.state is OPEN and not self._is_finished:
            self._framing.send_binary(data)
            self.transport.write(b"".join(self._framing.data_to_send()))

    def close(self) -> None:
        """Says goodbye; the socket ends when the peer has answered."""
        if self._is_finished:
            return
        if not self._is_ready:
            self.transport.close()
        elif self._framing.state is OPEN:
            self._framing.send_close(CloseCode.NORMAL_CLOSURE)
            self._send()
            # What waits is of no use any more, but the answer comes behind it.
            self._frames = None
            self.resume_reading()

    def pause_reading(self) -> None:
        """Nothing more is read, and nothing more is handed up."""
        self._is_paused = True
        super().pause_reading()

    def resume_reading(self) -> None:
        """What waits is handed up, then the rest is read."""
        self._is_paused = False
        frames, self._frames = self._frames, None
        if frames:
            self._take(frames)
        if not self._is_paused:
            super().resume_reading()

    # --- frames ---------------------------------------------------------------------------------

    def _shake_hands(self, data: bytes) -> bytes:
        """Goes on with the handshake; returns what follows it."""
        raise NotImplementedError

    def _ended(self) -> None:
        """The framing has said its last."""
        raise NotImplementedError

    def _receive(self, data: bytes) -> None:
        self._framing.receive_data(data)
        # After the handshake there are no other events.
        self._take(cast(list[Frame], self._framing.events_received()))

    def _take(self, frames: Iterable[Frame]) -> None:
        """Hands up what binary frames carry, as much at a time as the read buffer holds."""
        waiting = deque(frames)
        filled = 0
        while waiting and not self._is_paused:
            frame = waiting.popleft()
            if frame.opcode is Opcode.TEXT:
                self._framing.fail(CloseCode.UNSUPPORTED_DATA, "MQTT is binary [MQTT-6.0.0-1]")
                waiting.clear()
            elif frame.opcode is Opcode.BINARY or frame.opcode is Opcode.CONT:
                room = len(self._buffer) - filled
                data = frame.data
                if len(data) > room:
                    waiting.appendleft(Frame(Opcode.CONT, memoryview(data)[room:]))
                    data = memoryview(data)[:room]
                self._buffer[filled : filled + len(data)] = data
                filled += len(data)
                if filled == len(self._buffer):
                    self._upper.buffer_updated(filled)
                    filled = 0
        if filled:
            self._upper.buffer_updated(filled)
        if waiting:
            self._frames = waiting
        else:
            self._send()

    def _send(self) -> None:
        """Sends what the framing has to say: answers to pings, and goodbye."""
        writes = self._framing.data_to_send()
        if not writes:
            return
        if self._is_slow and self._framing.state is OPEN:
            # Only pings are answered while it is open, and an answer may be left out until the
            # next one (RFC 6455 section 5.5.3): else who pings and does not read costs memory.
            return
        data = b"".join(writes)
        if data:
            self._answer(data)
        if self._framing.eof_sent:
            self._ended()


class WebSocketLayer(FramedLayer):
    """The server's side of one WebSocket."""

    __slots__ = ("_request", "_rules")

    UNFINISHED = Event.WEBSOCKET_HANDSHAKES_UNFINISHED
    NOT_READING = Event.WEBSOCKET_PEERS_NOT_READING

    def __init__(
        self, upper: Upper, rules: WebSocketRules, buffer: bytearray, counts: Counts
    ) -> None:
        frame_bytes = (None, rules.frame_bytes_maximum)
        framing = Protocol(SERVER, max_size=frame_bytes, logger=library_log)
        super().__init__(upper, framing, buffer, counts)
        self._rules = rules
        self._request: _Handshake | None = None

    def begin(self, transport: asyncio.Transport, rest: bytes) -> None:
        """Takes over a socket on which somebody else has shaken hands; `rest` came after that."""
        self._is_ready = True
        self.connection_made(transport)
        if rest and not transport.is_closing():
            self._receive(rest)

    def _shake_hands(self, data: bytes) -> bytes:
        if self._request is None:
            self._request = _Handshake()
        request = self._request
        try:
            complete = request.feed(data)
        except _BadRequestError:
            self._refuse(400, BAD_REQUEST)
            return b""
        if complete is None:
            return b""
        response = self._rules.answer(complete)
        if response.status_code != 101:
            self._refuse(response.status_code, response.serialize())
            return b""
        self._is_ready = True
        self._request = None
        self.transport.write(response.serialize())
        return request.rest()

    def _refuse(self, status: int, response: bytes) -> None:
        self._end_handshake(Event.WEBSOCKET_HANDSHAKES_REFUSED, status)
        self._answer(response)
        self._finish()

    def _ended(self) -> None:
        sent = self._framing.close_sent
        if sent is not None and self._framing.parser_exc is not None:
            self._counts.add(Event.WEBSOCKET_CLOSED, sent.code)
        elif sent is not None and sent.code == CloseCode.UNSUPPORTED_DATA:
            self._counts.add(Event.WEBSOCKET_CLOSED, CloseCode.UNSUPPORTED_DATA)
        self._finish()


class _BadRequestError(Exception):
    """Bytes that are no request."""


class _Handshake:
    """The request of a handshake, which may come in any pieces."""

    __slots__ = ("_parser", "_reader", "_taken_bytes")

    def __init__(self) -> None:
        self._reader = StreamReader()
        self._parser = Request.parse(self._reader.read_line)
        self._taken_bytes = 0

    def feed(self, data: bytes) -> Request | None:
        """Takes bytes; returns the request when it is complete. Raises `_BadRequestError`."""
        self._taken_bytes += len(data)
        self._reader.feed_data(data)
        try:
            next(self._parser)
        except StopIteration as stop:
            request: Request = stop.value
            return request
        except (SecurityError, ValueError, NotImplementedError, EOFError) as error:
            raise _BadRequestError(str(error)) from error
        if self._taken_bytes > WEBSOCKET_REQUEST_BYTES_MAXIMUM:
            raise _BadRequestError("the request is too long")
        return None

    def rest(self) -> bytes:
        """What came after the request."""
        return bytes(self._reader.buffer)
