"""Kill the broker under load, again and again, and count what became of what it had acknowledged.

Owns: when the broker dies, and the report.
Never: forgives; one lost message fails the run.
"""

import asyncio
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from holdfast import system
from holdfast.testing.checkers import (
    check_nothing_acknowledged_is_lost,
    check_nothing_is_invented,
    check_order_is_kept,
    check_qos_2_never_twice,
    check_qos_is_the_lower_one,
    check_retained_is_the_last,
    check_sessions_are_kept,
    check_windows_are_kept,
)
from holdfast.testing.clients import Client, ClientOptions, ConnectionFailedError
from holdfast.testing.history import Acknowledged, History, RetainedRead
from tests.load import Load, Pace
from tests.process import HOST, BrokerProcess

LIVES_S = (0.1, 1.5)
"""How long the broker lives between two kills, at least and at most."""

KILLED_WHILE_STARTING = 0.2
"""The part of the rounds in which it is killed once more while it recovers."""

QUEUE_MESSAGES_MAXIMUM = 65_535
"""What the broker keeps for those who are away: the most it can be told to (S2.35)."""

QUESTIONS = {
    "lost": check_nothing_acknowledged_is_lost,
    "invented": check_nothing_is_invented,
    "doubled at QoS 2": check_qos_2_never_twice,
    "reordered": check_order_is_kept,
    "at the wrong QoS": check_qos_is_the_lower_one,
    "beyond a window": check_windows_are_kept,
    "stale retained": check_retained_is_the_last,
    "sessions lost or broken": check_sessions_are_kept,
}


@dataclass
class Report:
    """What a run found."""

    seed: int
    rounds: int
    acknowledged: int = 0
    recoveries_s: list[float] = field(default_factory=list)
    violations: dict[str, list[str]] = field(default_factory=dict)
    lacking: dict[str, int] = field(default_factory=dict)
    """Messages that had not arrived when time was up, by subscriber."""
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        """True if nothing was violated and everything has arrived."""
        return not self.lacking and not any(self.violations.values())

    def text(self) -> str:
        """For people."""
        p50, longest = statistics.median(self.recoveries_s), max(self.recoveries_s)
        lines = [
            f"{self.rounds} kills in {self.seconds:.0f} s, seed {self.seed}",
            f"  acknowledged: {self.acknowledged}",
            *(f"  {name}: {len(found)}" for name, found in self.violations.items()),
            f"  recovery: median {p50:.3f} s, longest {longest:.3f} s",
        ]
        lines += [f"  {name} still lacks {count}" for name, count in self.lacking.items()]
        for name, found in self.violations.items():
            lines += [f"  {name}: {violation}" for violation in found[:5]]
        command = f"python -m tests.crash --rounds {self.rounds} --seed {self.seed}"
        return "\n".join([*lines, f"  repeat with: {command}"])


async def run(directory: Path, *, rounds: int, seed: int, say: Callable[[str], None]) -> Report:
    """Kills the broker `rounds` times; `say` gets a line for each."""
    random = Random(seed)
    report = Report(seed, rounds)
    began = system.monotonic_s()
    broker = BrokerProcess(directory, queue_messages_maximum=QUEUE_MESSAGES_MAXIMUM)
    await asyncio.to_thread(broker.start)
    load = Load(HOST, broker.port, Random(seed), Pace())
    try:
        await load.begin()
        for number in range(1, rounds + 1):
            load.allow(QUEUE_MESSAGES_MAXIMUM // (rounds + 10))
            await asyncio.sleep(random.uniform(*LIVES_S))
            await asyncio.to_thread(broker.kill)
            report.recoveries_s.append(await _recover(broker, random))
            say(f"kill {number}: {load.sent} sent, back in {report.recoveries_s[-1]:.3f} s")
        report.lacking = await load.end()
        retained = await load.read_retained()
    finally:
        await load.close()
        if broker.is_running():
            await asyncio.to_thread(broker.stop)
    for topic in {f"load/{client.name}/0" for client in load.publishers}:
        load.history.add(RetainedRead(topic, retained.get(topic)))
    acknowledged = {e.message for e in load.history.events if isinstance(e, Acknowledged)}
    report.acknowledged = len(acknowledged)
    report.violations = {name: ask(load.history) for name, ask in QUESTIONS.items()}
    report.seconds = system.monotonic_s() - began
    return report


async def _recover(broker: BrokerProcess, random: Random) -> float:
    """Starts the broker; returns how long it took until a client had its CONNACK."""
    if random.random() < KILLED_WHILE_STARTING:
        broker.launch()
        await asyncio.sleep(random.uniform(0.0, 0.3))
        if broker.is_running():
            await asyncio.to_thread(broker.kill)
    began = system.monotonic_s()
    await asyncio.to_thread(broker.start)
    probe = Client("probe", History(), ClientOptions(clean_start=True), Random(0))
    while True:
        try:
            await probe.connect(HOST, broker.port)
        except ConnectionFailedError:
            continue
        probe.disconnect()
        return system.monotonic_s() - began
