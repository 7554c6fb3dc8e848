"""What becomes of a batch: parsed, committed in one transaction, and each message's end.

Owns: a batch while it is worked on, on one thread, and how far it has come. Never: acknowledges,
publishes or waits; a sink that is away ends a call, and the next call goes on where it stopped.

Invariants:
1. A message ends as committed only after the sink has committed all its rows.
2. What came again is counted in the sink before it is worked on, and what was counted twice or more
   is worked on alone, so that a message that ends the process is found and no neighbour is blamed.
3. Rows that the sink refuses are found by halving; nothing else of the batch waits for them.

Flow: gathering -> here -> session, or dead letters.
"""

import hashlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from holdfast.kernel import LIMITS
from holdfast.processors.message import Message
from holdfast.processors.processor import Processor, RejectedError
from holdfast.processors.sink import RowsRefusedError, Sink
from holdfast.processors.table import IdentifiedRow

SUSPICIOUS: Final = 2
"""Counted so often, a message may be what ended the process. One that came again once may have been
open by chance when it ended."""
REASON_CHARACTERS_MAXIMUM: Final = 300
"""What an exception says goes to a user property and a log line; it may quote a whole payload."""


class Ending(Enum):
    """What became of a message."""

    COMMITTED = "committed"
    REJECTED = "rejected"
    """It is a dead letter."""
    FAILED = "failed"
    """It is to be tried again."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of a message, with why and after how many attempts."""

    ending: Ending
    reason: str = ""
    attempts: int = 1
    is_said: bool = False
    """The reason is in the processor's own words, or in ours."""

    @property
    def logged(self) -> str:
        """The reason as a log may have it: what an exception says may quote the payload, its kind
        does not."""
        return self.reason if self.is_said else self.reason.partition(":")[0]


COMMITTED: Final = End(Ending.COMMITTED)


class Batch:
    """Messages that are worked on together, and how far that has come."""

    def __init__(self, messages: Sequence[Message], *, singly: bool = False) -> None:
        self.messages = messages
        self.singly = singly
        """Each in a transaction of its own: one of them has failed before."""
        self.identities: list[str] = []
        self.ends: list[End | None] = [None] * len(messages)
        self.written = 0
        self.repeats = 0
        self.attempts: dict[int, int] = {}
        """By a message's place: what was counted for the attempt that is being made."""
        self.uncounted: set[int] = set()
        """Places of messages that are counted when it is their turn."""
        self.groups: deque[list[int]] | None = None
        """Places of what is committed together, and has no end yet."""


