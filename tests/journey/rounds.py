"""Rounds of kills: devices publish, something dies, and the table has to have it all.

Owns: the broker, the driver and the devices of a run, what is killed when, and how long the table
may take to be complete.

Flow of a round: devices publish -> victims die at random moments and come back -> the table is
complete -> it is compared with the devices' own counts.
"""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

from holdfast import system
from holdfast.reading.log import UnreadableLogError
from holdfast.reading.remote import RemoteLog
from tests.journey import judge, victims
from tests.journey.devices import Devices
from tests.journey.driver import LAST_WORDS, RELEASE_FIRST
from tests.journey.report import Report
from tests.journey.victims import Part
from tests.process import HOST, BrokerProcess

DEVICES = 10
MESSAGES_A_DEVICE = 150
"""In each round."""
SETTINGS = {
    "cursor_hold_timeout_s": 5,
    "maximum_packet_size_bytes": 64 << 10,
    "segment_bytes": 1 << 20,
    "retention_bytes": 2 << 20,
}
"""A round writes as much as half of what retention leaves, so that it is at work in all of them."""
CURSOR = "from-device-to-table"
KILLS_MAXIMUM = 3
"""In each round, at least one."""
WITHIN_S = 3.0
"""The moments at which something is killed lie within so much of a round's beginning."""
COMPLETE_WITHIN_S = 300.0
"""A driver, its executors and a broker may all have to start again in this."""
LOOK_EVERY_S = 0.25
HELD = "is held by"
"""Words of the refusal to a query whose cursor another one has."""


