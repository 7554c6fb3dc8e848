"""What is said where health and metrics of processors cannot be served."""

import asyncio
import socket

import pytest

from holdfast.core.errors import ListenError
from holdfast.processors.health import serve_health
from holdfast.processors.metrics import Metrics
from tests.process import HOST


def test_a_port_that_is_taken_is_named_with_its_keys() -> None:
    async def main(port: int) -> None:
        async with serve_health(HOST, port, [], Metrics()):
            raise AssertionError("it is served beside another one")

    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=rf"on {HOST}:{port} \(HealthHost, HealthPort\): "):
            asyncio.run(main(port))
