"""At rest is at rest: a sweep makes as many calls for thousands of sessions as for a few."""

import asyncio
import gc
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from holdfast.broker.assemble import assemble
from holdfast.broker.mqtt.session import Session, own_queue
from holdfast.broker.mqtt.session_records import format_session
from holdfast.broker.server import Server
from holdfast.broker.store.tables import Table, format_subscriptions
from holdfast.core.config import Config
from holdfast.core.subscription import Subscription
from tests.builders.still import NOW_US, StillWorld, settled

FEW, MANY = 3, 3_000
SWEEPS = 3
"""The first comes upon what a start has left to do."""


def put_session(server: Server, number: int) -> None:
    """A session at rest that will expire some day, one of ten in a group of its own."""
    key = b"session-%05d" % number
    session = Session(
        client_identifier=key.decode(),
        party=number + 1,
        protocol_version=5,
        created_at_offset=0,
        expiry_s=86_400,
        connected=False,
        expires_at_us=NOW_US + 86_400_000_000,
    )
    shares = number % 10 == 0
    share = f"$share/g{number}/" if shares else ""
    subscription = Subscription(
        topic_filter=f"{share}fleet/{number}/#",
        qos=1,
        no_local=False,
        retain_as_published=False,
        identifier=None,
        from_offset=0,
    )
    server.records.put(Table.SESSIONS, key, format_session(session), NOW_US)
    if shares:
        value = format_subscriptions((subscription,))
        server.records.put(Table.SUBSCRIPTIONS, key, value, NOW_US)
    else:
        server.stages.queues.put(own_queue(session, (subscription,)), NOW_US)


async def sweep_of(sessions: int, directory: Path) -> tuple[Counter[str], int]:
    """The calls of one sweep, and what SQLite did in it, with so many sessions at rest."""
    config = Config(data_dir=directory, retention_bytes=2**30)
    before = assemble(config, StillWorld())
    for number in range(sessions):
        put_session(before, number)
    before.records.put(Table.COUNTERS, b"party", str(2 * MANY).encode(), NOW_US)
    before.stages.kernel.log.close()
    world = StillWorld()
    server = assemble(config, world)
    assert server.stages.sessions.recorded() == sessions
    await settled(world)
    calls, operations = Counter[str](), [0]

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            calls[frame.f_code.co_qualname] += 1
        elif event == "c_call":
            calls[argument.__qualname__] += 1

    def look_up() -> int:
        operations[0] += 1
        return 0

    for _ in range(SWEEPS):
        calls.clear()
        operations[0] = 0
        world.time_us += 1_000_000
        server.records._view._database.set_progress_handler(look_up, 10)
        gc.disable()
        sys.setprofile(note)
        try:
            server.sweep.run(world.time_us)
        finally:
            sys.setprofile(None)
            gc.enable()
        server.records._view._database.set_progress_handler(None, 10)
        await settled(world)
    return calls, operations[0]


def test_a_sweep_makes_as_many_calls_for_thousands_of_sessions_as_for_a_few(tmp_path: Path) -> None:
    for name in ("few", "many"):
        (tmp_path / name).mkdir()
    few, few_operations = asyncio.run(sweep_of(FEW, tmp_path / "few"))
    many, many_operations = asyncio.run(sweep_of(MANY, tmp_path / "many"))
    for calls in (few, many):
        for name in [name for name in calls if name.endswith("look_up")]:
            del calls[name]
    assert many == few
    assert many_operations == few_operations
