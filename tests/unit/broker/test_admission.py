"""Who is let in while the broker is behind with its own work."""

import asyncio
from pathlib import Path

import pytest

from holdfast.broker import chores
from holdfast.broker.assemble import assemble
from holdfast.broker.counts import Event
from holdfast.core.config import Config
from holdfast.kernel import encode_packet
from holdfast.protocols.mqtt.reason_code import ReasonCode
from tests.builders.still import StillWorld, Wire, settled

REFUSED = Event.CONNECTIONS_REFUSED, ReasonCode.CONNECTION_RATE_EXCEEDED


@pytest.mark.parametrize(("expiry_s", "refused"), [(60, 1), (0, 0)])
def test_while_sessions_are_written_faster_than_the_view_none_is_opened_that_is_kept(
    expiry_s: int, refused: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        world = StillWorld()
        server = assemble(Config(data_dir=tmp_path), world)
        monkeypatch.setattr(server.records, "has_room", lambda: False)
        wire = Wire(server.stages.connections.make())
        fields = {
            "client_identifier": "c",
            "clean_start": True,
            "keep_alive_s": 0,
            "properties": {"session_expiry_interval": expiry_s},
        }
        wire.send(encode_packet("connect", fields, protocol_version=5))
        await settled(world)
        assert server.counts.total(*REFUSED) == refused
        assert server.stages.sessions.count() == 1 - refused

    asyncio.run(run())


@pytest.mark.parametrize("refused", [0, 1])
def test_while_too_many_chores_are_under_way_nobody_begins_another(
    refused: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chores, "CHORES_MAXIMUM", 0 if refused else chores.CHORES_MAXIMUM)

    async def run() -> None:
        world = StillWorld()
        server = assemble(Config(data_dir=tmp_path), world)
        wire = Wire(server.stages.connections.make())
        fields = {"client_identifier": "c", "clean_start": True, "keep_alive_s": 0}
        wire.send(encode_packet("connect", fields | {"properties": {}}, protocol_version=5))
        await settled(world)
        assert server.counts.total(*REFUSED) == refused
        assert server.stages.sessions.count() == 1 - refused

    asyncio.run(run())
