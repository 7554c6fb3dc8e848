"""How many messages make one write: as the type of the client is set to."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.broker.assemble import assemble
from holdfast.core.config import Config
from holdfast.kernel import decode_packets, encode_packet
from tests.builders.still import StillWorld, Wire, settled

MESSAGES = 25


class Pieces(Wire):
    """Notes what each write held."""

    def __init__(self, connection: object) -> None:
        self.writes: list[bytes] = []
        super().__init__(connection)  # type: ignore[arg-type]

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))
        super().write(data)

    def messages(self) -> list[int]:
        """How many PUBLISH packets each write held that held any, since the last call."""
        found = []
        for data in self.writes:
            packets, used = decode_packets(data, protocol_version=4, role="client")
            assert used == len(data), "a write ends with a whole packet"
            found.append(sum(packet.kind == "publish" for packet in packets))
        self.writes.clear()
        return [count for count in found if count]


def connected(server: object, name: str) -> Pieces:
    wire = Pieces(server._stages.connections.make())  # type: ignore[attr-defined]
    fields = {"client_identifier": name, "clean_start": False, "keep_alive_s": 0}
    wire.send(encode_packet("connect", fields, protocol_version=4))
    return wire


def publishes(first: int) -> bytes:
    fields = {"topic_name": "t", "payload": b"x", "qos": 1, "retain": False, "dup": False}
    numbers = range(first, first + MESSAGES)
    return b"".join(
        encode_packet("publish", fields | {"packet_identifier": number}, protocol_version=4)
        for number in numbers
    )


async def writes(config: Config, later: Config | None = None) -> list[int]:
    """How the messages to `reader` are cut into writes; with `later` in force if it is given."""
    world = StillWorld()
    server = assemble(config, world)
    reader, publisher = connected(server, "reader"), connected(server, "publisher")
    await settled(world)
    wanted = {"packet_identifier": 1, "subscriptions": [{"topic_filter": "t", "qos": 1}]}
    reader.send(encode_packet("subscribe", wanted, protocol_version=4))
    await settled(world)
    if later is not None:
        server.reconfigure(later)
    publisher.send(publishes(1))
    await settled(world)
    return reader.messages()


CUTS = [
    pytest.param("APPLICATION", {}, [10, 10, 5], marks=pytest.mark.accepts("S0.64", "S0.67")),
    pytest.param(
        "APPLICATION",
        {"application_flush_messages": 4},
        [4] * 6 + [1],
        marks=pytest.mark.accepts("S0.66", "S0.68"),
    ),
    pytest.param(
        "APPLICATION",
        {"application_write_and_flush": True},
        [1] * MESSAGES,
        marks=pytest.mark.accepts("S0.65", "S2.54"),
    ),
    pytest.param("DEVICE", {}, [MESSAGES], marks=pytest.mark.accepts("S2.49")),
    pytest.param(
        "DEVICE",
        {"device_write_and_flush": False},
        [5] * 5,
        marks=pytest.mark.accepts("S2.50"),
    ),
    pytest.param("DEVICE", {"device_flush_messages": 2}, [MESSAGES]),
]


def config_of(directory: Path, client_type: str, settings: dict[str, object]) -> Config:
    names = ("reader",) if client_type == "APPLICATION" else ()
    config = Config(data_dir=directory, retention_bytes=2**30, application_client_identifiers=names)
    return replace(config, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(("client_type", "settings", "expected"), CUTS)
def test_a_write_has_as_many_messages_as_the_type_of_client_is_set_to(
    tmp_path: Path, client_type: str, settings: dict[str, object], expected: list[int]
) -> None:
    assert asyncio.run(writes(config_of(tmp_path, client_type, settings))) == expected


def test_a_reload_holds_for_who_is_connected(tmp_path: Path) -> None:
    before = config_of(tmp_path, "APPLICATION", {})
    after = replace(before, application_flush_messages=5)
    assert asyncio.run(writes(before, after)) == [5] * 5
