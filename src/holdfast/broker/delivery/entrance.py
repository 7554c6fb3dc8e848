"""Messages that enter without a connection: Wills, `$SYS`, and what an administrator sends.

They are handed to the batch of a turn as values, behind what connections have brought, and take
the way of all messages from there (routes, log, retained, expiry). Whatever publishes from inside
enters here; it knows no protocol.

Owns: publications that have not entered, or are not yet answered. Never: decides what is published.

Invariants:
1. `appended` of a publication is called once, in the turn in which the log takes or refuses it.
2. `answered` is called once: at QoS 1 and 2 when the message is durable or refused.
3. At most IN_FLIGHT_MAXIMUM are unanswered at once; the others wait here, and whoever publishes
   bounds their number.

Flow: wills, admin -> here -> Arrivals.put -> ... -> Arrivals.outcomes, durable -> here.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from holdfast.broker.counts import Counts, Event
from holdfast.broker.delivery.parties import BROKER_PARTY
from holdfast.broker.store.durability import Waiting
from holdfast.kernel import Arrivals, BusyError

IN_FLIGHT_MAXIMUM: Final = 1_024
"""Messages at once whose answer waits for the disk: when ten thousand connections break, their
Wills do not take all the room that the log has for what is not yet written."""


class NotTaken(Enum):
    """Why a message was not taken."""

    NO_ROOM = "the log is full"


def _nothing(_not_taken: NotTaken | None) -> None:
    pass


class Publisher(NamedTuple):
    """As whose a message counts, whoever sends it."""

    party: int
    key_slot: int


ITSELF: Final = Publisher(BROKER_PARTY, 0)


@dataclass(frozen=True, slots=True)
class Publication:
    """A message to be published, and who wants to know about it."""

    topic_name: str
    payload: bytes
    qos: int
    retain: bool
    properties: dict[str, Any] = field(default_factory=dict)
    publisher: Publisher = ITSELF
    appended: Callable[[NotTaken | None], None] = _nothing
    """The log has it, or refused it, in this turn."""
    answered: Callable[[NotTaken | None], None] = _nothing
    """It is durable, or refused. At QoS 0 nothing is promised: it is on its way."""


class Entrance:
    """Where publications wait until they enter, and until they are answered."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self.publications: deque[Publication] = deque()
        """What waits to enter."""
        self._entered: list[Publication] = []
        """In this turn, in their order."""
        self.unanswered: Waiting[Publication] = Waiting()
        """What waits for the disk."""
        self.published = 0
        """How many messages have entered."""

    def publish(self, publication: Publication) -> None:
        """It enters in the next turn with room for it; ask for one."""
        self.publications.append(publication)

    def waiting(self) -> bool:
        """True if there is something that can enter now."""
        return bool(self.publications) and len(self.unanswered) < IN_FLIGHT_MAXIMUM

    def is_empty(self) -> bool:
        """True if everything has entered."""
        return not self.publications

    def enter(self, arrivals: Arrivals) -> None:
        """Puts what waits behind what connections have brought."""
        while self.publications and self._has_room():
            publication = self.publications[0]
            try:
                arrivals.put(
                    publication.topic_name.encode(),
                    publication.payload,
                    qos=publication.qos,
                    retain=publication.retain,
                    properties=publication.properties,
                    party=publication.publisher.party,
                    key_slot=publication.publisher.key_slot,
                )
            except BusyError:
                return
            self._entered.append(self.publications.popleft())

    def appended(self, arrivals: Arrivals) -> None:
        """The log has taken what entered, or refused it."""
        if not self._entered:
            return
        entered, self._entered = self._entered, []
        self.published += len(entered)
        for publication, (is_taken, position) in zip(entered, arrivals.outcomes(), strict=True):
            not_taken = None if is_taken or publication.qos == 0 else NotTaken.NO_ROOM
            publication.appended(not_taken)
            if not_taken is not None:
                self._counts.add(Event.OWN_PUBLISHES_REFUSED)
                publication.answered(not_taken)
            elif publication.qos > 0 and position is not None:
                self.unanswered.add(position, publication)
            else:
                publication.answered(None)

    def durable(self, durable_position: int) -> None:
        """The log is durable up to here."""
        for publication in self.unanswered.take(durable_position):
            publication.answered(None)

    def _has_room(self) -> bool:
        return len(self.unanswered) + len(self._entered) < IN_FLIGHT_MAXIMUM