class Work:
    """One processor and its sink."""

    def __init__(self, processor: Processor, sink: Sink, maximum_attempts: int) -> None:
        self._processor = processor
        self._table = processor.table
        self._sink = sink
        self._maximum_attempts = maximum_attempts
        self._was_opened = False

    def open(self) -> None:
        """Makes the table be there; raises what `Sink.open` does."""
        self._sink.open(self._table)
        self._was_opened = True

    def close(self) -> None:
        """Nothing of the sink is open afterwards. One that never opened has nothing to close, and
        may not know how."""
        if self._was_opened:
            self._sink.close()

    def forget(self, identities: Sequence[str]) -> None:
        """They are dead letters: what was counted of them is gone."""
        self._sink.forget_attempts(self._table, identities)

    def do(self, batch: Batch) -> None:
        """Afterwards each message of the batch has an end. Raises what a sink raises for all of a
        batch; called again with it, it does what is left."""
        if not batch.identities:
            batch.identities = [self._identity(message) for message in batch.messages]
        if batch.groups is None:
            batch.groups = self._plan(batch)
        while batch.groups:
            self._settle(batch, batch.groups)

    def _identity(self, message: Message) -> str:
        if message.identity is not None:
            return message.identity
        try:
            named = self._processor.identity(message)
        except Exception:  # noqa: BLE001 - what cannot be read has no name of its own.
            named = None
        if isinstance(named, str) and _is_text(named):
            return named
        digest = hashlib.sha256(message.topic.encode("utf-8", "surrogatepass") + b"\0")
        digest.update(message.payload)
        return digest.hexdigest()

    def _plan(self, batch: Batch) -> deque[list[int]]:
        """What is worked on together: all but what is suspicious."""
        again = [place for place, each in enumerate(batch.messages) if each.redelivered]
        if again and not batch.attempts:
            names = list(dict.fromkeys(batch.identities[place] for place in again))
            counted = self._sink.count_attempts(self._table, names)
            batch.attempts = {place: counted[batch.identities[place]] for place in again}
        suspects = [place for place, count in batch.attempts.items() if count >= SUSPICIOUS]
        tried = [place for place in suspects if batch.attempts[place] > self._maximum_attempts]
        for place in tried:
            made = batch.attempts[place] - 1
            reason = "the process ended while it was worked on"
            batch.ends[place] = End(Ending.REJECTED, reason, made, is_said=True)
        suspects = [place for place in suspects if batch.ends[place] is None]
        # Whoever stands behind one that ends the process is counted with it each time. So the
        # others begin anew, and are counted when it is their turn.
        if len(suspects) > 1:
            behind = [batch.identities[place] for place in suspects[1:]]
            self._sink.forget_attempts(self._table, behind)
            batch.uncounted = set(suspects[1:])
        alone = {*suspects, *tried}
        rest = [place for place in range(len(batch.messages)) if place not in alone]
        together = [[place] for place in rest] if batch.singly else [rest] if rest else []
        return deque([*together, *([place] for place in suspects)])

    def _settle(self, batch: Batch, groups: deque[list[int]]) -> None:
        """Gives the first group its ends, or puts its halves in its place."""
        places = groups[0]
        if len(places) == 1 and places[0] in batch.uncounted:
            self._count(batch, places[0])
            batch.uncounted.discard(places[0])
        rows: list[IdentifiedRow] = []
        read: list[int] = []
        for place in places:
            found = self._parse(batch, place)
            if found is not None:
                rows += found
                read.append(place)
        if rows:
            try:
                committed = self._sink.commit(self._table, rows)
            except RowsRefusedError as error:
                groups.popleft()
                if len(read) > 1:
                    groups.extendleft((read[len(read) // 2 :], read[: len(read) // 2]))
                else:
                    self._fail(batch, read[0], _sentence(error))
                return
            batch.written += committed.written
            batch.repeats += committed.repeats
        with_rows = {row.message_identity for row in rows}
        names = (batch.identities[place] for place in read if place in batch.attempts)
        if without := [name for name in names if name not in with_rows]:
            self._sink.forget_attempts(self._table, without)
        for place in read:
            batch.ends[place] = COMMITTED
        groups.popleft()

    def _parse(self, batch: Batch, place: int) -> list[IdentifiedRow] | None:
        """The rows of a message; None if it has an end without any."""
        if batch.ends[place] is not None:
            return None
        identity = batch.identities[place]
        try:
            rows = list(self._processor.parse(batch.messages[place]))
            _check_rows(rows)
            return [IdentifiedRow(identity, number, row) for number, row in enumerate(rows)]
        except RejectedError as error:
            attempts = batch.attempts.get(place, 1)
            reason = _shortened(str(error))
            batch.ends[place] = End(Ending.REJECTED, reason, attempts, is_said=True)
        except Exception as error:  # noqa: BLE001 - one message's failure is not another's.
            self._fail(batch, place, _sentence(error))
        return None

    def _fail(self, batch: Batch, place: int, reason: str) -> None:
        if place not in batch.attempts:
            self._count(batch, place)
        attempts = batch.attempts[place]
        ending = Ending.REJECTED if attempts >= self._maximum_attempts else Ending.FAILED
        batch.ends[place] = End(ending, reason, attempts)

    def _count(self, batch: Batch, place: int) -> None:
        identity = batch.identities[place]
        batch.attempts[place] = self._sink.count_attempts(self._table, (identity,))[identity]


def _is_text(named: str) -> bool:
    """MQTT has room for it, as a dead letter's property, and each database."""
    try:
        return "\0" not in named and len(named.encode()) <= LIMITS["field_bytes_maximum"]
    except UnicodeEncodeError:
        return False


def _check_rows(rows: Sequence[object]) -> None:
    """Each maps columns to values: no sink has to expect what a payload put in a row's place."""
    for kind in set(map(type, rows)):
        if not issubclass(kind, Mapping):
            raise TypeError(f"a row is a mapping of columns to values, not {kind.__name__}")


def _sentence(error: Exception) -> str:
    return _shortened(f"{type(error).__name__}: {error}")


def _shortened(text: str) -> str:
    """Without what a user property cannot carry."""
    clean = "".join(mark if mark.isprintable() else " " for mark in text)
    return clean[:REASON_CHARACTERS_MAXIMUM]
