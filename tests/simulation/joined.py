"""Two or three brokers in virtual time, joined by bridges: one run from one seed.

Owns: what a run does (load at both ends, faults, calm, drain, judgement) and what a seed draws.
Never: judges by itself; `tests.equipment.checkers` and `tests.simulation.carriage` do.
"""

import asyncio
import contextlib
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Any

from holdfast.testing.hardships import Hardships, draw_hardships
from holdfast.testing.loop import VirtualLoop, simulate
from tests.equipment.checkers import judge
from tests.equipment.clients import LASTING_S, ClientOptions
from tests.equipment.history import LifeEnded, Message, Received, Sent
from tests.simulation.carriage import Arrived, judge_carriage, left_over
from tests.simulation.parts.publisher import Publisher, Rhythm
from tests.simulation.sites import NAMES, Site, carries
from tests.simulation.stage import KEEP_ALIVE_S, Stage
from tests.simulation.wire import PORT, Seen, Wire

FAULTS_S = 60.0
DRAINED_WITHIN_S = 600.0
LOOKS_EVERY_S = 1.0
REPEAT = ".venv/bin/python -m tests.simulation.bridges --seed {seed}"
TOPICS = {"out": "plant", "in": "orders"}


@dataclass(frozen=True, slots=True)
class Plan:
    """What goes on in a run."""

    sites: int = 2
    version: str = "5"
    storage: str = "FILE_NATIVE"
    receive_maximum: int = 100
    messages: int = 100
    break_share: float = 0.0
    """The part of the packets that a wire breaks at."""
    outage_after_s: float = 0.0
    """Mean time between outages of a wire; 0: none."""

    def describe(self) -> str:
        """For people."""
        return (
            f"{self.sites} sites by MQTT {self.version}, {self.storage}, window of "
            f"{self.receive_maximum}, {self.messages} messages each way, breaks at "
            f"{self.break_share:.3f} of packets, outages every {self.outage_after_s:g} s"
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did, for people."""

    sent: int
    received: int
    connections: int
    lives: int
    virtual_s: float
    plan: str
    hardships: str


def draw_plan(random: Random, hardships: Hardships) -> Plan:
    """What goes on, drawn."""
    # A life that ends takes with it what waits in memory.
    ends = hardships.power_cut_after_s or hardships.failed_sync_after_s
    return Plan(
        sites=random.choice((2, 2, 3)),
        version=random.choice(("5", "5", "3.1.1")),
        storage="FILE_NATIVE" if ends else random.choice(("FILE_NATIVE", "IN_MEMORY")),
        receive_maximum=random.choice((1, 2, 20, 1_000)),
        messages=random.choice((20, 60, 150)),
        break_share=random.choice((0.0, 0.003, 0.02)),
        outage_after_s=random.choice((0.0, 5.0, 20.0)),
    )


def bearable(hardships: Hardships) -> Hardships:
    """Without what damages the only copy of a message."""
    return replace(hardships, bit_flip_after_s=0.0, small_disk_bytes=0)


def run(
    seed: int, hardships: Hardships | None = None, plan: Plan | None = None
) -> tuple[Outcome, str]:
    """One run; returns what it did and the hash of its trace. Raises `SimulationFailedError`."""
    hard = hardships or bearable(draw_hardships(Random(seed)))

    async def main(loop: VirtualLoop) -> Outcome:
        return await _Run(loop, plan or draw_plan(loop.random, hard)).run()

    return simulate(main, seed=seed, repeat=REPEAT.format(seed=seed), hardships=hard)


class _Run:
    """One run."""

    def __init__(self, loop: VirtualLoop, plan: Plan) -> None:
        self._loop = loop
        self._plan = plan
        self._sites = [self._site(name) for name in NAMES[: plan.sites]]
        self._wires = self._join()
        self._stages = [Stage(loop, site.host, PORT) for site in (self._sites[0], self._sites[-1])]
        self._history = self._stages[0].history
        self._stages[1].history = self._history

    def _site(self, name: str) -> Site:
        settings: dict[str, Any] = {
            "bridges_storage": self._plan.storage,
            "receive_maximum": self._plan.receive_maximum,
        }
        site = Site(self._loop, name, **settings)
        site.machine.ended = lambda: self._history.add(LifeEnded())
        return site

    def _join(self) -> list[Wire]:
        """Each site has a bridge to the next, which carries in both directions."""
        return [
            near.join(
                far.name,
                protocol_version=self._plan.version,
                hop_limit=self._plan.sites,
                keep_alive_s=KEEP_ALIVE_S,
                local_subscriptions=[carries(f"{TOPICS['out']}/#")],
                remote_subscriptions=[carries(f"{TOPICS['in']}/#")],
            )
            for near, far in pairwise(self._sites)
        ]

    async def run(self) -> Outcome:
        """All of it."""
        loop = self._loop
        loop.note(self._plan.describe())
        for site in self._sites:
            await site.start()
        await self._collect()
        # Only what is published while every bridge has its queue and subscriptions is owed.
        await self._rest_for(1)
        publishers = self._publish()
        faults = [loop.create_task(each) for each in self._faults()]
        await asyncio.sleep(FAULTS_S)
        await self._calm_down(faults)
        with contextlib.suppress(TimeoutError):  # The judges say what is lacking.
            async with asyncio.timeout(DRAINED_WITHIN_S):
                await self._drain([publisher.client for publisher in publishers])
        for stage in self._stages:
            await stage.drain()
        arrived = [Arrived.at(site) for site in self._sites]
        for stage in self._stages:
            await stage.close()
        for site in self._sites:
            for event in left_over(site):
                self._history.add(event)
        judge(self._history)
        judge_carriage(self._wires, arrived)
        assert all(site.is_drained() for site in self._sites), "a bridge is not at rest"
        if not loop.hardships.failed_sync_after_s:  # One that was to come would end the stop.
            for site in self._sites:
                await site.machine.stop()
        return self._outcome()

    async def _collect(self) -> None:
        options = ClientOptions(session_expiry_interval_s=LASTING_S, keep_alive_s=KEEP_ALIVE_S)
        for stage, topic in zip(self._stages, (TOPICS["in"], TOPICS["out"]), strict=True):
            client = stage.client(f"collector-of-{topic}", options)
            await stage.subscribe(client, f"{topic}/#", 2)
            stage.start(stage.stay(client))

    def _publish(self) -> list[Publisher]:
        rhythm = Rhythm(messages_maximum=self._plan.messages)
        made = []
        for stage, topic in zip(self._stages, (TOPICS["out"], TOPICS["in"]), strict=True):

            def make(name: str, number: int, topic: str = topic, stage: Stage = stage) -> Message:
                level = stage.random.choice(("x", "y"))
                return Message(name, f"{topic}/{level}", number, stage.random.choice((0, 1, 2)))

            publisher = Publisher(stage, f"publisher-of-{topic}", 5, make, rhythm)
            publisher.begin()
            made.append(publisher)
        return made

    # --- faults ---------------------------------------------------------------------------------

    def _faults(self) -> list[Any]:
        random, hardships = self._loop.random, self._loop.hardships
        share = self._plan.break_share

        def breaks(_seen: Seen) -> bool:
            return random.random() < share

        found: list[Any] = []
        for wire in self._wires:
            wire.breaks_at = breaks
            if self._plan.outage_after_s:
                found.append(self._outages(wire, self._plan.outage_after_s))
        for site in self._sites:
            if hardships.power_cut_after_s:
                found.append(self._power_cuts(site, hardships.power_cut_after_s))
            if hardships.failed_sync_after_s:
                found.append(self._failed_syncs(site, hardships.failed_sync_after_s))
        return found

    async def _outages(self, wire: Wire, mean_s: float) -> None:
        random = self._loop.random
        while True:
            await asyncio.sleep(random.expovariate(1 / mean_s))
            match random.choice(("closed", "cut", "silent", "slow")):
                case "closed":
                    wire.close()
                    await asyncio.sleep(random.uniform(0, 10))
                    await wire.open()
                case "cut":
                    wire.cut()
                case "silent":
                    wire.silence()
                case "slow":
                    wire.hold(True)
                    await asyncio.sleep(random.uniform(0, 10))
                    wire.hold(False)

    async def _power_cuts(self, site: Site, mean_s: float) -> None:
        random, machine = self._loop.random, site.machine
        while True:
            await asyncio.sleep(random.expovariate(1 / mean_s))
            if random.random() < 0.5:
                machine.cut_power()
            else:
                machine.kill()
            await asyncio.sleep(random.uniform(0, 5))
            machine.start()

    async def _failed_syncs(self, site: Site, mean_s: float) -> None:
        while True:
            await asyncio.sleep(self._loop.random.expovariate(1 / mean_s))
            site.machine.disk.fail_next_sync()

    async def _calm_down(self, faults: list[asyncio.Task[None]]) -> None:
        for task in faults:
            task.cancel()
        for task in faults:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._loop.note("calm")
        self._loop.network.calm()
        for wire in self._wires:
            wire.breaks_at = lambda _seen: False
            wire.hold(False)
            await wire.open()
        for site in self._sites:
            site.machine.recover()
        for stage in self._stages:
            stage.calm = True

    async def _drain(self, publishers: list[Any]) -> None:
        for client in publishers:
            await client.idle.wait()
        # What a site has got it passes on, so all have to be empty for a while.
        await self._rest_for(5)

    async def _rest_for(self, looks: int) -> None:
        """Until every bridge has been at rest so often in a row."""
        quiet = 0
        while quiet < looks:
            await asyncio.sleep(LOOKS_EVERY_S)
            quiet = quiet + 1 if all(site.is_drained() for site in self._sites) else 0

    def _outcome(self) -> Outcome:
        events = self._history.events
        return Outcome(
            sum(isinstance(event, Sent) for event in events),
            sum(isinstance(event, Received) for event in events),
            sum(wire.connections for wire in self._wires),
            sum(site.machine.lives for site in self._sites),
            self._loop.time(),
            self._plan.describe(),
            self._loop.hardships.describe(),
        )
