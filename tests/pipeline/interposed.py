"""Something between a writer and a broker that breaks off where a test says so."""

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

Fate = Literal["pass", "cut before", "cut after"]


class Interposed:
    """Passes requests on to a broker; `fate` decides for each what becomes of it."""

    def __init__(self, host: str, port: int) -> None:
        self.fate: Callable[[str, str], Fate] = lambda _method, _path: "pass"
        self.asked: list[tuple[str, str]] = []
        self._target = host, port

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_PUT(handler) -> None:  # noqa: N805
                self._pass_on(handler)

            do_POST = do_GET = do_PUT  # noqa: N815

            def log_message(handler, *_arguments: object) -> None:  # noqa: N805
                """Says nothing."""

        self.server = ThreadingHTTPServer((host, 0), Handler)
        self.address = f"{host}:{self.server.server_address[1]}"

    def _pass_on(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        fate = self.fate(handler.command, handler.path)
        self.asked.append((handler.command, handler.path))
        if fate == "cut before":
            _cut(handler)
            return
        connection = http.client.HTTPConnection(*self._target)
        kind = {"Content-Type": handler.headers.get("Content-Type", "application/json")}
        connection.request(handler.command, handler.path, body, kind)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if fate == "cut after":
            _cut(handler)
            return
        handler.send_response(answer.status)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)


def _cut(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def interposed(host: str, port: int) -> Iterator[Interposed]:
    """One that ends with the block."""
    between = Interposed(host, port)
    thread = threading.Thread(target=between.server.serve_forever)
    thread.start()
    try:
        yield between
    finally:
        between.server.shutdown()
        between.server.server_close()
        thread.join()
