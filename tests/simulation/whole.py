"""The whole broker in virtual time: one run from one seed.

Owns: what a run does (load and parts, faults, calm, drain, judgement), which parts a seed draws,
and how a broker is put on a simulated machine.
Never: judges by itself; `tests.equipment.checkers` does.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from random import Random
from typing import Any, Literal

from holdfast.broker.assemble import assemble
from holdfast.broker.server import Server
from holdfast.core.config import Config
from holdfast.testing.hardships import Hardships
from holdfast.testing.loop import VirtualLoop, simulate
from holdfast.testing.world import DISK_BYTES, BrokerMachine, SimulatedWorld
from tests.equipment.checkers import judge
from tests.equipment.history import (
    Applied,
    Damaged,
    Event,
    Keyed,
    LifeEnded,
    Mark,
    QueueLimited,
    RetainedRead,
)
from tests.load import Load, Pace
from tests.simulation import inside
from tests.simulation.damage import flip_a_bit
from tests.simulation.effort import Effort
from tests.simulation.parts.entries import PULSAR_PORT, Entries
from tests.simulation.parts.mortals import Mortals
from tests.simulation.parts.notices import Notices
from tests.simulation.parts.services import Services
from tests.simulation.parts.talk import Talk
from tests.simulation.parts.work import Work
from tests.simulation.stage import Part, Stage

HOST = "10.0.0.1"
PORT = 1883
FAULTS_S = 60.0
"""Virtual seconds for which everything may fail."""

MESSAGES = (0, 200, 600)
"""What the main load publishes in one run, at most; the seed draws one of these."""

PARTS: dict[str, Callable[[Stage], Part]] = {
    "mortals": Mortals,
    "talk": Talk,
    "notices": Notices,
    "work": Work,
    "services": Services,
}
"""What else may go on; each is left out of about half of the runs."""

OTHERS: dict[str, Callable[[Stage], Part]] = {"entries": Entries}
"""What goes on in runs of its own."""

SEGMENT_BYTES = 64 * 1024
"""Small, so that a run seals many segments, writes checkpoints and can fill a disk."""

STRATEGIES = ("round_robin", "least_in_flight", "sticky", "key:topic", "key:client")
"""How groups share; the seed draws one of these."""

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
    pulsar_port=None,
    anonymous=True,
    segment_bytes=SEGMENT_BYTES,
    checkpoint_bytes=4 * SEGMENT_BYTES,
    reserve_bytes=4 * SEGMENT_BYTES,
    # A run lasts minutes, and what has expired is to be gone at its end.
    session_expiry_cron="*/10 * * ? * *",
)

WITH_PULSAR: dict[str, Any] = {
    "pulsar_port": PULSAR_PORT,
    # What a record may have around an entry takes two of those.
    "segment_bytes": 3 * SEGMENT_BYTES,
    "checkpoint_bytes": 6 * SEGMENT_BYTES,
}

QUEUE_MAXIMUM = CONFIG.queue_messages_maximum
"""More than any run puts into a queue."""

SMALL_DISK_BYTES = 8 * SEGMENT_BYTES

REPEAT = ".venv/bin/python -m tests.simulation --seed {seed}"

logging.getLogger("holdfast").addHandler(logging.NullHandler())
logging.getLogger("holdfast").propagate = False


@dataclass(frozen=True, slots=True)
class Packs:
    """How APPLICATION clients are delivered to."""

    maximum: int = 200
    timeout_s: int = 20
    strategy: Literal["RETRY_ALL", "SKIP_ALL"] = "RETRY_ALL"
    retries: int = 3
    resends_live: bool = False
    clients: tuple[str, ...] = ("service-*",)

    def settings(self) -> dict[str, Any]:
        """As the broker is told."""
        return {
            "application_client_identifiers": self.clients,
            "application_pack_messages_maximum": self.maximum,
            "application_pack_timeout_s": self.timeout_s,
            "application_strategy": self.strategy,
            "application_retries": self.retries,
            "resend_on_live_connection": self.resends_live,
        }

    def applied(self, clients: Iterable[str]) -> Applied:
        """As the checkers are told."""
        skips = self.strategy == "SKIP_ALL"
        gives_up = skips or self.retries > 0
        most = 1 if skips else 1 + self.retries if self.retries else 0
        names = (name for name in clients if any(fnmatch(name, own) for own in self.clients))
        return Applied(
            frozenset(names),
            self.maximum,
            most,
            most if self.resends_live else 1,
            ("skipped" if skips else "retries_used_up") if gives_up else None,
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """What goes on in a run."""

    messages: int = 600
    parts: tuple[str, ...] = ()
    packs: Packs = Packs()
    queue_maximum: int = QUEUE_MAXIMUM
    strategy: str = "round_robin"

    def config(self) -> Config:
        """The broker's settings."""
        return replace(
            CONFIG,
            queue_messages_maximum=self.queue_maximum,
            shared_strategy=self.strategy,
            **self.packs.settings(),
            **(WITH_PULSAR if "entries" in self.parts else {}),
        )

    def describe(self) -> str:
        """For people."""
        shown = f"queues of {self.queue_maximum}, groups by {self.strategy}, {self.packs}"
        return ", ".join((f"{self.messages} messages of the load", *self.parts, shown))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did, for people."""

    sent: int
    refused: int
    events: int
    virtual_s: float
    lives: int
    plan: str
    hardships: str


ENTRIES = Plan(0, ("entries",))
"""A run of services that speak Pulsar's protocol."""


