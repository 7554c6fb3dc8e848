"""What is known of a socket when it is open."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker.assemble import assemble
from holdfast.core.config import Config
from tests.builders.still import StillWorld, Wire


@pytest.mark.parametrize(
    ("name", "peer"),
    [
        (("10.0.0.1", 4_711), "10.0.0.1:4711"),
        (("fe80::1", 4_711, 0, 0), "[fe80::1]:4711"),
        ("", "unix"),
        (None, ""),
    ],
)
def test_a_connection_says_where_it_comes_from(tmp_path: Path, name: object, peer: str) -> None:
    class Named(Wire):
        def get_extra_info(self, what: str, default: Any = None) -> Any:
            return name if what == "peername" else default

        def close(self) -> None:
            self.drop()

    async def run() -> None:
        (tmp_path / "log").mkdir()
        server = assemble(Config(data_dir=tmp_path / "log", retention_bytes=2**30), StillWorld())
        connection = server.stages.connections.make()
        Named(connection)
        assert connection.peer == peer
        await server.stop()

    asyncio.run(run())
