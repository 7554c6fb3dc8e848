"""Kill processors, broker and database again and again, and count what is in the tables.

Owns: who dies when, and what is asked in the end. Never: forgives; one row that is missing fails
the run.

Two environments of three pods each take the same reads, one into PostgreSQL, the other into a file
of SQLite. A run is a row of legs, each with fresh directories, some rounds of kills, and a
judgement.
"""

import asyncio
import json
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

from holdfast import system
from holdfast.client.http import HttpClient
from tests.crash.processors.pods import PODS, Environment
from tests.crash.processors.readers import DeadLetters, Read, Readers
from tests.interop.processors.databases import Database, PostgresDatabase, SqliteDatabase
from tests.postgresql import PostgresServer, postgres_server
from tests.process import HOST, BrokerProcess

LEG_ROUNDS = 20
READERS = 4
LIVES_S = (0.1, 1.5)
DEATHS_S = (0.0, 0.3)
CHANCES = {"broker": 0.3, "database": 0.3, "pod": 0.4}
CUT = 0.3
DRAINED_WITHIN_S = 90.0
ASK_EVERY_S = 0.2
SHOWN_MAXIMUM = 10


@dataclass
class Report:
    """What a run found."""

    seed: int
    rounds: int
    done: int = 0
    kills: dict[str, int] = field(default_factory=dict)
    renamed: int = 0
    reads: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    dead_letters: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    kept: str = ""
    """Where the data is of a run that failed."""

    @property
    def holds(self) -> bool:
        """True if every read was in each table once, or a dead letter."""
        return not self.problems

    def text(self) -> str:
        """For people."""
        kills = ", ".join(f"{part} {times}" for part, times in sorted(self.kills.items()))
        lines = [
            f"{self.done} rounds in {self.seconds:.0f} s, seed {self.seed}",
            f"  killed: {kills}; came back under another name: {self.renamed}",
            f"  reads: {self.reads}",
            *(f"  rows of {name}: {rows}" for name, rows in self.rows.items()),
            *(f"  dead letters of {name}: {count}" for name, count in self.dead_letters.items()),
            *(f"  {problem}" for problem in self.problems[:SHOWN_MAXIMUM]),
        ]
        if self.kept:
            lines.append(f"  the data is kept in {self.kept}")
        command = f"python -m tests.crash.processors --rounds {self.rounds} --seed {self.seed}"
        return "\n".join([*lines, f"  repeat with: {command}"])

    def write(self, path: Path) -> None:
        """Writes it as JSON."""
        path.write_text(json.dumps({"holds": self.holds, **asdict(self)}, indent=1) + "\n")


async def run(
    directory: Path,
    *,
    rounds: int,
    seed: int,
    say: Callable[[str], None],
    early: bool = False,
    drained_within_s: float = DRAINED_WITHIN_S,
) -> Report:
    """So many rounds; `early` plants the fault that a message is acknowledged before its commit."""
    random = Random(seed)
    report = Report(seed, rounds)
    began = system.monotonic_s()
    while report.done < rounds and report.holds:
        place = directory / f"leg-{report.done}"
        place.mkdir()
        with ExitStack() as stack:
            server = stack.enter_context(postgres_server())
            leg = await asyncio.to_thread(Leg, place, report, random, server, early)
            await leg.run(min(LEG_ROUNDS, rounds - report.done), say, drained_within_s)
        if report.holds:
            shutil.rmtree(place)
        else:
            report.kept = str(place)
    report.seconds = system.monotonic_s() - began
    return report


