"""Listeners on the real event loop: how connections that wait are taken, and the end."""

import asyncio
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from holdfast.broker.counts import Counts
from holdfast.broker.sockets.listeners import Listeners
from holdfast.broker.world import RealWorld
from holdfast.core.config import Config
from holdfast.core.limits import LISTENING_HANDLES
from tests.process import HOST

WAITING = 4 * LISTENING_HANDLES


class Protocol(asyncio.Protocol):
    """Counts those that are made."""

    def __init__(self, made: list[int]) -> None:
        self._made = made

    def connection_made(self, _transport: asyncio.BaseTransport) -> None:
        self._made.append(1)


def listeners(directory: Path, made: list[int]) -> Listeners:
    config = Config(data_dir=directory, mqtt_port=0, http_port=None, pulsar_port=None)
    connections: Any = SimpleNamespace(
        make=lambda: Protocol(made), read_buffer=bytearray(1), plain=None
    )
    return Listeners(config, RealWorld(), connections, Counts(), {})


def test_connections_that_wait_are_taken_many_at_a_time(tmp_path: Path) -> None:
    made: list[int] = []

    async def run() -> int:
        listening = listeners(tmp_path, made)
        await listening.start()
        [place] = listening.addresses("mqtt")
        # The operating system completes them before the loop looks.
        clients = [socket.create_connection(place) for _ in range(WAITING)]
        iterations = 0
        while len(made) < WAITING:
            iterations += 1
            await asyncio.sleep(0)
        listening.close()
        for client in clients:
            client.close()
        return iterations

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        # One takes as many as there are connections, and some more.
        assert runner.run(run()) < WAITING / 2


def test_nobody_is_taken_any_more_after_the_end(tmp_path: Path) -> None:
    async def run() -> None:
        listening = listeners(tmp_path, [])
        await listening.start()
        [place] = listening.addresses("mqtt")
        assert place[0] == HOST
        listening.close()
        await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(place)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
