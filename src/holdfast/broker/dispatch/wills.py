"""Wills on their way: owed here when they are due, published through the loopback.

Owns: Wills that are due and not yet appended. Never: decides when one is due (protocols.mqtt.will).

Invariants:
1. A Will on record is taken off it after the message was appended, in the same turn: a crash may
   repeat a Will, not lose it. The Will of a session that has ended has a record of its own; that
   of a session that was never on record has none.
2. At most one waits for each connection that has ended.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from holdfast.broker.dispatch.loopback import Loopback, Publication
from holdfast.protocols.mqtt.packets import Will


@dataclass(frozen=True, slots=True)
class DueWill:
    """A Will that is due, and the session whose record still has it (`None`: it has no record)."""

    will: Will
    client_identifier: str | None
    due_at_us: int


class Wills:
    """Publishes Wills that are due."""

    def __init__(self, loopback: Loopback, counts: Counter[str]) -> None:
        self._loopback = loopback
        self._counts = counts
        self._fed: list[DueWill] = []
        self._on_record: set[tuple[str, int]] = set()

    def owe(self, due: DueWill) -> None:
        """This Will is to be published. One that is on record is taken once, however often it is
        found there before it could be taken off."""
        if due.client_identifier is not None:
            key = (due.client_identifier, due.due_at_us)
            if key in self._on_record:
                return
            self._on_record.add(key)
        will = due.will
        publication = Publication(
            will.topic_name,
            will.payload,
            will.qos,
            will.retain,
            will.properties,
            fed=partial(self._fed.append, due),
        )
        self._loopback.publish(publication)
        self._counts["wills_published"] += 1

    def appended(self, take_off: Callable[[str, int, int], None], now_us: int) -> None:
        """What was fed has been appended; `take_off` removes it from its session's record."""
        if not self._fed:
            return
        fed = self._fed.copy()
        self._fed.clear()
        for due in fed:
            if due.client_identifier is not None:
                self._on_record.discard((due.client_identifier, due.due_at_us))
                take_off(due.client_identifier, due.due_at_us, now_us)