def draw_plan(random: Random) -> Plan:
    """What goes on, drawn; something always does."""
    parts = tuple(name for name in PARTS if random.random() < 0.5)
    packs = Packs(
        maximum=random.choice((1, 3, 10, 200)),
        timeout_s=random.choice((1, 5, 20)),
        strategy=random.choice(("RETRY_ALL", "RETRY_ALL", "SKIP_ALL")),
        retries=random.choice((0, 1, 3)),
        resends_live=random.random() < 0.3,
        clients=random.choice((("service-*",), ("service-*", "listener-*"))),
    )
    strategy = random.choice(STRATEGIES)
    # The load expects that nothing of it is cut off.
    if parts and random.random() < 0.2:
        # What retention takes while it is in flight cannot be sent again on a live connection.
        packs = replace(packs, resends_live=False)
        return Plan(0, parts, packs, random.choice((3, 20)), strategy)
    messages = random.choice(MESSAGES) if parts else max(MESSAGES)
    return Plan(messages, parts, packs, strategy=strategy)


def run(
    seed: int, hardships: Hardships | None = None, plan: Plan | None = None
) -> tuple[Outcome, str]:
    """One run; returns what it did and the hash of its trace. Raises `SimulationFailedError`."""

    async def main(loop: VirtualLoop) -> Outcome:
        return await _Run(loop, plan or draw_plan(loop.random)).run()

    only = " --entries" if plan is not None and "entries" in plan.parts else ""
    repeat = REPEAT.format(seed=seed) + only
    return simulate(main, seed=seed, repeat=repeat, hardships=hardships)


