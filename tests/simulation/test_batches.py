"""Batches of a writer over a machine that loses its power at any moment: each row is in the log
once, in its order."""

import asyncio
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from holdfast.broker.assemble import assemble
from holdfast.broker.batches import batches as module
from holdfast.broker.batches.batches import Commit, NewPart
from holdfast.broker.batches.refusal import BatchRefusal, BatchRefusedError
from holdfast.broker.chores import at_once
from holdfast.broker.server import Server
from holdfast.broker.store.questions import Inquiry
from holdfast.core.subscription import Subscription
from holdfast.testing.hardships import Hardships
from holdfast.testing.loop import VirtualLoop, simulate
from holdfast.testing.world import BrokerMachine
from tests.simulation.whole import CONFIG

SLOW = Hardships(disk_latency_s=0.01, executor_latency_s=0.003, shuffle=True)
REPEAT = "pytest tests/simulation/test_batches.py"
ANSWERED_WITHIN_S = 3.0
BATCHES, ROWS = 3, 60


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a batch of some rows takes many turns, records and commits of the log."""
    monkeypatch.setattr(module, "BATCH_ROWS_PER_TURN", 4)
    monkeypatch.setattr(module, "RECORDED_ROWS", 9)
    monkeypatch.setattr(module, "BATCH_UNCOMMITTED_BYTES_MAXIMUM", 600)


def stream(names: list[str]) -> bytes:
    """An Arrow stream with one message on each of these topics."""
    batch = pa.record_batch({"topic": names, "value": [name.encode() for name in names]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


class Driver:
    """Writes batches as Spark does, on a machine of its own, and never gives up."""

    def __init__(self, loop: VirtualLoop, machine: BrokerMachine) -> None:
        self._loop = loop
        self._machine = machine
        self.random = Random(loop.random.getrandbits(63))
        self.attempts = 0

    async def asked(self, ask: Any) -> Any:
        """What the broker answers; a `TimeoutError` where it has died meanwhile."""
        life = self._machine.life
        if not isinstance(life, Server):
            await asyncio.sleep(0.5)
            raise TimeoutError
        context = self._machine._machine.context()
        task = self._loop.create_task(ask(life.stages.batches), context=context)
        async with asyncio.timeout(ANSWERED_WITHIN_S):
            return await asyncio.shield(task)

    async def write(self, batch: int, names: list[str]) -> None:
        """All of a batch, however often that takes: in each attempt in other parts."""
        while True:
            self.attempts += 1
            try:
                identifiers = [
                    identifier
                    for part, some in enumerate(self.split(names))
                    if (identifier := await self.stage(batch, f"{self.attempts}-{part}", some))
                ]
                await self.commit(batch, tuple(identifiers))
                return
            except TimeoutError:
                continue
            except BatchRefusedError as refused:
                # The part was never kept, or the log has no room for a while.
                if refused.refusal not in (BatchRefusal.NO_SUCH_PART, BatchRefusal.BUSY):
                    raise

    async def stage(self, batch: int, part: str, names: list[str]) -> str | None:
        new = NewPart(
            producer="query",
            batch=batch,
            part=part,
            user_name=None,
            content=stream(names),
            publish=None,
        )
        staged = await self.asked(lambda batches: batches.stage(new))
        return None if staged is None else staged.identifier

    async def commit(self, batch: int, parts: tuple[str, ...]) -> Any:
        order = Commit(producer="query", batch=batch, user_name=None, parts=parts)
        return await self.asked(lambda batches: batches.commit(order))

    def split(self, names: list[str]) -> list[list[str]]:
        cuts = sorted(self.random.sample(range(len(names)), self.random.randrange(4)))
        return [names[a:b] for a, b in zip([0, *cuts], [*cuts, len(names)], strict=True) if b > a]


def named(batch: int) -> list[str]:
    return [f"b/{batch}/{row}" for row in range(ROWS)]


def check(server: Server) -> None:
    """Each row is in the log, at the one offset where it belongs, and nothing else is."""
    log = server.stages.kernel.log
    names = [name for batch in range(BATCHES) for name in named(batch)]
    assert log.durable_offset() == log.end_offset() == len(names)
    for offset, name in enumerate(names):
        reads = [
            Subscription(
                topic_filter=name,
                qos=1,
                no_local=False,
                retain_as_published=False,
                identifier=None,
                from_offset=0,
            )
        ]
        assert at_once(Inquiry(log).count(reads, 0, 0, len(names))) == 1
        assert at_once(Inquiry(log).count(reads, 0, offset, offset + 1)) == 1


def run(seed: int, cut_within_s: float, *, power: bool = True) -> tuple[int, int]:
    """A driver writes its batches while the machine dies again and again; how often, and how many
    attempts that took."""

    async def main(loop: VirtualLoop) -> tuple[int, int]:
        machine = BrokerMachine(loop, lambda world: assemble(CONFIG, world))
        machine.start()
        driver = Driver(loop, machine)
        written = asyncio.Event()

        async def cut() -> None:
            while not written.is_set():
                await asyncio.sleep(driver.random.uniform(0.005, cut_within_s))
                if driver.random.random() < 0.5 and power:
                    machine.cut_power()
                else:
                    machine.kill()
                await asyncio.sleep(driver.random.uniform(0, 0.1))
                machine.start()
                # Several deaths in a row, and then time enough for an attempt.
                if driver.random.random() < 0.2:
                    await asyncio.sleep(ANSWERED_WITHIN_S)

        async with asyncio.TaskGroup() as group:
            cutting = group.create_task(cut())
            for batch in range(BATCHES):
                await driver.write(batch, named(batch))
            written.set()
            cutting.cancel()
        machine.recover()
        await asyncio.sleep(2)
        assert isinstance(machine.life, Server)
        check(machine.life)
        assert not machine.life.stages.batches.parts.producers()
        machine.kill()
        machine.disk.crash()
        machine.start()
        await asyncio.sleep(1)
        assert isinstance(machine.life, Server)
        check(machine.life)
        return machine.lives, driver.attempts

    (lives, attempts), _ = simulate(main, seed=seed, repeat=REPEAT, hardships=SLOW)
    return lives, attempts


@pytest.mark.parametrize("seed", range(30))
def test_each_row_is_in_the_log_once_wherever_the_power_is_cut(seed: int) -> None:
    lives, _ = run(seed, 0.12)
    assert lives > 1
