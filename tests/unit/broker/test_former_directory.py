"""A data directory that a former version wrote opens, and everything in it goes on."""

import asyncio
import tarfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker.mqtt import subscription_records
from holdfast.broker.store.tables import Table, parse_loss, parse_queue, parse_subscriptions
from holdfast.kernel import Log
from tests.builders.still import settled
from tests.former import make
from tests.former.still_broker import Client, StillBroker

ARCHIVE = Path(make.__file__).with_name("directory.tar.xz")
NAMES = ["app", "device", "loser", "member"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def payloads(client: Client) -> list[str]:
    return [fields["payload"].decode() for fields in client.messages()]


async def is_all_there(broker: StillBroker) -> None:
    """Sessions, backlogs, the group, the re-drive and the ledger are what they were."""
    stages, records = broker.server.stages, broker.server.records
    assert stages.groups.names() == [make.GROUP]
    assert len(stages.redrives) == 1
    assert stages.sessions.recorded() == len(NAMES)
    assert [parse_loss(value).count for _, value in records.catch_up().losses(100)] == [3]

    app = await broker.client("app")
    assert payloads(app) == [f"d/1 {number}" for number in range(5)]
    device = await broker.client("device")
    found = payloads(device)
    assert [text for text in found if text.startswith("d/")] == ["d/1 0", "d/1 2", "d/1 4"]
    assert [text for text in found if text.startswith("s ")] == ["s 4", "s 5", "s 6"]
    member = await broker.client("member")
    packets = member.packets()
    assert [kind for kind, _ in packets] == ["connack", "pubrel", "publish", "publish", "publish"]
    handed = [fields["payload"].decode() for kind, fields in packets if kind == "publish"]
    assert handed == ["s 1", "s 2", "s 3"]
    loser = await broker.client("loser")
    again = loser.messages()
    assert [fields["payload"] for fields in again] == [b"l 1", b"l 2"]
    await loser.acknowledge(*again)
    broker.server.sweep.run(broker.world.time_us)
    assert len(stages.redrives) == 0


async def is_all_new(broker: StillBroker) -> None:
    """Every queue has its record, and no former row is left."""
    await settled(broker.world)
    view = broker.server.records.catch_up()
    for table in (Table.GROUPS, Table.REDRIVES):
        assert view.count(table) == 0
    reads = {}
    for _, value in view.rows(Table.QUEUES, b"", 100):
        queue = parse_queue(value)
        reads[queue.kind, queue.owner] = [item.topic_filter for item in queue.reads]
    assert reads == {
        ("client", "app"): ["d/+"],
        ("client", "device"): ["d/+"],
        ("client", "loser"): ["l"],
        ("group", make.GROUP): ["s"],
        ("redrive", "1"): ["l"],
    }
    shares = {key.decode(): value for key, value in view.rows(Table.SUBSCRIPTIONS, b"", 100)}
    assert sorted(shares) == ["device", "member"]
    for value in shares.values():
        assert [item.topic_filter for item in parse_subscriptions(value)] == [make.GROUP]


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story())


@pytest.mark.parametrize("waits", [False, True])
def test_it_opens_and_goes_on(directory: Path, waits: bool) -> None:
    async def story() -> None:
        broker = StillBroker(directory)
        if waits:
            await is_all_new(broker)
        await is_all_there(broker)

    run(story)


def test_it_goes_on_as_well_when_it_is_opened_again(directory: Path) -> None:
    async def story() -> None:
        broker = StillBroker(directory)
        await is_all_new(broker)
        broker.end()
        broker = StillBroker(directory)
        await is_all_new(broker)
        await is_all_there(broker)

    run(story)


def test_whoever_comes_back_first_has_all_subscriptions(directory: Path) -> None:
    async def story() -> None:
        broker = StillBroker(directory)
        sessions = broker.server.stages.sessions
        broker.server.stages.chores.close()
        for name in NAMES:
            session = sessions.on_record(name)
            assert session is not None
            before = sessions.subscriptions(session)
            await broker.client(name)
            attached = sessions.attached(name)
            assert attached is not None
            assert attached.subscriptions == before == sessions.subscriptions(session)
        broker.server.stages.chores.begin(
            sessions.renew_records(broker.world.now_us), lambda _nothing: None
        )
        await is_all_new(broker)

    run(story)


@pytest.mark.parametrize("written", range(10))
def test_it_goes_on_wherever_it_was_cut_short_while_it_was_written_anew(
    directory: Path, written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, left, logs = Log.append_control, [written], dict[int, Log]()

    def cut_short(log: Log, *record: Any) -> int:
        logs[id(log)] = log
        if not left[0]:
            raise InterruptedError
        left[0] -= 1
        return append(log, *record)

    async def beginning() -> None:
        broker = StillBroker(directory)
        for _ in range(100):
            broker.server.stages.chores.run_piece()

    async def story() -> None:
        broker = StillBroker(directory)
        await is_all_new(broker)
        await is_all_there(broker)

    monkeypatch.setattr(subscription_records, "PIECE_ROWS_MAXIMUM", 1)
    monkeypatch.setattr(Log, "append_control", cut_short)
    with pytest.raises(InterruptedError):
        run(beginning)
    (log,) = logs.values()
    log.close()
    monkeypatch.setattr(Log, "append_control", append)
    run(story)


def test_rows_with_many_filters_are_written_anew_in_more_pieces(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        subscribed = StillBroker(directory).server.stages.sessions._subscribed
        pieces = []
        for most in (subscription_records.PIECE_BYTES_MAXIMUM, 1):
            monkeypatch.setattr(subscription_records, "PIECE_BYTES_MAXIMUM", most)
            pieces.append(len(list(subscribed.renew_all(lambda _: None, lambda: 0))))
        assert pieces[0] < pieces[1], "a piece ends where its bytes are many"

    run(story)


def test_retention_waits_until_every_queue_is_listed(directory: Path) -> None:
    async def story() -> None:
        broker = StillBroker(directory)
        sweep = broker.server.sweep
        ready = next(sweep._retention.run(sweep._queues))
        assert ready is not None
        assert not ready()
        await settled(broker.world)
        assert ready()

    run(story)
