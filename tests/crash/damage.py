"""Damage the log of a killed broker, and see that nothing is lost but what was damaged.

Owns: what is cut off or flipped, which messages that may cost, and the judgement.
Never: damages the original; each trial has a copy.

Kinds:
- `torn`: the newest file ends at a random byte behind what was acknowledged: nothing may be lost.
- `cut`: it ends at a random byte anywhere: what lay behind the cut is lost, and nothing before it.
- `flip`: bytes in a sealed segment have changed: the records that they lie in are lost, and `log
  verify` and, where recovery has to read it, a line of the broker name the place.
"""

import asyncio
import contextlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from holdfast.core.layout import LOG_DIRECTORY
from holdfast.kernel import LogReader
from holdfast.reading.criteria import Criteria
from holdfast.reading.directory import LogDirectory
from holdfast.reading.log import Question
from tests.crash import segments
from tests.crash.segments import CONTROL, MESSAGE, SegmentFile
from tests.equipment.clients import Client, ClientOptions
from tests.equipment.history import (
    Acknowledged,
    Event,
    History,
    Message,
    Received,
    parse_payload,
)
from tests.load import Load, Pace
from tests.process import HOST, BrokerProcess

KINDS = ("torn", "cut", "flip")
TRIALS_EACH = 10
"""Trials on copies of one original."""
LIVES = 3
"""At least; a slow machine takes more until a segment is sealed."""
LIFE_S = (0.8, 2.0)
FLIPPED_BYTES_MAXIMUM = 8
NEW_MESSAGES = 20
ANSWERED_WITHIN_S = 60.0
AWAY = "away-2"
"""The session that is owed everything."""

SETTINGS: dict[str, object] = {
    "segment_bytes": "1MiB",
    "checkpoint_bytes": "1MiB",
    "maximum_packet_size_bytes": "64KiB",
    "queue_messages_maximum": 65_535,
}


@dataclass
class Original:
    """What a killed broker left."""

    directory: Path
    messages: dict[int, Message]
    """All that its log has, by offset."""
    acknowledged: set[Message]
    files: list[SegmentFile]


@dataclass
class Damage:
    """What was done to a copy, and what that may cost."""

    what: str
    file: str
    position: int
    may_lose: set[int] = field(default_factory=set)
    """Offsets of messages."""
    hits_controls: bool = False
    """Sessions may be lost, too."""


@dataclass
class Trials:
    """What a run of damages found."""

    kind: str
    seed: int
    count: int = 0
    named: int = 0
    """Trials in which a line of the broker named the damage."""
    lost: int = 0
    """Messages that the damage took."""
    failures: list[str] = field(default_factory=list)

    def text(self) -> str:
        """For people."""
        lines = [
            f"{self.count} trials of {self.kind}, seed {self.seed}: {len(self.failures)} failed;"
            f" {self.lost} messages lay in what was damaged, {self.named} recoveries named it"
        ]
        return "\n".join([*lines, *(f"  {failure}" for failure in self.failures[:10])])


async def run(
    directory: Path, *, kind: str, trials: int, seed: int, say: Callable[[str], None]
) -> Trials:
    """Damages copies `trials` times; `say` gets a line for each."""
    random = Random(seed)
    found = Trials(kind, seed)
    original = None
    while found.count < trials:
        if original is None or found.count % TRIALS_EACH == 0:
            shutil.rmtree(directory / "original", ignore_errors=True)
            (directory / "original").mkdir()
            original = await _make_original(directory / "original", random)
            say(f"{len(original.messages)} messages in {len(original.files)} segments")
        found.count += 1
        copy = directory / f"copy-{found.count}"
        shutil.copytree(original.directory, copy, ignore=shutil.ignore_patterns("*.sock"))
        damage = DAMAGES[kind](original, copy / "data" / LOG_DIRECTORY, random)
        try:
            await Trial(original, copy, damage, found).run()
        except AssertionError as error:
            found.failures.append(f"{damage.what}: {error}; kept in {copy}")
            say(found.failures[-1])
        else:
            shutil.rmtree(copy)
        say(f"{kind} {found.count}/{trials}: {damage.what}: {len(found.failures)} failed")
    shutil.rmtree(directory / "original")
    return found


