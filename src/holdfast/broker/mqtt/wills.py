"""Wills on their way: owed here when they are due, published through the entrance.

Owns: Wills that are due and not yet in the log. Never: decides when one is due
(protocols.mqtt.will).

Invariants:
1. A Will is taken off its record after the message was appended, in the same turn: a crash may
   repeat a Will, not lose it. The Will of a session that has ended, or that ends with its
   connection, has a record of its own.
2. At most one waits for each connection that has ended.
3. A Will that the log has refused stays on its record, or here, and is tried again by the sweep; so
   do those that come due after it, so that they come in order.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from holdfast.broker.counts import Counts, Event
from holdfast.broker.delivery.entrance import Entrance, NotTaken, Publication, Publisher
from holdfast.protocols.mqtt.packets import Will

KEPT_MAXIMUM: Final = 10_000
"""Wills of sessions without a record that wait in memory until a full disk has room: those of a
fleet. Further ones are counted, and published after the next start."""
NEAR_MAXIMUM: Final = 1_000
"""Wills on their way beyond which whoever can wait owes no more."""


@dataclass(frozen=True, slots=True)
class DueWill:
    """A Will that is due, and whose it is."""

    will: Will
    client_identifier: str
    due_at_us: int
    publisher: Publisher
    """Its client: the Will is a message of its own, which No Local keeps from it [MQTT-3.8.3-3]."""
    number: int | None = None
    """By which it was put on record when its client connected, if that was before it was due."""

    @property
    def key(self) -> tuple[str, int]:
        """What its record is found by."""
        return self.client_identifier, self.due_at_us if self.number is None else self.number


class Wills:
    """Publishes Wills that are due."""

    def __init__(self, entrance: Entrance, counts: Counts) -> None:
        self._entrance = entrance
        self._counts = counts
        self.taken: list[DueWill] = []
        """Those that the log took in this turn."""
        self._is_refused = False
        """The log has refused a Will since the last sweep."""
        self._kept: list[DueWill] = []
        """Refused ones that the sweep does not find on record."""
        self._on_record: set[tuple[str, int]] = set()

    def owe(self, due: DueWill) -> None:
        """This Will is to be published. One that is on record is taken once, however often it is
        found there before it could be taken off."""
        if due.key in self._on_record:
            return
        self._on_record.add(due.key)
        if self._is_refused and due.will.qos > 0:
            self._keep(due)
            return
        will = due.will
        publication = Publication(
            will.topic_name,
            will.payload,
            will.qos,
            will.retain,
            will.properties,
            due.publisher,
            appended=partial(self._appended, due),
        )
        self._entrance.publish(publication)

    def appended(self, take_off: Callable[[str, int, int], None], now_us: int) -> None:
        """`take_off` removes what the log took in this turn from its session's record."""
        taken, self.taken = self.taken, []
        for due in taken:
            self._counts.add(Event.WILLS_PUBLISHED)
            self._on_record.discard(due.key)
            take_off(*due.key, now_us)

    def sweep(self, on_record: Iterable[DueWill]) -> None:
        """Tries again what the log has refused; `on_record` are those on record that are due."""
        kept, self._kept = self._kept, []
        self._on_record.difference_update(due.key for due in kept)
        self._is_refused = False
        for due in sorted((*kept, *on_record), key=lambda due: due.due_at_us):
            self.owe(due)

    def is_near(self) -> bool:
        """True if few are on their way."""
        return len(self._on_record) < NEAR_MAXIMUM

    def _appended(self, due: DueWill, not_taken: NotTaken | None) -> None:
        if not_taken is None:
            self.taken.append(due)
        else:
            self._is_refused = True
            self._keep(due)

    def _keep(self, due: DueWill) -> None:
        if due.number is None:
            self._on_record.discard(due.key)
        elif len(self._kept) < KEPT_MAXIMUM:
            self._kept.append(due)
        else:
            self._on_record.discard(due.key)
            self._counts.add(Event.WILLS_LOST)