class Driver:
    """The process that runs the query."""

    def __init__(self, directory: Path, broker: str) -> None:
        self._log_file = directory / "driver.log"
        self._last_words = directory / LAST_WORDS
        self._command = [
            *(sys.executable, "-m", "tests.journey.driver"),
            *("--broker", broker),
            *("--cursor", CURSOR),
            *("--directory", str(directory)),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> None:
        """Starts it and does not wait."""
        self._last_words.unlink(missing_ok=True)
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen([*self._command, *arguments], stdout=log, stderr=log)

    @property
    def process_identifier(self) -> int:
        """Its process number."""
        assert self._process is not None
        return self._process.pid

    def has_ended(self) -> bool:
        """True if it runs no more."""
        return self._process is None or self._process.poll() is not None

    def is_refused(self) -> bool:
        """True if it has ended since somebody else holds the cursor."""
        return self.has_ended() and HELD in self.last_words()

    def kill(self, *, alone: bool = False) -> None:
        """Kills it; unless alone, with all that it started."""
        if self._process is None:
            return
        below = [] if alone else victims.descendants(self._process.pid)
        victims.kill([self._process.pid, *below])
        self._process.wait()

    def last_words(self) -> str:
        """Why it ended, if it said so; else the end of what it wrote."""
        if self._last_words.exists():
            return self._last_words.read_text()
        return self._log_file.read_text(errors="replace")[-3_000:]


class Run:
    """A run over any number of rounds; its broker runs from the beginning."""

    def __init__(self, directory: Path, *, rounds: int, seed: int) -> None:
        self._random = Random(seed)
        self.report = Report(seed=seed, rounds=rounds)
        self.table = directory / "pipeline" / "tables" / "bronze"
        self.broker = BrokerProcess(directory, http_port=0, **SETTINGS)
        self.broker.start()
        self.address = self.broker.http_address
        self.driver = Driver(directory, self.address)
        self.devices = Devices(DEVICES, self._random)

    def begin(self) -> None:
        """Everything else runs, too."""
        self.devices.begin(HOST, self.broker.port)
        self.driver.start()

    async def end(self) -> None:
        """Nothing of it runs any more."""
        with contextlib.suppress(UnreadableLogError):
            self.report.log_begins_at = RemoteLog(self.address).extent().begin
        await self.devices.close()
        self.driver.kill()
        if self.broker.is_running():
            self.broker.kill()

    async def round(self) -> list[str]:
        """One round; returns what is wrong."""
        self.devices.report(MESSAGES_A_DEVICE)
        count = self._random.randint(1, KILLS_MAXIMUM)
        moments = sorted(self._random.uniform(0, WITHIN_S) for _ in range(count))
        before = 0.0
        for moment in moments:
            await asyncio.sleep(moment - before)
            before = moment
            await self._kill(self._random.choice(list(Part)))
        return await self.complete()

    async def complete(self) -> list[str]:
        """Waits until the table has all that devices published; returns what is wrong with it."""
        published, began = self.devices.published(), system.monotonic_s()
        while self.devices.waiting() or judge.reached(self.table) < self._log_end():
            if self.driver.is_refused():
                # It was killed before it had a checkpoint: the hold of who it was has to end first.
                self.driver.start()
            if self.driver.has_ended():
                return [f"the driver ended by itself:\n{self.driver.last_words()}"]
            if system.monotonic_s() - began > COMPLETE_WITHIN_S:
                return [
                    f"after {COMPLETE_WITHIN_S:.0f} s the table is at offset "
                    f"{judge.reached(self.table)}, and {self.devices.waiting()} messages wait to "
                    f"be taken:\n{self.driver.last_words()}"
                ]
            await asyncio.sleep(LOOK_EVERY_S)
        verdict = await asyncio.to_thread(judge.compare, self.table, published)
        self.report.published, self.report.rows = sum(published.values()), verdict.rows
        refusals = [f"a device was refused with {code:#04x}" for code in self.devices.refusals()]
        return verdict.problems + refusals

    def _log_end(self) -> int:
        return RemoteLog(self.address).extent().end

    async def _kill(self, part: Part) -> None:
        if part is Part.BROKER:
            self.broker.kill()
            await asyncio.sleep(self._random.uniform(0, 1))
            await asyncio.to_thread(self.broker.start)
        elif part is Part.DRIVER:
            self.driver.kill(alone=self._random.random() < 0.5)
            self.driver.start()
        elif part is Part.DEVICES:
            self.devices.cut(0.5)
        else:
            # None is there while the driver starts, and then nothing is killed.
            chosen = victims.found(part, self.driver.process_identifier)[:1]
            victims.kill(chosen)
            if not chosen:
                return
        self.report.killed(part.value)


async def run(directory: Path, *, rounds: int, seed: int, say: Callable[[str], None]) -> Report:
    """Runs so many rounds; ends at the first that fails."""
    this = Run(directory, rounds=rounds, seed=seed)
    began = system.monotonic_s()
    try:
        this.begin()
        for number in range(1, rounds + 1):
            problems = await this.round()
            say(f"round {number}: {this.report.rows} rows, {sum(this.report.kills.values())} kills")
            if problems:
                this.report.problems += [f"round {number}: {problem}" for problem in problems]
                break
    finally:
        await this.end()
    this.report.seconds = system.monotonic_s() - began
    this.report.kept = "" if this.report.holds else str(directory)
    return this.report


async def release_first(directory: Path, *, seed: int) -> list[str]:
    """The planted fault: what is released before the table has it is taken by retention while the
    driver is away. Returns what is wrong then."""
    this = Run(directory, rounds=1, seed=seed)
    try:
        this.devices.begin(HOST, this.broker.port)
        this.driver.start("--fault", RELEASE_FIRST)
        this.devices.report(MESSAGES_A_DEVICE)
        began = system.monotonic_s()
        while not this.driver.has_ended():
            if system.monotonic_s() - began > COMPLETE_WITHIN_S:
                return []
            await asyncio.sleep(LOOK_EVERY_S)
        first = RemoteLog(this.address).extent().begin
        while RemoteLog(this.address).extent().begin == first:
            this.devices.report(MESSAGES_A_DEVICE)
            await this.devices.taken()
            if system.monotonic_s() - began > COMPLETE_WITHIN_S:
                return []
        this.driver.start()
        return await this.complete()
    finally:
        await this.end()
