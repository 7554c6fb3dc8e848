"""No step of the loop does more than its share, whatever the broker holds; counted, not timed."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.broker.assemble import assemble
from holdfast.broker.chores import PIECE_EFFORT, Pieces, at_once
from holdfast.broker.mqtt.session import Session, own_queue
from holdfast.broker.mqtt.session_records import format_session
from holdfast.broker.server import Server
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.tables import Table
from holdfast.core.config import Config
from holdfast.core.subscription import Subscription
from holdfast.kernel import encode_packet
from tests.builders.still import NOW_US, StillWorld, Wire, settled
from tests.equipment.checkers import check_steps_of_the_loop_are_short
from tests.equipment.history import History
from tests.simulation.effort import Effort

SESSIONS = 10_000
TOPICS = 2_000
SWEEPS = 30
EFFORT_MAXIMUM = 2 * PIECE_EFFORT
"""A crowd at rest leaves the loop time for ten such steps in a hundredth of a second."""

Plant = Callable[[Server], None]


class Crowd:
    """A broker with many sessions at rest and many topics, whose steps are watched."""

    def __init__(self, server: Server, world: StillWorld, history: History) -> None:
        self.server = server
        self.world = world
        self.history = history

    async def fill(self) -> None:
        """Everybody is there, and what each of them has to get."""
        records = self.server.records
        for number in range(SESSIONS):
            key = b"session-%05d" % number
            session = Session(
                client_identifier=key.decode(),
                party=number + 1,
                protocol_version=5,
                created_at_offset=0,
                expiry_s=None,
                connected=False,
            )
            records.put(Table.SESSIONS, key, format_session(session), NOW_US)
            topic_filter = f"fleet/+/{number % 100}"
            queue = own_queue(session, (_subscribed(topic_filter),))
            self.server.stages.queues.put(queue, NOW_US)
        records.put(Table.COUNTERS, b"party", str(SESSIONS + 1_024).encode(), NOW_US)
        wire = Wire(self.server.stages.connections.make())
        wire.send(
            encode_packet(
                "connect",
                {"client_identifier": "publisher", "clean_start": True, "keep_alive_s": 0},
                protocol_version=4,
            )
        )
        await settled(self.world)
        publish = {"payload": b"x", "qos": 1, "retain": False, "dup": False}
        for number in range(TOPICS):
            fields = {
                "topic_name": f"fleet/{number}/{number % 100}",
                "packet_identifier": 1 + number,
            }
            wire.send(encode_packet("publish", publish | fields, protocol_version=4))
        await settled(self.world)

    async def pass_seconds(self, count: int) -> None:
        """So many sweeps, and the turns between them."""
        for _ in range(count):
            self.world.time_us += 1_000_000
            self.server.sweep.run(self.world.time_us)
            await settled(self.world)


def _subscribed(topic_filter: str) -> Subscription:
    return Subscription(
        topic_filter=topic_filter,
        qos=1,
        no_local=False,
        retain_as_published=False,
        identifier=None,
        from_offset=0,
    )


def _violations(directory: Path, plant: Plant) -> list[str]:
    history = History()

    async def run() -> None:
        world = StillWorld()
        server = assemble(Config(data_dir=directory, retention_bytes=2**30), world)
        crowd = Crowd(server, world, history)
        await crowd.fill()
        plant(server)
        Effort(server, history.add, EFFORT_MAXIMUM)
        await crowd.pass_seconds(SWEEPS)

    asyncio.run(run())
    assert history.events, "no step has done any work"
    return check_steps_of_the_loop_are_short(history)


def _nothing(_server: Server) -> None:
    pass


def _a_scan_without_pieces(server: Server) -> None:
    """Whoever looks at many queues does so at one go."""

    def count() -> Pieces[int]:
        yield None
        queues = [
            _table()._replace(topic_filter=f"fleet/+/{number % 100}") for number in range(1_000)
        ]
        inquiry = Inquiry(server.stages.kernel.log)
        return sum(at_once(inquiry.count([wanted], 1, 0, TOPICS)) for wanted in queues)

    server.stages.chores.begin(count(), lambda _count: None)


def _a_sweep_over_all(server: Server) -> None:
    """Once a second everybody is looked at."""
    server.sweep.observe("census", lambda _now_us: _walk(server))


def _walk(server: Server) -> None:
    for _ in server.records.refresh().sessions():
        pass


def _table() -> Subscription:
    return Subscription(
        topic_filter="",
        qos=1,
        no_local=False,
        retain_as_published=False,
        identifier=None,
        from_offset=0,
    )


def test_a_crowd_at_rest_makes_no_step_longer(tmp_path: Path) -> None:
    assert _violations(tmp_path, _nothing) == []


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (_a_scan_without_pieces, "a piece of count did"),
        (_a_sweep_over_all, "the sweep's census did"),
    ],
)
def test_a_step_that_does_everything_at_once_is_found(
    plant: Plant, found: str, tmp_path: Path
) -> None:
    violations = _violations(tmp_path, plant)
    assert violations
    assert all(line.startswith(found) for line in violations)
    assert all(line.endswith(f"of {EFFORT_MAXIMUM} allowed") for line in violations)
