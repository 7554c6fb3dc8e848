"""The whole broker in virtual time: one run from one seed.

Owns: what a run does (load, faults, calm, drain, judgement) and how a broker is put on a simulated
machine.
Never: judges by itself; `holdfast.testing.checkers` does.
"""

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from random import Random

from holdfast.broker.assemble import assemble
from holdfast.broker.server import Server
from holdfast.core.config import Config
from holdfast.testing.checkers import judge
from holdfast.testing.hardships import Hardships
from holdfast.testing.history import Mark, RetainedRead
from holdfast.testing.loop import VirtualLoop, simulate
from holdfast.testing.world import DISK_BYTES, BrokerMachine, SimulatedWorld
from tests.load import Load, Pace

HOST = "10.0.0.1"
PORT = 1883
FAULTS_S = 60.0
"""Virtual seconds for which everything may fail."""

MESSAGES = 600
"""What is published in one run, at most."""

SEGMENT_BYTES = 64 * 1024
"""Small, so that a run seals many segments, writes checkpoints and can fill a disk."""

PACE = Pace(
    burst_messages_maximum=12,
    pause_s=3.0,
    stays_s=10.0,
    again_after_s=0.5,
    drained_within_s=2_000.0,
    keep_alive_s=5,
)

CONFIG = Config(
    data_dir=Path("simulated"),
    host=HOST,
    mqtt_port=PORT,
    http_port=None,
    anonymous=True,
    segment_bytes=SEGMENT_BYTES,
    checkpoint_bytes=4 * SEGMENT_BYTES,
    reserve_bytes=2 * SEGMENT_BYTES,
)

SMALL_DISK_BYTES = 8 * SEGMENT_BYTES

REPEAT = "python -m tests.simulation --seed {seed}"

logging.getLogger("holdfast").addHandler(logging.NullHandler())
logging.getLogger("holdfast").propagate = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did, for people."""

    sent: int
    refused: int
    virtual_s: float
    lives: int
    hardships: str


def run(seed: int, hardships: Hardships | None = None) -> tuple[Outcome, str]:
    """One run; returns what it did and the hash of its trace. Raises `SimulationFailedError`."""
    return simulate(_run, seed=seed, repeat=REPEAT.format(seed=seed), hardships=hardships)


async def _run(loop: VirtualLoop) -> Outcome:
    machine = BrokerMachine(loop, _begin)
    machine.start()
    load = Load(HOST, PORT, Random(loop.seed), PACE)
    load.allow(MESSAGES)
    faults = loop.create_task(_faults(loop, machine))
    watch = loop.create_task(_watch_marks(machine, load))
    begun = loop.create_task(load.begin())
    await asyncio.sleep(FAULTS_S)
    faults.cancel()
    loop.note("calm")
    loop.network.calm()
    machine.disk.set_capacity(DISK_BYTES)
    machine.recover()
    async with asyncio.timeout(PACE.drained_within_s):
        await begun
    lacking = await load.end()
    watch.cancel()
    await _read_retained(load)
    await load.close()
    judge(load.history)
    assert not lacking, f"not drained within {PACE.drained_within_s:g} s: {lacking}"
    await machine.stop()
    return Outcome(load.sent, load.refused, loop.time(), machine.lives, loop.hardships.describe())


def _begin(world: SimulatedWorld) -> Server:
    return assemble(CONFIG, world)


async def _faults(loop: VirtualLoop, machine: BrokerMachine) -> None:
    """What happens to the machine, each kind at its own times."""
    async with asyncio.TaskGroup() as group:
        if mean_s := loop.hardships.power_cut_after_s:
            group.create_task(_power_cuts(loop, machine, mean_s))
        if mean_s := loop.hardships.failed_sync_after_s:
            group.create_task(_failed_syncs(loop, machine, mean_s))


async def _power_cuts(loop: VirtualLoop, machine: BrokerMachine, mean_s: float) -> None:
    while True:
        await asyncio.sleep(loop.random.expovariate(1 / mean_s))
        if loop.random.random() < 0.5:
            machine.cut_power()
        else:
            machine.kill()
        await asyncio.sleep(loop.random.uniform(0, 5))
        machine.start()


async def _failed_syncs(loop: VirtualLoop, machine: BrokerMachine, mean_s: float) -> None:
    while True:
        await asyncio.sleep(loop.random.expovariate(1 / mean_s))
        loop.note("the next sync fails")
        machine.disk.fail_next_sync()


async def _watch_marks(machine: BrokerMachine, load: Load) -> None:
    """Notes where each attached queue has got to, once a virtual second."""
    while True:
        await asyncio.sleep(1.0)
        if isinstance(machine.life, Server):
            dispatch = machine.life._stages.kernel.dispatch
            for party, queue, _connection in dispatch.queues():
                # A crash forgets up to a second of acknowledgements, so each life counts by itself.
                name = f"party {party} in life {machine.lives}"
                load.history.add(Mark(name, dispatch.mark(queue)))


async def _read_retained(load: Load) -> None:
    retained = await load.read_retained()
    for client in load.publishers:
        topic = f"load/{client.name}/0"
        load.history.add(RetainedRead(topic, retained.get(topic)))
