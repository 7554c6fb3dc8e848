"""Serve the log of a data directory over HTTP and the control socket on a thread, as the broker
does."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.broker.admin import http
from holdfast.broker.admin.control_socket import ControlSocket
from holdfast.core.layout import CONTROL_SOCKET, LOG_DIRECTORY

EVERYTHING_DURABLE = 2**62


@contextmanager
def served(data_dir: Path, durable_offset: int = EVERYTHING_DURABLE) -> Iterator[str]:
    """host:port of an interface over this data directory, which ends with the block."""
    ready, addresses = threading.Event(), []
    loop = asyncio.new_event_loop()

    async def open_and_wait(ended: asyncio.Event) -> None:
        app = http.application(
            data_dir=str(data_dir / LOG_DIRECTORY),
            durable_offset=lambda: durable_offset,
            ready=lambda: True,
            statistics=lambda: {"log": {"bytes": 1}},
        )
        runner = await http.start(app)
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
