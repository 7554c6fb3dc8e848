"""MQTT over WebSocket at `/mqtt` on the HTTP listener.

Owns: the passage of a socket from HTTP to MQTT. Never: decides what is accepted (websocket does).

After the handshake the socket is ours alone: the HTTP server is told that it has lost it, ends its
task and forgets the request. So a device that comes this way costs no more than on a listener of
its own.

Flow: HTTP listener -> here, once -> WebSocketLayer -> connection.
"""

from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from websockets.datastructures import Headers
from websockets.http11 import Request

from holdfast.broker.sockets.listeners import Listeners
from holdfast.broker.sockets.websocket import WebSocketLayer

PATH = "/mqtt"


def websocket_route(listeners: Listeners) -> web.RouteDef:
    """The route to add to an application."""

    async def upgrade(request: web.Request) -> web.StreamResponse:
        protocol = f"HTTP/{request.version.major}.{request.version.minor}"
        headers = Headers(list(request.headers.items()))
        asked = Request(request.path_qs, headers, request.method, protocol)
        response, layer = listeners.upgrade(asked, secure=request.secure)
        if layer is None:
            body = response.body.decode()
            # What concerns the connection is HTTP's own to say.
            return web.Response(status=response.status_code, text=body)
        _hand_over(request, layer, response.serialize())
        return web.Response()  # It goes nowhere.

    return web.get(PATH, upgrade)


def _hand_over(request: web.Request, layer: WebSocketLayer, answer: bytes) -> None:
    transport = request.transport
    if transport is None or transport.is_closing():
        return
    server = request.protocol
    server.transport = None
    server.connection_lost(None)
    # The protocol takes bytes in another way than the one before, so it may not be amidst a read.
    transport.pause_reading()
    transport.set_protocol(layer)
    transport.write(answer)
    layer.begin(transport, _unread(server))
    if not transport.is_closing():
        transport.resume_reading()


def _unread(server: RequestHandler) -> bytes:
    """What came behind the request."""
    return server._message_tail
