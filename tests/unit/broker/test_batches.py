"""What may be staged and committed, and what becomes of what may not."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from holdfast.broker.assemble import assemble
from holdfast.broker.batches import batches as batches_module
from holdfast.broker.batches import producers as producers_module
from holdfast.broker.batches import staged as staged_module
from holdfast.broker.batches.batches import Batches, Commit, Committed, NewPart
from holdfast.broker.batches.refusal import BatchRefusal, BatchRefusedError
from holdfast.broker.server import Server
from holdfast.broker.state.numbers import count
from holdfast.core.config import Config
from holdfast.core.limits import (
    PRODUCER_KEPT_S,
    PRODUCER_OF_ONE_BATCH_KEPT_S,
    STAGED_AGE_MAXIMUM_S,
)
from holdfast.core.units import SECOND_US
from holdfast.kernel import Rows
from tests.builders.still import StillWorld, settled

T = TypeVar("T")


def stream(count: int = 3, topic: str | None = "a", **columns: list[Any]) -> bytes:
    batch = pa.record_batch({"topic": [topic] * count, "value": [b"x"] * count, **columns})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


class Bench:
    """A broker without a clock, and a writer of it."""

    def __init__(self, directory: Path) -> None:
        self.world = StillWorld()
        self.config = Config(data_dir=directory, retention_bytes=2**30)
        self.server: Server = assemble(self.config, self.world)

    @property
    def batches(self) -> Batches:
        return self.server.stages.batches

    @property
    def end(self) -> int:
        return self.server.stages.kernel.log.end_offset()

    async def done(self, work: Awaitable[T]) -> T:
        task = asyncio.ensure_future(work)  # noqa: TID251 - it is waited for here.
        while not task.done():
            await settled(self.world)
        return await task

    async def stage(self, part: str = "p", content: bytes | None = None, **given: Any) -> Any:
        about = {"producer": "q", "batch": 0, "user_name": None, "publish": None, **given}
        new = NewPart(part=part, content=stream() if content is None else content, **about)
        return await self.done(self.batches.stage(new))

    async def commit(self, *parts: Any, **given: Any) -> Committed:
        about = {"producer": "q", "batch": 0, "user_name": None, **given}
        named = tuple(getattr(part, "identifier", part) for part in parts)
        return await self.done(self.batches.commit(Commit(parts=named, **about)))

    def restart(self) -> None:
        """The process ends where it is, and another begins."""
        self.server.abandon()
        self.server = assemble(self.config, self.world)


def on(run: Callable[[Bench], Awaitable[None]]) -> Callable[[Path], None]:
    """A test that runs on a bench."""

    def test(tmp_path: Path) -> None:
        async def main() -> None:
            await run(Bench(tmp_path))

        asyncio.run(main())

    test.__name__ = run.__name__
    return test


async def refused(work: Awaitable[Any], refusal: BatchRefusal, words: str = ".") -> None:
    with pytest.raises(BatchRefusedError, match=words) as found:
        await work
    assert found.value.refusal is refusal


@on
async def test_a_batch_is_in_the_log_once_however_often_it_is_committed(bench: Bench) -> None:
    first, second = await bench.stage("1"), await bench.stage("2", stream(2))
    assert await bench.commit(second, first) == Committed(
        producer="q", batch=0, rows=5, repeated=False
    )
    assert bench.end == 5
    again = await bench.commit(first, second)
    assert (again.rows, again.repeated, bench.end) == (5, True, 5)
    assert await bench.stage("3") is None
    assert not bench.batches.parts.producers()


@on
async def test_a_number_that_went_backwards_is_answered_as_done(bench: Bench) -> None:
    await bench.commit(await bench.stage(batch=7), batch=7)
    for number in (3, 7):
        assert await bench.stage(batch=number) is None
        assert (await bench.commit("whatever", batch=number)).repeated
    assert bench.end == 3
    await bench.commit(await bench.stage(batch=8), batch=8)
    assert bench.end == 6


@on
async def test_parts_that_are_gone_or_of_another_batch_are_refused(bench: Bench) -> None:
    part = await bench.stage()
    other = await bench.stage(producer="r")
    await refused(bench.commit("0" * 32), BatchRefusal.NO_SUCH_PART, "written again")
    await refused(bench.commit(part, batch=1), BatchRefusal.OTHER_BATCH, "of batch 0 of 'q'")
    await refused(bench.commit(other), BatchRefusal.OTHER_BATCH, "'r', not of batch 0 of 'q'")
    await refused(bench.commit(part, part), BatchRefusal.OTHER_BATCH, "twice")
    assert bench.end == 0
    await bench.commit(part)
    assert bench.end == 3


@on
async def test_a_part_that_was_sent_twice_is_one_part(bench: Bench) -> None:
    first, again = await bench.stage(), await bench.stage()
    assert first.identifier == again.identifier
    assert bench.batches.parts.bytes == first.bytes
    assert (await bench.stage(content=stream(4))).identifier != first.identifier


@on
async def test_what_nobody_commits_goes_when_it_is_too_old(bench: Bench) -> None:
    part = await bench.stage()
    bench.world.time_us += STAGED_AGE_MAXIMUM_S * SECOND_US
    bench.batches.sweep(bench.world.time_us)
    assert bench.batches.parts.find(part.identifier) is not None
    bench.world.time_us += 1
    bench.batches.sweep(bench.world.time_us)
    assert bench.batches.parts.bytes == len(bench.batches.parts) == 0
    assert not bench.batches.parts.files.sizes()
    await refused(bench.commit(part), BatchRefusal.NO_SUCH_PART)


@on
async def test_a_producer_is_forgotten_when_it_has_not_come_for_long(bench: Bench) -> None:
    await bench.commit(await bench.stage())
    await bench.commit(await bench.stage(producer="once"), producer="once", is_last=True)
    for kept_s, left in ((PRODUCER_OF_ONE_BATCH_KEPT_S, 1), (PRODUCER_KEPT_S, 0)):
        bench.world.time_us += kept_s * SECOND_US
        await settled(bench.world)
        bench.batches.sweep(bench.world.time_us)
        assert bench.batches.producers.count == left
    assert bench.batches.producers.find("q") is None


@on
async def test_a_producer_is_its_users_alone(bench: Bench) -> None:
    await bench.commit(await bench.stage(user_name="job"), user_name="job")
    await refused(bench.stage(batch=1), BatchRefusal.NOT_YOURS)
    await refused(bench.commit(batch=1, user_name="other"), BatchRefusal.NOT_YOURS)


@on
async def test_what_is_no_rows_is_refused_with_what_is_wrong(bench: Bench) -> None:
    for content, words in (
        (b"nothing", "no Arrow stream"),
        (stream(offset=[1, 2, 3]), "unknown column 'offset'"),
        (stream(topic="a/+"), "row 0, topic 'a/"),
        (stream(topic=None), "row 0: its topic is null"),
        (stream(qos=["1", "x", "1"]), "column 'qos'"),
        (stream(qos=[1, None, -1]), "row 2, topic 'a': qos is 0, 1 or 2, not -1"),
        (stream(qos=[1, 300, -1]), "row 1, topic 'a': qos is 0, 1 or 2, not 300"),
        (stream(expiry=[0, 2**32, 1]), "row 1, topic 'a': expiry is 0 to 4294967295 s.*7296"),
        (stream(eventTime=[1, 2, 3]), "'eventTime' does not hold timestamps"),
        (stream(key=[[1], [2], [3]]), "column 'key'"),
    ):
        await refused(bench.stage(content=content), BatchRefusal.NOT_ROWS, words)
    grant = [(b"mine/#", True)]
    await refused(bench.stage(publish=grant), BatchRefusal.NOT_ROWS, "rules of access")
    assert not bench.batches.parts.files.sizes()


@on
async def test_a_batch_goes_on_after_a_restart_and_passes_over_what_the_log_has(
    bench: Bench,
) -> None:
    parts = [await bench.stage(str(number), stream(4)) for number in range(3)]
    # A record that is older than the last rows: what came behind it is counted in the log.
    order = Commit(
        producer="q", batch=0, user_name=None, parts=tuple(part.identifier for part in parts)
    )
    entering = bench.batches._decide(order, None)
    entering.open(Rows(staged_module.read_rows(bench.batches.parts.files, parts[0])))
    log = bench.server.stages.kernel.log
    arrivals = bench.server.turn._arrivals
    bench.server.stages.kernel.inbox.decode(arrivals)
    assert entering.rows is not None
    arrivals.put_rows(
        entering.rows,
        party=entering.producer.party,
        key_slot=0,
        messages_maximum=3,
        bytes_maximum=1_000,
    )
    arrivals.put_rows(entering.rows, party=99, key_slot=0, messages_maximum=1, bytes_maximum=1)
    log.append(arrivals, [], bench.world.time_us)
    log.commit()
    assert log.published(entering.producer.party, 0) == 3
    bench.restart()
    await settled(bench.world)
    again = await bench.commit(*parts)
    assert (again.rows, again.repeated) == (12, True)
    log = bench.server.stages.kernel.log
    assert log.published(entering.producer.party, 0) == 12


@on
async def test_rows_that_cannot_be_read_any_more_are_neither_doubled_nor_taken_for_done(
    bench: Bench,
) -> None:
    part = await bench.stage()
    bench.batches.parts.files.write(part.file, b"{}\n")
    await refused(bench.commit(part), BatchRefusal.STAGED_ROWS_LOST, "0 rows of batch 0")
    await refused(bench.commit(part), BatchRefusal.STAGED_ROWS_LOST)
    assert await bench.stage() is None
    assert bench.end == 0


async def give_up(bench: Bench, batch: int = 0) -> None:
    part = await bench.stage(batch=batch)
    bench.batches.parts.files.write(part.file, b"{}\n")
    await refused(bench.commit(part, batch=batch), BatchRefusal.STAGED_ROWS_LOST)


@on
async def test_a_batch_that_cannot_go_on_holds_nothing_and_is_counted(bench: Bench) -> None:
    await give_up(bench)
    numbers = count(bench.server)
    assert (numbers.staged_bytes, numbers.staged_parts, numbers.batches_given_up) == (0, 0, 1)
    assert numbers.producers == 1
    assert not bench.batches.parts.files.sizes()
    assert not bench.batches.active
    left = await bench.stage(producer="r")
    numbers = count(bench.server)
    assert (numbers.staged_bytes, numbers.staged_parts) == (left.bytes, 1)


@on
async def test_nothing_comes_behind_a_batch_that_was_given_up(bench: Bench) -> None:
    await bench.commit(await bench.stage())
    await give_up(bench, 1)
    for _ in range(2):
        await refused(bench.stage(batch=2), BatchRefusal.STAGED_ROWS_LOST, "another producer")
        await refused(bench.commit(batch=2), BatchRefusal.STAGED_ROWS_LOST, "0 rows of batch 1")
        await refused(bench.commit(batch=1), BatchRefusal.STAGED_ROWS_LOST)
        assert (await bench.commit(batch=0)).repeated
        assert bench.end == 3
        bench.restart()
        await settled(bench.world)
    assert count(bench.server).batches_given_up == 0
    bench.world.time_us += PRODUCER_KEPT_S * SECOND_US
    await settled(bench.world)
    bench.batches.sweep(bench.world.time_us)
    assert bench.batches.producers.count == 0


@on
async def test_parts_of_a_batch_that_was_given_up_go_at_the_next_start(bench: Bench) -> None:
    part = await bench.stage()
    content = bench.batches.parts.files.read(part.file)
    await give_up(bench)
    bench.batches.parts.files.write(part.file, content)
    bench.restart()
    await settled(bench.world)
    assert not bench.batches.parts.files.sizes()


def test_whatever_is_staged_or_remembered_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        bench = Bench(tmp_path)
        first = await bench.stage()
        monkeypatch.setattr(staged_module, "STAGED_BYTES_MAXIMUM", first.bytes)
        await refused(bench.stage("2"), BatchRefusal.BUSY, "come back later")
        monkeypatch.undo()
        monkeypatch.setattr(staged_module, "STAGED_PARTS_MAXIMUM", 1)
        await refused(bench.stage("2"), BatchRefusal.BUSY)
        monkeypatch.setattr(batches_module, "BATCHES_AT_ONCE", 0)
        await refused(bench.commit(first), BatchRefusal.BUSY)
        monkeypatch.setattr(batches_module, "BATCH_PARTS_MAXIMUM", 0)
        await refused(bench.commit(first), BatchRefusal.OTHER_BATCH, "at most 0 parts")
        monkeypatch.undo()
        monkeypatch.setattr(producers_module, "PRODUCERS_MAXIMUM", 0)
        await refused(bench.commit(first), BatchRefusal.BUSY, "no more may be")
        monkeypatch.undo()
        assert (await bench.commit(first)).rows == 3

    asyncio.run(main())


def test_where_the_log_is_full_rows_wait_and_none_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches_module, "AGAIN_AFTER_S", 0.0)

    async def main() -> None:
        bench = Bench(tmp_path)
        bench.config = Config(data_dir=tmp_path, retention_bytes=2**30, reserve_bytes=2**62)
        bench.restart()
        part = await bench.stage()
        order = Commit(producer="q", batch=0, user_name=None, parts=(part.identifier,))
        task = asyncio.ensure_future(bench.batches.commit(order))  # noqa: TID251 - cancelled below.
        await settled(bench.world)
        assert not task.done()
        assert bench.end == 0
        await refused(bench.commit(batch=1), BatchRefusal.UNFINISHED, "has to wait")
        task.cancel()
        bench.config = Config(data_dir=tmp_path, retention_bytes=2**30)
        bench.restart()
        assert (await bench.commit(part)).rows == 3
        assert bench.end == 3

    asyncio.run(main())
