"""Serve the log of a data directory over HTTP and the control socket on a thread, as the broker
does."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.broker.admin.control_socket import ControlSocket
from holdfast.broker.admin.http import server as http
from holdfast.broker.admin.http.protection import Protection
from holdfast.broker.admin.v1.health import Health
from holdfast.broker.admin.v1.reading import LogReaders, Reading
from holdfast.broker.observe.snapshot import Snapshot
from holdfast.broker.steps import Steps
from holdfast.core.layout import CONTROL_SOCKET, LOG_DIRECTORY

EVERYTHING_DURABLE = 2**62


def no_broker() -> Snapshot:
    raise AssertionError("there are only files here, nothing that counts")


@contextmanager
def served(data_dir: Path, durable_offset: int = EVERYTHING_DURABLE) -> Iterator[str]:
    """host:port of an interface over this data directory, which ends with the block."""
    ready, addresses = threading.Event(), []
    loop = asyncio.new_event_loop()

    async def open_and_wait(ended: asyncio.Event) -> None:
        readers = LogReaders(str(data_dir / LOG_DIRECTORY), lambda: durable_offset)
        health = Health(lambda: True, no_broker)
        operations = [*health.operations(), *Reading(readers, {}, lambda _name: None).operations()]
        protection = Protection("127.0.0.1", metrics_public=False)
        runner = await http.start(
            http.application(operations, protection, Steps(lambda: 0, lambda: 0))
        )
        await http.listen(runner, "127.0.0.1", 0)
        control_socket = ControlSocket(data_dir / CONTROL_SOCKET)
        await control_socket.listen(runner)
        addresses.append(runner.addresses[0])
        ready.set()
        await ended.wait()
        control_socket.close()
        await runner.cleanup()

    ended = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=[open_and_wait(ended)])
    thread.start()
    try:
        assert ready.wait(10)
        host, port = addresses[0][:2]
        yield f"{host}:{port}"
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()
