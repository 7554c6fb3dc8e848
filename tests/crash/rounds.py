"""Kill the broker under load, again and again, and count what became of what it had acknowledged.

Owns: when the broker dies, with which settings it lives, and what is asked in the end.
Never: forgives; one lost message fails the run.

A run is a row of legs. In each, a fresh data directory and fresh clients see some kills; then
everything is drained and judged. So a session that is away from a leg's begin to its end is not
owed more than a queue holds, and the settings differ from leg to leg.
"""

import asyncio
import shutil
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from random import Random

from holdfast import system
from tests.crash.newcomers import Newcomers
from tests.crash.report import Report
from tests.crash.sharing import KEYED, Sharing
from tests.equipment.checkers import (
    check_nothing_acknowledged_is_lost,
    check_nothing_is_invented,
    check_order_is_kept,
    check_qos_2_never_twice,
    check_qos_is_the_lower_one,
    check_retained_is_the_last,
    check_sessions_are_kept,
    check_windows_are_kept,
)
from tests.equipment.history import (
    Acknowledged,
    Applied,
    LifeEnded,
    Received,
    RetainedRead,
)
from tests.equipment.packs import (
    check_packs_are_kept,
    check_repeats_are_marked,
    check_transmissions_are_bounded,
)
from tests.load import APPLICATIONS, SUBSCRIBERS, Load, Pace
from tests.process import HOST, BrokerProcess

LIVES_S = ((0.05, 1.0), (0.05, 1.0), (0.05, 1.0), (1.0, 2.5))
"""How long the broker lives between two kills, at least and at most: mostly less than it takes
until the first checkpoint."""

PACE = Pace()

LEG_ROUNDS = 20
ROUND_MESSAGES = 1_500
"""What may be published between two kills: more than there is time for."""

KILLED_WHILE_STARTING = 0.2
"""The part of the rounds in which it is killed once more while it recovers."""

STARTING_S = 2.0
"""It is killed within this time of its start then: imports and recovery take most of it."""

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
    "beyond a pack": check_packs_are_kept,
    "sent too often": check_transmissions_are_bounded,
    "repeated without DUP or under another identifier": check_repeats_are_marked,
}

SWARM: dict[str, tuple[object, ...]] = {
    "segment_bytes": ("1MiB", "1MiB", "4MiB", "64MiB"),
    "checkpoint_bytes": ("1MiB", "256MiB"),
    "cache_bytes": ("1MiB", "64MiB"),
    "receive_maximum": (5, 1_000),
    "application_pack_messages_maximum": (20, 200),
}
"""Settings that a leg draws: small ones seal segments and write checkpoints within it."""


def draw_settings(random: Random) -> dict[str, object]:
    """The settings of a leg."""
    return {
        "queue_messages_maximum": QUEUE_MESSAGES_MAXIMUM,
        "maximum_packet_size_bytes": "64KiB",
        "application_client_identifiers": APPLICATIONS,
        # Nothing is given up: whatever is lacking in the end was lost.
        "application_retries": 0,
        "shared_strategies": KEYED,
        **{name: random.choice(values) for name, values in SWARM.items()},
    }


def _applied(pack_maximum: int) -> Applied:
    """How APPLICATION clients are delivered to, as the questions are told."""
    names = (name for name in SUBSCRIBERS if fnmatch(name, APPLICATIONS))
    return Applied(frozenset(names), pack_maximum, 0, 1, None)


def _leave_as_it_is(_data_directory: Path) -> None:
    """Nothing happens to what a killed broker leaves."""


async def run(
    directory: Path,
    *,
    rounds: int,
    seed: int,
    say: Callable[[str], None],
    meanwhile: Callable[[Path], None] = _leave_as_it_is,
    pace: Pace = PACE,
) -> Report:
    """Kills the broker `rounds` times; `say` gets a line for each. `meanwhile` is called with the
    data directory after each kill."""
    random = Random(seed)
    report = Report(seed, rounds)
    began = system.monotonic_s()
    while len(report.recoveries_s) < rounds and report.holds:
        report.legs += 1
        place = directory / f"leg-{report.legs}"
        place.mkdir()
        count = min(LEG_ROUNDS, rounds - len(report.recoveries_s))
        leg = await asyncio.to_thread(Leg, place, report, random, say, meanwhile, pace)
        await leg.run(count)
        if report.holds:
            shutil.rmtree(place)
        else:
            report.kept = str(place)
    report.seconds = system.monotonic_s() - began
    return report


