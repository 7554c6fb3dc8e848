"""Kill one of two brokers that a bridge joins, again and again, and count at both ends.

Owns: which of them dies and when, who publishes at each end, and what is asked in the end.
Never: forgives; one lost message fails the run.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Final

from tests.equipment.checkers import (
    check_nothing_acknowledged_is_lost,
    check_nothing_is_invented,
    check_order_is_kept,
    check_qos_2_never_twice,
    check_qos_is_the_lower_one,
)
from tests.equipment.clients import Client, ClientOptions, ConnectionFailedError
from tests.equipment.history import (
    Acknowledged,
    Event,
    History,
    LifeEnded,
    Message,
    Received,
    Refused,
    Sent,
)
from tests.interop.bridge.bridged import BridgedBroker, bridge, carries
from tests.process import HOST, BrokerProcess

LIFE_S: Final = (0.05, 1.0)
"""How long both live between two kills, at least and at most: often less than it takes until the
bridge is connected."""
DEATHS: Final = (("near",), ("far",), ("far", "near"))
"""Who dies in a round: `near` has the bridge. What waits for a remote that is away is on its disk
alone when it dies too."""
BURST_MESSAGES_MAXIMUM: Final = 60
ROUND_MESSAGES: Final = 10_000
"""What may be published between two kills, at both ends together: more than there is time for."""
NO_LIMIT: Final = 0
"""A round publishes as many messages as a queue keeps by default; one round after another in which
the bridge does not come back would drop the oldest, and rightly."""
DRAINED_WITHIN_S: Final = 240.0
"""More than the longest wait between two attempts to connect."""
AGAIN_AFTER_S: Final = 0.02
KEEP_ALIVE_S: Final = 30
QUESTIONS: Final = {
    "lost": check_nothing_acknowledged_is_lost,
    "invented": check_nothing_is_invented,
    "doubled at QoS 2": check_qos_2_never_twice,
    "reordered": check_order_is_kept,
    "at the wrong QoS": check_qos_is_the_lower_one,
}


@dataclass
class Report:
    """What a run found."""

    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    acknowledged: int = 0
    delivered: int = 0
    lacking: dict[str, int] = field(default_factory=dict)
    violations: dict[str, list[str]] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Everything has arrived, and nothing was violated."""
        return not self.lacking and not any(self.violations.values())

    def text(self) -> str:
        """For people."""
        lines = [
            f"kills: {self.kills['near']} of the broker with the bridge, {self.kills['far']} of its"
            f" remote; seed {self.seed}",
            f"  sent: {self.sent}, acknowledged: {self.acknowledged}, delivered: {self.delivered}",
            *(f"  {name}: {len(found)}" for name, found in self.violations.items()),
            *(f"  {name} still lacks {count}" for name, count in self.lacking.items()),
        ]
        for name, found in self.violations.items():
            lines += [f"  {name}: {violation}" for violation in found[:5]]
        return "\n".join(lines)


async def run(
    directory: Path,
    *,
    rounds: int,
    seed: int,
    say: Callable[[str], None],
    storage: str = "FILE_NATIVE",
    drained_within_s: float = DRAINED_WITHIN_S,
) -> Report:
    """Kills one of both, or both, `rounds` times; `say` gets a line for each."""
    report = Report(seed)
    ends = await asyncio.to_thread(Ends, directory, Random(seed), storage)
    try:
        await ends.begin()
        for number in range(1, rounds + 1):
            names = await ends.live_and_kill()
            report.kills.update(names)
            told = f"{ends.sent} sent, {ends.received} received"
            say(f"round {number}/{rounds}, {' and '.join(names)}: {told}")
        report.lacking = await ends.drain(drained_within_s)
    finally:
        await ends.close()
    events = ends.history.events
    report.sent = ends.sent
    report.acknowledged = len({each.message for each in events if isinstance(each, Acknowledged)})
    report.delivered = ends.received
    report.violations = {name: ask(ends.history) for name, ask in QUESTIONS.items()}
    return report


