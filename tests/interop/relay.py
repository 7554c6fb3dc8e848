"""Stands between clients and a broker: it records what passes, and can cut every connection.

Owns: one listening port, and a thread for each direction of each connection.
Never: changes a byte, or connects to anything but the broker it was made for.
"""

import contextlib
import socket
import threading
from dataclasses import dataclass, field
from typing import Self

from tests.process import HOST

ASK_EVERY_S = 0.02


@dataclass
class Passed:
    """What went over one connection."""

    to_broker: bytearray = field(default_factory=bytearray)
    to_client: bytearray = field(default_factory=bytearray)


class Relay:
    """A port that leads to the broker's."""

    def __init__(self, broker_port: int, *, patient: bool = False) -> None:
        """`patient`: while the broker is away, it lets a client wait instead of refusing it."""
        self.connections: list[Passed] = []
        """In the order in which they came; read while the relay runs."""
        self.changed = threading.Condition()
        """Notified when bytes have passed."""
        self._broker_port = broker_port
        self._patient = patient
        self._closing = threading.Event()
        self._listener = socket.create_server((HOST, 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        # Only a shutdown wakes a thread that waits in accept.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        self.cut()
        for thread in self._threads:
            thread.join()

    def cut(self) -> None:
        """Ends every connection there is, on both sides, without a word."""
        with self.changed:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = self._reach_broker()
            if broker is None:
                client.close()
                continue
            passed = Passed()
            with self.changed:
                self._open |= {client, broker}
                self.connections.append(passed)
            for source, sink, record in (
                (client, broker, passed.to_broker),
                (broker, client, passed.to_client),
            ):
                thread = threading.Thread(target=self._pass, args=(source, sink, record))
                self._threads.append(thread)
                thread.start()

    def _reach_broker(self) -> socket.socket | None:
        while not self._closing.is_set():
            try:
                return socket.create_connection((HOST, self._broker_port))
            except OSError:
                if not self._patient:
                    break
                self._closing.wait(ASK_EVERY_S)
        return None

    def _pass(self, source: socket.socket, sink: socket.socket, record: bytearray) -> None:
        """One direction, until it ends; then the other one ends too."""
        with contextlib.suppress(OSError):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := source.recv(65_536):
                with self.changed:
                    record += data
                    self.changed.notify_all()
                sink.sendall(data)
        with self.changed:
            for each in (source, sink):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            if sink in self._open and source in self._open:
                self._open -= {source}
            else:
                # The other direction has ended already; nobody uses them any more.
                self._open -= {source, sink}
                source.close()
                sink.close()