class Leg:
    """Some kills of one broker, and the judgement; the broker runs from the beginning."""

    def __init__(
        self,
        directory: Path,
        report: Report,
        random: Random,
        say: Callable[[str], None],
        meanwhile: Callable[[Path], None],
        pace: Pace,
    ) -> None:
        self._meanwhile = meanwhile
        self._pace = pace
        self._report = report
        self._random = random
        self._say = say
        settings = draw_settings(random)
        shown = ", ".join(f"{name} {settings[name]}" for name in SWARM)
        say(f"leg {report.legs}: {shown}")
        self._broker = BrokerProcess(directory, **settings)
        self._broker.start()
        self._load = Load(HOST, self._broker.port, Random(random.getrandbits(63)), pace)
        self._sharing = Sharing(HOST, self._broker.port, Random(random.getrandbits(63)))
        self._load.history.add(_applied(int(str(settings["application_pack_messages_maximum"]))))
        self._newcomers = Newcomers(HOST, self._broker.port, self._load.history)

    async def run(self, rounds: int) -> None:
        """So many kills, a drain, and all questions."""
        load, report = self._load, self._report
        try:
            await self._sharing.begin()
            await load.begin()
            self._newcomers.begin()
            for _ in range(rounds):
                await self._live()
                await self._kill()
                report.recoveries_s.append(await self._recover())
                said = f"kill {len(report.recoveries_s)}/{report.rounds}: {load.sent} sent"
                self._say(f"{said}, back in {report.recoveries_s[-1]:.3f} s")
            await self._drain()
        finally:
            await self._newcomers.close()
            await self._sharing.close()
            await load.close()
            if self._broker.is_running():
                await asyncio.to_thread(self._broker.stop)
        self._judge()

    async def _live(self) -> None:
        self._load.allow(ROUND_MESSAGES)
        await asyncio.sleep(self._random.uniform(*self._random.choice(LIVES_S)))

    async def _kill(self) -> None:
        self._report.kills += 1
        await asyncio.to_thread(self._broker.kill)
        # What it had sent is still on its way to clients, and is of this life.
        await asyncio.gather(*(each.lost.wait() for each in self._load.subscribers.values()))
        self._load.history.add(LifeEnded())
        self._meanwhile(self._broker.data_directory)

    async def _recover(self) -> float:
        """Starts the broker; returns how long it took until it took connections."""
        if self._random.random() < KILLED_WHILE_STARTING:
            self._broker.launch()
            await asyncio.sleep(self._random.uniform(0.0, STARTING_S))
            if self._broker.is_running():
                await self._kill()
        return await asyncio.to_thread(self._broker.start)

    async def _drain(self) -> None:
        began = system.monotonic_s()
        load, lacking = self._load, self._report.lacking
        lacking |= await load.end()
        lacking |= await self._sharing.end(load.history, self._pace.drained_within_s)
        retained = await load.read_retained()
        for topic in {f"load/{client.name}/0" for client in load.publishers}:
            load.history.add(RetainedRead(topic, retained.get(topic)))
        self._say(f"drained in {system.monotonic_s() - began:.1f} s")

    def _judge(self) -> None:
        events, report = self._load.history.events, self._report
        report.acknowledged += len({e.message for e in events if isinstance(e, Acknowledged)})
        report.delivered += sum(isinstance(event, Received) for event in events)
        report.greeted += self._newcomers.greeted
        report.add({name: ask(self._load.history) for name, ask in QUESTIONS.items()})
        report.add({"stale for a fresh subscription": self._newcomers.violations})
        report.add(self._sharing.violations(self._load.history))
