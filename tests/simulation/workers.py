"""Members of a group that work at their own pace, in virtual time, and the judge of their order.

Owns: what each received and acknowledged, in order. Never: knows how the broker chooses.
"""

import asyncio
import random
from collections import defaultdict
from dataclasses import dataclass, field

from tests.simulation.peer import Peer, Stand

POLL_S = 0.02


@dataclass
class Book:
    """What the members of one group have received, told by the payload: key, colon, number."""

    done: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Numbers that were acknowledged, by key."""
    violations: list[str] = field(default_factory=list)
    count: int = 0

    def receive(self, worker: "Worker", key: str, number: int) -> None:
        """In order means: whatever came before of the key is done with, or at the same member and
        was given to it before."""
        self.count += 1
        here = [open_number for open_key, open_number in worker.open.values() if open_key == key]
        missing = set(range(number)) - self.done[key] - set(here)
        if missing:
            self.violations.append(f"{worker.name} got {key}:{number} before {sorted(missing)}")
        if worker.last[key] >= number:
            self.violations.append(f"{worker.name} got {key}:{number} after {worker.last[key]}")
        worker.last[key] = number


class Worker:
    """A member that acknowledges what it has, out of order and now and then."""

    def __init__(self, name: str, peer: Peer, book: Book, seed: int) -> None:
        self.name = name
        self.open: dict[int, tuple[str, int]] = {}
        """What it has not acknowledged, by packet identifier."""
        self.last: dict[str, int] = defaultdict(lambda: -1)
        self.stalls = False
        """It goes on receiving, and acknowledges nothing."""
        self.count = 0
        self._peer = peer
        self._book = book
        self._random = random.Random(seed)
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def leave(self, stand: Stand, topic_filter: str | None = None) -> None:
        """Ends its connection, by UNSUBSCRIBE and DISCONNECT if there is a filter."""
        if topic_filter is not None:
            self._peer.send("unsubscribe", packet_identifier=9, topic_filters=[topic_filter])
            await asyncio.sleep(1)
            self._peer.send("disconnect", reason_code=0)
        self._task.cancel()
        self._peer.cut()
        await asyncio.sleep(0.5)

    async def _work(self) -> None:
        seen = 0
        while True:
            await asyncio.sleep(POLL_S)
            publishes = self._peer.of_kind("publish")
            for fields in publishes[seen:]:
                key, number = fields["payload"].decode().split(":")
                self._book.receive(self, key, int(number))
                self.open[fields["packet_identifier"]] = (key, int(number))
            self.count += len(publishes) - seen
            seen = len(publishes)
            if not self.stalls:
                self._acknowledge()

    def _acknowledge(self) -> None:
        for identifier in list(self.open):
            if self._random.random() < 0.2:
                key, number = self.open.pop(identifier)
                self._book.done[key].add(number)
                self._peer.acknowledge("puback", identifier)


async def hire(
    stand: Stand, name: str, book: Book, topic_filter: str, *, seed: int = 0, **properties: int
) -> Worker:
    """A worker that has subscribed."""
    peer = await stand.connect(name, **properties)
    worker = Worker(name, peer, book, seed)
    await stand.subscribe(peer, topic_filter, 1)
    return worker
