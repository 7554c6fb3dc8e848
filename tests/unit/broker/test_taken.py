"""How much the other end of a real connection has taken."""

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from holdfast.broker.assemble import assemble
from holdfast.broker.server import Server
from holdfast.broker.sockets.taken import Taken, taken, taken_of
from holdfast.broker.world import RealWorld
from holdfast.core.config import Config
from tests.process import HOST

MUCH = bytes(8 << 20)
"""More than the system takes of a peer that does not read."""
RECEIVE_BUFFER_BYTES = 4_096
READ_BYTES = 1 << 20
WITHIN_S = 60


async def opened(server: Server, carrier: str, port: int) -> Any:
    """The transport of a connection to this port."""
    if carrier == "event loop":
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(asyncio.Protocol, HOST, port)
        return transport
    connections = server.stages.connections
    made = connections.make("tcp")
    assert connections.plain is not None
    await connections.plain.connect(lambda: made, HOST, port)
    return made.transport


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not is_so():  # noqa: ASYNC110 (only the system knows, and calls nobody)
            await asyncio.sleep(0)


@pytest.mark.parametrize("carrier", ["turn", "event loop"])
def test_what_the_peer_takes_is_told_and_the_rest_is_left(tmp_path: Path, carrier: str) -> None:
    config = Config(data_dir=tmp_path, mqtt_port=0, http_port=None, pulsar_port=None)

    async def run() -> None:
        server = assemble(config, RealWorld())
        await server.start()
        with socket.socket() as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            listening.bind((HOST, 0))
            listening.listen()
            transport = await opened(server, carrier, listening.getsockname()[1])
            peer, _ = listening.accept()
            peer.setblocking(False)
            transport.write(MUCH)
            await until(lambda: sum(taken(transport)) == len(MUCH))
            before = taken(transport)
            assert before.left > 0
            read = 0
            async with asyncio.timeout(WITHIN_S):
                while read < READ_BYTES:
                    read += len(await asyncio.get_running_loop().sock_recv(peer, READ_BYTES))
            await until(lambda: taken(transport).taken >= READ_BYTES)
            await until(lambda: sum(taken(transport)) == len(MUCH))
            assert taken(transport).left < before.left
            transport.abort()
            await until(lambda: taken(transport) == Taken(0, 0))
            peer.close()
        await server.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def test_what_is_no_socket_any_more_has_taken_nothing() -> None:
    read, write = os.pipe()
    assert taken_of(read) == (0, 0)
    os.close(read)
    os.close(write)
    assert taken_of(read) == (0, 0)
    assert taken_of(-1) == (0, 0)
    for each in socket.socketpair():
        assert taken_of(each.fileno()) == (0, 0)
        each.close()
