"""A disk here that is full while the remote publishes: what this side cannot keep, the other side
does."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from holdfast.broker.bridge.link import Failure, State
from tests.simulation.remote import Bridged, Visit, with_remote
from tests.simulation.test_link_backoff import Inquisitive, assert_waits_grow
from tests.simulation.whole import DISK_BYTES

sleep = asyncio.sleep
COUNT = 20
LARGE = b"y" * 60_000
QUARTER_OF_AN_HOUR_S = 900


class Insistent(Inquisitive):
    """Sends to each connection what has not been taken yet, as soon as it is subscribed to."""

    def __init__(self, version: int, qos: int) -> None:
        super().__init__(version)
        self.qos = qos
        self.kept: set[int] = set()
        """Packet identifiers of messages that were not answered."""
        self.refused: list[int] = []

    def look(self, visit: Visit, kind: str, fields: Mapping[str, Any]) -> None:
        """A packet has come."""
        match kind:
            case "subscribe":
                self.send(visit)
            case "puback" | "pubrec":
                identifier = fields["packet_identifier"]
                self.kept.discard(identifier)
                if fields.get("reason_code", 0) >= 0x80:
                    self.refused.append(identifier)

    def send(self, visit: Visit) -> None:
        """All that it keeps."""
        for identifier in sorted(self.kept):
            visit.publish("down/x", LARGE, self.qos, identifier)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [1, 2])
def test_what_finds_no_room_here_stays_with_the_remote_until_there_is_room(
    version: int, qos: int
) -> None:
    async def body(bridged: Bridged) -> None:
        link, disk, log = bridged.link, bridged.disk, bridged.server.stages.kernel.log
        disk.set_capacity(1)
        remote.kept = set(range(1, COUNT + 1))
        remote.send(remote.visit)
        await sleep(5)
        assert 0 < len(remote.kept) == COUNT - log.end_offset()
        assert link.inbound() == (COUNT - len(remote.kept), 0)
        assert set(link.counts.failures) == {Failure.NO_ROOM}
        assert link.state is State.WAITING
        assert link.last_error == "the disk here is full, or far behind"
        disk.set_capacity(DISK_BYTES)
        await sleep(10)
        assert link.state is State.CONNECTED
        assert remote.kept == set()
        assert remote.refused == []
        assert link.inbound() == (COUNT, 0)
        assert log.end_offset() == COUNT

    remote = Insistent(version, qos)
    with_remote(body, remote)


def test_a_disk_that_stays_full_is_tried_ever_more_seldom() -> None:
    async def body(bridged: Bridged) -> None:
        bridged.disk.set_capacity(1)
        remote.kept = set(range(1, COUNT + 1))
        remote.send(remote.visit)
        await sleep(QUARTER_OF_AN_HOUR_S)
        assert remote.kept
        assert_waits_grow(remote)
        # What the end of the broker writes needs room as well.
        bridged.disk.set_capacity(DISK_BYTES)

    remote = Insistent(version=5, qos=1)
    with_remote(body, remote)


def test_what_no_later_connection_could_store_is_refused_and_the_connection_goes_on() -> None:
    async def body(bridged: Bridged) -> None:
        bridged.server.stages.closing.refused(bridged.link.handle, "TooManyTopics", 1, 0)
        await sleep(5)
        assert bridged.link.state is State.CONNECTED
        assert len(bridged.remote.visits) == 1

    with_remote(body)