async def _make_original(directory: Path, random: Random) -> Original:
    broker = BrokerProcess(directory, **SETTINGS)
    await asyncio.to_thread(broker.start)
    load = Load(HOST, broker.port, Random(random.getrandbits(63)), Pace())
    load.allow(30_000)
    await load.begin()
    log_directory = directory / "data" / LOG_DIRECTORY
    lives = 0
    while lives < LIVES or not any(file.sealed for file in segments.files(log_directory)):
        if lives:
            await asyncio.to_thread(broker.start)
        lives += 1
        await asyncio.sleep(random.uniform(*LIFE_S))
        await asyncio.to_thread(broker.kill)
    await load.close()
    events = load.history.events
    return Original(
        directory,
        stored(log_directory),
        {event.message for event in events if isinstance(event, Acknowledged)},
        segments.files(log_directory),
    )


def stored(log_directory: Path) -> dict[int, Message]:
    """All messages of the load by offset, as a reader sees them."""
    log = LogDirectory(str(log_directory))
    extent = log.extent()
    at, found = extent.begin, {}
    while at < extent.end:
        columns = ("topic", "offset", "value")
        chunk = log.read(Question(Criteria(filters=("load/#",)), at, extent.end, columns))
        for row in chunk.batch.to_pylist():
            found[row["offset"]] = parse_payload(row["topic"], row["value"])
        at = chunk.next_offset
    return found


def _torn(original: Original, copy: Path, random: Random) -> Damage:
    newest = original.files[-1]
    return _cut_at(newest, copy, random.randint(newest.vouched_end(), newest.used_end))


def _cut(original: Original, copy: Path, random: Random) -> Damage:
    newest = original.files[-1]
    return _cut_at(newest, copy, random.randint(0, newest.used_end))


def _cut_at(newest: SegmentFile, copy: Path, position: int) -> Damage:
    behind = [record for record in newest.records if record.end > position]
    with (copy / newest.path.name).open("r+b") as file:
        file.truncate(position)
    return Damage(
        f"{newest.path.name} cut at {position} of {newest.used_end}",
        newest.path.name,
        position,
        {record.offset for record in behind if record.kind == MESSAGE},
        hits_controls=any(record.kind == CONTROL for record in behind),
    )


def _flip(original: Original, copy: Path, random: Random) -> Damage:
    sealed = random.choice([file for file in original.files if file.sealed])
    data = bytearray((copy / sealed.path.name).read_bytes())
    first = random.randrange(len(data))
    end = min(first + random.randint(1, FLIPPED_BYTES_MAXIMUM), len(data))
    for position in range(first, end):
        data[position] ^= random.randint(1, 255)
    (copy / sealed.path.name).write_bytes(data)
    hit = [record for record in sealed.records if record.start < end and first < record.end]
    return Damage(
        f"{sealed.path.name} changed at {first} to {end} of {len(data)}",
        sealed.path.name,
        first,
        {record.offset for record in hit if record.kind == MESSAGE},
        hits_controls=any(record.kind == CONTROL for record in hit),
    )


DAMAGES = {"torn": _torn, "cut": _cut, "flip": _flip}


