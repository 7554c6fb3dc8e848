"""What has been published and what has arrived, in memory that does not grow.

Owns: per publisher how far it has got, and per subscriber which of that it has.
Never: keeps an event; a soak sees millions.
"""

import asyncio
from collections import defaultdict

from holdfast.kernel import RangeSet
from tests.equipment.history import Acknowledged, Broken, Event, History, Received, SessionLost

SHOWN_MAXIMUM = 20


class Tally(History):
    """A history that remembers sums. A publisher numbers its messages from 1."""

    def __init__(self, watched: dict[str, str]) -> None:
        """`watched` gives the party of each client whose messages count: of a group's members, the
        group."""
        super().__init__()
        self.arrived = 0
        self.acknowledged = 0
        self.wills = 0
        self.faults: list[str] = []
        self.progress = asyncio.Event()
        """Set whenever something has arrived."""
        self._watched = watched
        self._published: dict[str, int] = defaultdict(int)
        self._got: dict[tuple[str, str], RangeSet] = defaultdict(RangeSet)

    def add(self, event: Event) -> None:
        """Adds it up."""
        match event:
            case Acknowledged(message):
                self.acknowledged += 1
            case Received(subscriber, message, qos, _, retain):
                self.arrived += 1
                self.wills += message.topic.startswith("will/")
                party = self._watched.get(subscriber)
                if party is not None and not retain and message.publisher in self._published:
                    self._receive(party, message.publisher, message.sequence, qos)
            case SessionLost(client):
                self._fault(f"{client}: session lost")
            case Broken(client, what):
                self._fault(f"{client}: {what}")
            case _:
                pass

    def published(self, publisher: str, sequence: int) -> None:
        """Its messages count up to this number."""
        self._published[publisher] = sequence

    def _receive(self, party: str, publisher: str, sequence: int, qos: int) -> None:
        got = self._got[party, publisher]
        if qos == 2 and got.contains(sequence):
            self._fault(f"{party} got number {sequence} of {publisher} twice at QoS 2")
        got.insert(sequence, sequence + 1)
        self.progress.set()

    def _fault(self, what: str) -> None:
        if len(self.faults) < SHOWN_MAXIMUM:
            self.faults.append(what)

    def lacking(self) -> dict[str, int]:
        """How many messages each party lacks; those that lack none are left out."""
        lacking: dict[str, int] = defaultdict(int)
        for party in set(self._watched.values()):
            for publisher, last in self._published.items():
                gaps = self._got[party, publisher].gaps(1, last + 1)
                lacking[party] += sum(end - start for start, end in gaps)
        return {party: count for party, count in lacking.items() if count}