class _Run:
    """One run."""

    def __init__(self, loop: VirtualLoop, plan: Plan) -> None:
        self._loop = loop
        self._plan = plan
        self._machine = BrokerMachine(loop, self._begin)
        self._machine.ended = lambda: self._note(LifeEnded())
        self._load = Load(HOST, PORT, Random(loop.random.getrandbits(63)), PACE)
        self._stage = Stage(loop, HOST, PORT)
        makers = PARTS | OTHERS
        self._parts = [makers[name](self._stage) for name in plan.parts]

    async def run(self) -> Outcome:
        loop, machine, load, stage = self._loop, self._machine, self._load, self._stage
        loop.note(self._plan.describe())
        self._note(self._plan.packs.applied(client.name for client in stage.clients))
        if self._plan.queue_maximum < QUEUE_MAXIMUM:
            self._note(QueueLimited(self._plan.queue_maximum))
        if self._plan.strategy.startswith("key:"):
            self._note(Keyed())
        machine.start()
        watch = loop.create_task(self._watch())
        faults = loop.create_task(_faults(loop, machine, self._note))
        begun = [loop.create_task(part.begin()) for part in self._parts]
        if self._plan.messages:
            load.allow(self._plan.messages)
            begun.append(loop.create_task(load.begin()))
        await asyncio.sleep(FAULTS_S)
        await self._calm_down(faults, begun)
        for part in self._parts:
            await part.end()
        await stage.drain()
        lacking = await load.end() if self._plan.messages else {}
        watch.cancel()
        if self._plan.messages:
            await _read_retained(load)
        await self._judge(lacking)
        await machine.stop()
        sent = load.sent + inside.sent(stage.history)
        return Outcome(
            sent,
            load.refused,
            len(stage.history.events) + len(load.history.events),
            loop.time(),
            machine.lives,
            self._plan.describe(),
            loop.hardships.describe(),
        )

    async def _calm_down(self, faults: asyncio.Task[None], begun: list[asyncio.Task[None]]) -> None:
        """Nothing fails any more, and everybody who had not got so far begins."""
        faults.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await faults
        self._loop.note("calm")
        self._loop.network.calm()
        self._machine.disk.set_capacity(DISK_BYTES)
        self._machine.recover()
        async with asyncio.timeout(PACE.drained_within_s):
            await asyncio.gather(*begun)
        self._stage.calm = True

    async def _judge(self, lacking: dict[str, int]) -> None:
        """What is left when all have gone, and every question."""
        await self._load.close()
        await self._stage.close()
        await asyncio.sleep(inside.LONGEST_EXPIRY_S)
        for event in inside.leavings(self._server(), self._stage.history):
            self._note(event)
        judge(self._load.history)
        judge(self._stage.history)
        assert not lacking, f"not drained within {PACE.drained_within_s:g} s: {lacking}"

    def _server(self) -> Server:
        server = self._machine.life
        assert isinstance(server, Server), "the broker does not live at the end"
        return server

    def _note(self, event: Event) -> None:
        self._load.history.add(event)
        self._stage.history.add(event)

    def _begin(self, world: SimulatedWorld) -> Server:
        server = assemble(self._plan.config(), world)
        inside.tell_give_ups(server, self._stage.history.add)
        topics = inside.retained_topics(self._load.history, self._stage.history)
        self._note(inside.recovered(server, topics))
        Effort(server, self._note)
        return server

    async def _watch(self) -> None:
        """Looks inside the broker once a virtual second."""
        while True:
            await asyncio.sleep(1.0)
            if isinstance(self._machine.life, Server):
                for event in inside.amounts(self._machine.life, self._machine.lives):
                    history = self._load.history if isinstance(event, Mark) else self._stage.history
                    history.add(event)


async def _faults(loop: VirtualLoop, machine: BrokerMachine, note: Callable[[Event], None]) -> None:
    """What happens to the machine, each kind at its own times."""
    async with asyncio.TaskGroup() as group:
        if mean_s := loop.hardships.power_cut_after_s:
            group.create_task(_power_cuts(loop, machine, mean_s))
        if mean_s := loop.hardships.failed_sync_after_s:
            group.create_task(_failed_syncs(loop, machine, mean_s))
        if mean_s := loop.hardships.bit_flip_after_s:
            group.create_task(_bit_flips(loop, machine, mean_s, note))


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


async def _bit_flips(
    loop: VirtualLoop, machine: BrokerMachine, mean_s: float, note: Callable[[Event], None]
) -> None:
    while True:
        await asyncio.sleep(loop.random.expovariate(1 / mean_s))
        message = flip_a_bit(machine.disk, loop.random)
        if message is not None:
            note(Damaged(message))


async def _read_retained(load: Load) -> None:
    retained = await load.read_retained()
    for client in load.publishers:
        topic = f"load/{client.name}/0"
        load.history.add(RetainedRead(topic, retained.get(topic)))