class Trial:
    """One damaged copy: started, read, written to, killed, started and read again."""

    def __init__(self, original: Original, copy: Path, damage: Damage, trials: Trials) -> None:
        self._original = original
        self._damage = damage
        self._trials = trials
        self._broker = BrokerProcess(copy, **SETTINGS)
        self._broker.log_file.unlink()
        self._log_directory = copy / "data" / LOG_DIRECTORY

    async def run(self) -> None:
        """Raises `AssertionError` with what is not as it has to be."""
        kind = self._trials.kind
        if kind == "flip":
            self._check_verify_names_it()
        try:
            await asyncio.to_thread(self._broker.start)
            kept = self._check_nothing_else_is_lost()
            named = f"file={self._damage.file}" in self._broker.log()
            self._trials.named += "log damaged" in self._broker.log() and named
            if not self._damage.hits_controls:
                await self._check_the_absent_session_gets(kept)
            await self._check_it_goes_on()
        finally:
            if self._broker.is_running():
                await asyncio.to_thread(self._broker.kill)

    def _check_verify_names_it(self) -> None:
        named = LogReader.open(str(self._log_directory)).verify()
        position = self._damage.position
        hits = [
            place
            for place in named
            if Path(place["file"]).name == self._damage.file
            and place["first_position"] <= position + FLIPPED_BYTES_MAXIMUM
            and position <= place["end_position"]
        ]
        assert hits, f"verify names {named}"
        assert len(named) <= 2, f"verify names {named}"

    def _check_nothing_else_is_lost(self) -> dict[int, Message]:
        """What is there now."""
        before, after = self._original.messages, stored(self._log_directory)
        lost = before.keys() - after.keys()
        more = lost - self._damage.may_lose
        assert not more, f"{len(more)} more messages are lost: {sorted(more)[:5]}"
        changed = [
            offset for offset in before.keys() & after.keys() if before[offset] != after[offset]
        ]
        assert not changed, f"other messages lie at {changed[:5]}"
        self._trials.lost += len(lost)
        if self._trials.kind == "torn":
            gone = self._original.acknowledged - set(after.values())
            assert not gone, f"{len(gone)} acknowledged messages are lost"
        return after

    async def _check_the_absent_session_gets(self, kept: dict[int, Message]) -> None:
        wanted = {message for offset, message in kept.items() if offset in self._original.messages}
        got: set[Message] = set()
        complete = asyncio.Event()

        def watch(event: Event) -> None:
            if isinstance(event, Received) and not event.retain:
                got.add(event.message)
                if wanted <= got:
                    complete.set()

        history = History(watch=watch)
        client = Client(AWAY, history, ClientOptions(receive_maximum=1_000), Random(0))
        assert await client.connect(HOST, self._broker.port), f"the session {AWAY} is lost"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWERED_WITHIN_S):
                await complete.wait()
        client.drop()
        assert wanted <= got, f"{AWAY} lacks {len(wanted - got)} of {len(wanted)}"

    async def _check_it_goes_on(self) -> None:
        """What is acknowledged now survives the next kill."""
        new = [
            Message("new", f"load/new/{number}", number, 1 + number % 2, retain=number % 3 == 0)
            for number in range(NEW_MESSAGES)
        ]
        heir = Client("heir", History(), ClientOptions(), Random(0))
        await heir.connect(HOST, self._broker.port)
        await heir.subscribe("load/new/#", 2)
        heir.drop()
        publisher = Client("new", History(), ClientOptions(), Random(0))
        await publisher.connect(HOST, self._broker.port)
        for message in new:
            publisher.publish(message)
        async with asyncio.timeout(ANSWERED_WITHIN_S):
            await publisher.idle.wait()
        publisher.drop()
        await asyncio.to_thread(self._broker.kill)
        await asyncio.to_thread(self._broker.start)
        await self._check_greeting("heir", set(new), retained=False)
        await self._check_greeting(
            "newcomer", {message for message in new if message.retain}, retained=True
        )

    async def _check_greeting(self, name: str, wanted: set[Message], *, retained: bool) -> None:
        """A session that was away, or a fresh one, gets what it is owed."""
        complete = asyncio.Event()
        got: set[Message] = set()

        def watch(event: Event) -> None:
            if isinstance(event, Received) and event.retain is retained:
                got.add(event.message)
                if wanted <= got:
                    complete.set()

        client = Client(name, History(watch=watch), ClientOptions(), Random(0))
        present = await client.connect(HOST, self._broker.port)
        assert present is not retained, f"the session {name} is lost"
        if retained:
            await client.subscribe("load/new/#", 1)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWERED_WITHIN_S):
                await complete.wait()
        client.drop()
        assert wanted <= got, f"{name} lacks {len(wanted - got)} messages acknowledged after it"
