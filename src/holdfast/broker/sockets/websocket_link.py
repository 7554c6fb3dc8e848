"""MQTT over a WebSocket that is opened from here.

Owns: the client's side of the handshake, and how such a connection ends. Never: parses a frame.

Flow: TLS or socket -> here -> connection.
"""

import asyncio
from typing import Final, cast

from websockets.client import ClientProtocol
from websockets.frames import CloseCode, Frame
from websockets.protocol import OPEN
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from holdfast.broker.counts import Counts, Event
from holdfast.broker.sockets.layer import Layer, Upper
from holdfast.broker.sockets.websocket import FramedLayer, library_log

SUBPROTOCOL: Final = Subprotocol("mqtt")
"""[MQTT-6.0.0-3]."""


class WebSocketLinkLayer(FramedLayer):
    """The client's side of one WebSocket."""

    __slots__ = ("_client",)

    UNFINISHED = Event.LINK_HANDSHAKES_UNFINISHED
    NOT_READING = Event.LINK_PEERS_NOT_READING

    def __init__(
        self,
        upper: Upper,
        address: WebSocketURI,
        frame_bytes_maximum: int,
        buffer: bytearray,
        counts: Counts,
    ) -> None:
        self._client = ClientProtocol(
            address,
            subprotocols=[SUBPROTOCOL],
            max_size=(None, frame_bytes_maximum),
            logger=library_log,
        )
        super().__init__(upper, self._client, buffer, counts)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open; the request goes out as soon as it can."""
        super().connection_made(transport)
        if not isinstance(transport, Layer):
            self.ready()

    def ready(self) -> None:
        """What is below takes bytes."""
        if not self.transport.is_closing():
            self._client.send_request(self._client.connect())
            self.transport.write(b"".join(self._client.data_to_send()))

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone."""
        if not self._is_ready:
            # A refusal may end with the connection.
            self._client.receive_eof()
            if self._client.handshake_exc is not None:
                self._refuse(str(self._client.handshake_exc))
        super().connection_lost(error)

    def _shake_hands(self, data: bytes) -> bytes:
        self._client.receive_data(data)
        events = self._client.events_received()
        if self._client.handshake_exc is not None:
            self._refuse(str(self._client.handshake_exc))
        elif self._client.state is OPEN and self._client.subprotocol != SUBPROTOCOL:
            self._refuse("the server does not say that it speaks MQTT there")
        elif self._client.state is OPEN:
            self._is_ready = True
            self._upper.ready()
            # The first event is the answer; frames may have come with it.
            self._take(cast(list[Frame], events[1:]))
        return b""

    def _refuse(self, reason: str) -> None:
        self._end_handshake(Event.LINK_HANDSHAKES_REFUSED)
        self._upper.broken(f"WebSocket: {reason}")
        self.transport.abort()

    def _send(self) -> None:
        super()._send()
        if self._client.state is not OPEN:
            self._ended()

    def _ended(self) -> None:
        """A client may wait for the server to end the connection; this one has better things to do,
        unless it has only said goodbye itself."""
        said, heard = self._client.close_sent, self._client.close_rcvd
        if heard is None and said is not None and said.code == CloseCode.NORMAL_CLOSURE:
            return
        if not self.transport.is_closing():
            self._upper.broken(f"WebSocket: {heard or said}")
            self.transport.close()