class Leg:
    """Some rounds and the judgement; the broker runs from the beginning."""

    def __init__(
        self, directory: Path, report: Report, random: Random, server: PostgresServer, early: bool
    ) -> None:
        self._report = report
        self._random = random
        self._server = server
        self._broker = BrokerProcess(directory, queue_messages_maximum=65_535)
        self._broker.start()
        databases: dict[str, Database] = {
            "azure-prod": PostgresDatabase(server.url()),
            "local-daves-macbook": SqliteDatabase(directory),
        }
        self._environments = [
            Environment(name, database, self._broker.port, directory, early)
            for name, database in databases.items()
        ]
        self._letters = [DeadLetters(name) for name in databases]
        self._readers = Readers(READERS, Random(random.getrandbits(63)))
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self, rounds: int, say: Callable[[str], None], within_s: float) -> None:
        """So many rounds, a drain, and all questions."""
        try:
            await self._begin()
            reading = asyncio.get_running_loop().create_task(self._readers.read())
            self._tasks.append(reading)
            for _ in range(rounds):
                said = await self._round()
                self._report.done += 1
                say(f"round {self._report.done}/{self._report.rounds}: killed {', '.join(said)}")
            reading.cancel()
            await self._drain(within_s)
            await asyncio.to_thread(self._judge)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for environment in self._environments:
                environment.close()
            if self._broker.is_running():
                await asyncio.to_thread(self._broker.stop)

    async def _begin(self) -> None:
        port = self._broker.port
        for environment in self._environments:
            environment.start()
        await asyncio.to_thread(self._wait_for_members)
        loop = asyncio.get_running_loop()
        staying = [client.stay(HOST, port) for client in (*self._readers.all, *self._letters)]
        self._tasks = [loop.create_task(each) for each in staying]

    def _wait_for_members(self) -> None:
        """What is published before a group is there is not for it."""
        asking = HttpClient.on(self._broker.data_directory)
        expected = PODS * len(self._environments)
        while sum(len(each["members"]) for each in asking.get("/v1/groups")["groups"]) < expected:
            time.sleep(ASK_EVERY_S)

    async def _round(self) -> list[str]:
        await asyncio.sleep(self._random.uniform(*LIVES_S) / 2)
        self._readers.cut(CUT)
        await asyncio.sleep(self._random.uniform(*LIVES_S) / 2)
        pods = [pod for environment in self._environments for pod in environment.pods]
        victims = ["broker", "database", *["pod"] * len(pods)]
        chosen = [each for each in victims if self._random.random() < CHANCES[each]] or ["pod"]
        self._random.shuffle(chosen)
        self._random.shuffle(pods)
        for victim in chosen:
            self._report.kills[victim] = self._report.kills.get(victim, 0) + 1
            if victim == "broker":
                await asyncio.to_thread(self._broker.kill)
            elif victim == "database":
                await asyncio.to_thread(self._server.stop, "immediate")
            else:
                pods.pop().kill()
            await asyncio.sleep(self._random.uniform(*DEATHS_S) / len(chosen))
        self._random.shuffle(chosen)
        for victim in chosen:
            if victim == "broker":
                await asyncio.to_thread(self._broker.start)
            elif victim == "database":
                await asyncio.to_thread(self._server.start)
        for environment in self._environments:
            before = len(environment.former)
            environment.start(self._random)
            self._report.renamed += len(environment.former) - before
        return chosen

    async def _drain(self, within_s: float) -> None:
        await self._readers.taken()
        for environment in self._environments:
            environment.bring_back_the_former()
        sound, broken = (len(self._readers.reads(broken=each)) for each in (False, True))
        until_s = system.monotonic_s() + within_s
        while system.monotonic_s() < until_s:
            there = [await asyncio.to_thread(_rows, each) for each in self._environments]
            letters = [len(each.found) for each in self._letters]
            if {*map(len, there)} == {sound} and {*letters} == {broken}:
                return
            await asyncio.sleep(ASK_EVERY_S)

    def _judge(self) -> None:
        report = self._report
        sound, broken = (self._readers.reads(broken=each) for each in (False, True))
        report.reads += len(sound) + len(broken)
        for environment, letters in zip(self._environments, self._letters, strict=True):
            name, rows = environment.name, _rows(environment)
            report.rows[name] = report.rows.get(name, 0) + len(rows)
            report.dead_letters[name] = report.dead_letters.get(name, 0) + len(letters.found)
            found = {
                "lacks rows": sound - set(rows),
                "has rows of nothing": set(rows) - sound,
                "has rows twice": {each for each in set(rows) if rows.count(each) > 1},
                "lacks dead letters": broken - letters.found,
                "has dead letters of sound reads": letters.found - broken,
            }
            report.problems += [
                f"{name} {what}: {len(reads)}, such as {min(reads)}"
                for what, reads in found.items()
                if reads
            ]


def _rows(environment: Environment) -> list[Read]:
    query = "SELECT reader, event_number FROM bbu.tag_read_processings"
    return [(reader, number) for reader, number in environment.database.run(query)]
