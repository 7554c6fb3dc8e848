"""What the machine itself takes, with nothing of Holdfast in between: the bound of every figure."""

import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.macro.machine import sequential_bytes_per_second

RECORD_BYTES = 4_096
SYNCS = 200
BATCH_BYTES = 1_400
"""Twenty messages of 64 bytes with their headers: what one socket carries in a turn under load."""
BATCHES = 20_000
ROUND_TRIPS = 5_000


def limits(directory: Path) -> Iterator[tuple[str, float, str]]:
    """Each limit of this machine: what it is, its figure, its unit."""
    with tempfile.TemporaryDirectory(dir=directory) as name:
        yield "append 4 KiB and fdatasync, median", _sync_us(Path(name) / "syncs"), "us"
        bandwidth = sequential_bytes_per_second(Path(name))
        yield "write in order, a sync every 8 MiB", bandwidth / 1e6, "MB/s"
    sending, receiving = _loopback_us()
    yield "send 1 400 bytes to a socket of this machine, nobody waiting", sending, "us"
    yield "receive them", receiving, "us"
    yield "there and back between two threads that wait", _round_trip_us(), "us"


def _sync_us(path: Path) -> float:
    took = []
    with path.open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(bytes(RECORD_BYTES))
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    return median(took) * 1e6


def _pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    for end in (client, server):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client, server


def _loopback_us() -> tuple[float, float]:
    client, server = _pair()
    batch, into = bytes(BATCH_BYTES), bytearray(BATCH_BYTES)
    sending = receiving = 0.0
    with client, server:
        for _ in range(BATCHES):
            began = time.perf_counter()
            client.sendall(batch)
            sent = time.perf_counter()
            server.recv_into(into)
            sending += sent - began
            receiving += time.perf_counter() - sent
    return sending / BATCHES * 1e6, receiving / BATCHES * 1e6


def _round_trip_us() -> float:
    client, server = _pair()

    def answer() -> None:
        while data := server.recv(1):
            server.sendall(data)

    with server:
        answering = threading.Thread(target=answer)
        with client:
            answering.start()
            began = time.perf_counter()
            for _ in range(ROUND_TRIPS):
                client.sendall(b"x")
                client.recv(1)
            took = time.perf_counter() - began
        answering.join()
    return took / ROUND_TRIPS * 1e6