class Ends:
    """Both brokers with their clients: what is published at one end is collected at the other."""

    def __init__(self, directory: Path, random: Random, storage: str) -> None:
        self.history = History(watch=self._watch)
        self.sent = self.received = 0
        self._random = random
        self._got: dict[str, set[Message]] = {"of-up": set(), "of-down": set()}
        self._wanted: dict[str, set[Message]] = {"of-up": set(), "of-down": set()}
        self._progress = asyncio.Event()
        self._may_publish = asyncio.Event()
        self._allowed = 0
        self._feeding = True
        self._tasks: list[asyncio.Task[None]] = []
        (directory / "far").mkdir()
        self._far = BrokerProcess(directory / "far", queue_messages_maximum=NO_LIMIT)
        self._far.start()
        joined = bridge(
            "b",
            self._far.port,
            local_subscriptions=[carries("up/#")],
            remote_subscriptions=[carries("down/#")],
        )
        self._near = BridgedBroker(
            directory / "near",
            [joined],
            bridges_storage=storage,
            queue_messages_maximum=NO_LIMIT,
        )
        self._near.start()
        self._near.wait_logged("bridge connected")
        self._brokers = {"near": self._near, "far": self._far}

    def _watch(self, event: Event) -> None:
        match event:
            case Received(subscriber=subscriber, message=message):
                self._got[subscriber].add(message)
                self.received += 1
                self._progress.set()
            case Sent(message=message):
                self._wanted[f"of-{message.topic.split('/')[0]}"].add(message)
                self.sent += 1
                if self.sent >= self._allowed:
                    self._may_publish.clear()
            case Refused(message=message):
                self._wanted[f"of-{message.topic.split('/')[0]}"].discard(message)
            case _:
                pass

    async def begin(self) -> None:
        """Collectors are subscribed, and publishing begins."""
        for broker, topic in ((self._far, "up"), (self._near, "down")):
            collector = self._client(f"of-{topic}", ClientOptions(receive_maximum=100))
            await collector.connect(HOST, broker.port)
            await collector.subscribe(f"{topic}/#", 2)
            self._start(self._stay(collector, broker))
        self._publishers = []
        for broker, topic in ((self._near, "up"), (self._far, "down")):
            for qos in (1, 2):
                publisher = self._client(f"{topic}-{qos}", ClientOptions())
                self._publishers.append(publisher)
                self._start(self._stay(publisher, broker))
                self._start(self._feed(publisher, topic, qos))

    async def live_and_kill(self) -> tuple[str, ...]:
        """Both live for a while; then one dies, or one after the other, whose names are returned,
        and they begin again."""
        names = self._random.choice(DEATHS)
        for name in names:
            self._allowed = self.sent + ROUND_MESSAGES
            self._may_publish.set()
            await asyncio.sleep(self._random.uniform(*LIFE_S))
            await asyncio.to_thread(self._brokers[name].kill)
            self.history.add(LifeEnded())
        for name in names:
            await asyncio.to_thread(self._brokers[name].start)
        return names

    async def drain(self, within_s: float) -> dict[str, int]:
        """Publishing ends, and everything arrives; returns how many each collector still lacks."""
        self._feeding = False
        self._may_publish.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                for publisher in self._publishers:
                    await publisher.idle.wait()
                while self._are_behind() or self._lacking():
                    self._progress.clear()
                    await self._progress.wait()
        return self._lacking()

    def _are_behind(self) -> bool:
        """True if not even the numbers agree; asked for each that comes, out of a million."""
        return any(len(self._wanted[name]) > len(got) for name, got in self._got.items())

    def _lacking(self) -> dict[str, int]:
        lacking = {name: len(self._wanted[name] - got) for name, got in self._got.items()}
        return {name: count for name, count in lacking.items() if count}

    async def close(self) -> None:
        """Ends clients and brokers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for broker in self._brokers.values():
            if broker.is_running():
                await asyncio.to_thread(broker.stop)

    def _client(self, name: str, options: ClientOptions) -> Client:
        options = replace(options, keep_alive_s=KEEP_ALIVE_S)
        return Client(name, self.history, options, Random(self._random.getrandbits(63)))

    async def _stay(self, client: Client, broker: BrokerProcess) -> None:
        while True:
            if client.lost.is_set():
                try:
                    await client.connect(HOST, broker.port)
                except ConnectionFailedError:
                    await asyncio.sleep(AGAIN_AFTER_S)
                    continue
            await client.lost.wait()

    async def _feed(self, client: Client, topic: str, qos: int) -> None:
        """One burst after another; the next begins when all of the last is acknowledged."""
        sequence = 0
        while self._feeding:
            await client.idle.wait()
            await self._may_publish.wait()
            if not self._feeding:
                return
            for _ in range(self._random.randint(1, BURST_MESSAGES_MAXIMUM)):
                sequence += 1
                level = self._random.choice(("x", "y"))
                client.publish(
                    Message(client.name, f"{topic}/{client.name}/{level}", sequence, qos)
                )
            await asyncio.sleep(self._random.uniform(0, 0.01))

    def _start(self, coroutine: Coroutine[None, None, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(coroutine))
