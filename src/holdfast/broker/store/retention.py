"""When old segments go, and what has to outlive them.

Owns: when retention is due; the order of the steps of a run; and the list of cursors whose unread
messages are carried along: not those of sessions that have expired, and of devices that are away
none that are too old for them. Never: removes or copies a byte; the log does.

A run is a chore. The log goes on between its pieces, and what it has found needed stays enough,
because of a range that is sealed nobody comes to need more: marks only grow, new subscriptions and
queues begin at the log's end, and re-drives begin behind what is going (`Log.whole_from`). What
ADR 0015 argues kind by kind.

Invariants:
1. At most one run is on its way.
2. What a queue loses is on record, and durable, before any segment goes.
3. A queue at rest passes over what it has lost, from the same moment: what was told as lost is
   neither delivered nor told again, whatever becomes of the run.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from holdfast.broker.chores import PIECE_EFFORT, Pieces
from holdfast.broker.store.beside import Beside
from holdfast.broker.store.checkpoints import Checkpoints
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.footers import Footers
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.queue_retention import KeptFrom, QueueSpan
from holdfast.broker.store.tables import (
    Table,
    parse_queue,
    parse_queue_fields,
    parse_rules,
    parse_value,
)
from holdfast.broker.store.view import QueueRow, View
from holdfast.broker.world import Commits
from holdfast.core.config import Config
from holdfast.core.loss_reason import LossReason
from holdfast.core.quota import quota_of
from holdfast.core.subscription import Rules, keeping
from holdfast.kernel import DiskError, Log

log = logging.getLogger(__name__)

AGE_PERIOD_US: Final = 600_000_000
"""How often the age of the oldest segment is looked at: messages are kept for days, so ten minutes
more or less are nothing."""
SIZE_PERIOD_US: Final = 1_000_000
"""How often the size of the log is looked at: a disk that writes 200 MB a second adds no
more than that."""
THIN_PERIOD_US: Final = 60_000_000
"""How often carry segments are looked at, at most: every queue is asked for that."""
THIN_SHARE: Final = 20
"""And not before this many times as long has passed as the last look took."""
NOTHING: Final = 2**64 - 1
"""From here on messages are kept for a session that has expired and is still to be cleared away."""
EVERYTHING: Final = 2**64 - 1
"""Messages that a queue without a limit keeps."""
PAGE: Final = 500
"""Queues that are read in one piece: each costs some 2 us, with its topics."""
LOOKED_AT: Final = 2_000
"""Queues that the view looks at in one piece, where it knows which topics go: some 0.6 us each."""
GOING_TOLD: Final = 1_000
"""Topics that the view is told: more would have to be looked up by it for each page."""
ASKED: Final = 100
"""Those of them that are asked in one piece: each costs some 10 us to parse and ask."""
GATHERED_BYTES_MAXIMUM: Final = 524_288
"""Bytes that a run has written anew and that are not durable: a commit that has to write more of
them keeps all that wait for it (of 4 MiB for 25 to 40 ms)."""


class KeptQueues(Protocol):
    """What a run asks of whoever holds the queues."""

    def are_listed(self) -> bool:
        """True once all of them are in the view, however former versions wrote them down."""

    def mark(self, party: int) -> int | None:
        """Below which offset an attached queue has acknowledged all; `None` for one at rest."""

    def is_there(self, party: int) -> bool:
        """False if it has ended."""

    def has_room(self) -> bool:
        """True if as many losses as a page may have can be written in this turn."""

    def lose(
        self, owner: str, party: int, reason: LossReason, lost: tuple[int, int, int], now_us: int
    ) -> None:
        """Appends a loss (first offset, end, count)."""


@dataclass(slots=True)
class Outcome:
    """What a run has done."""

    segments: int = 0
    records: int = 0


@dataclass(frozen=True, slots=True)
class _Asked:
    """Whose cursor it is, and why it loses what it loses."""

    cursor: dict[str, Any]
    owner: str
    aged_until: int
    """What lies before is too old for it."""
    has_ended: bool
    rules: Rules
    """What it leaves out, of which the log does not know."""

    def count(self, inquiry: Inquiry, first: int, end: int) -> Pieces[int]:
        """How many messages wait for it between two offsets."""
        wanted, party = self.cursor["subscriptions"], self.cursor["party"]
        return inquiry.count(wanted, party, first, end, rules=self.rules)

    def reason(self, end: int) -> LossReason:
        """Why everything before `end` is lost."""
        if self.has_ended:
            return LossReason.SESSION_ENDED
        return LossReason.TTL if end <= self.aged_until else LossReason.RETENTION


class _Behind(NamedTuple):
    """A queue that has not seen all of what goes."""

    row: QueueRow
    fields: dict[str, Any]
    """Of its record."""
    mark: int
    is_attached: bool


class Retention:
    """Lets the log forget what is past its time."""

    def __init__(
        self,
        config: Config,
        kernel_log: Log,
        records: ControlRecords,
        checkpoints: Checkpoints,
        commits: Commits,
        beside: Beside,
        footers: Footers,
        now_us: Callable[[], int],
    ) -> None:
        self._config = config
        self._log = kernel_log
        self._records = records
        self._checkpoints = checkpoints
        self._commits = commits
        self._beside = beside
        self._footers = footers
        self._now_us = now_us
        self._kept = KeptFrom(kernel_log)
        self._age_at_us = now_us() + AGE_PERIOD_US
        self._size_at_us = now_us() + SIZE_PERIOD_US
        self._thin_at_us = 0
        self._is_running = False
        self._later: list[tuple[_Asked, int, int]] = []
        """Attached queues that lose something: first and end offset of what."""

    def reconfigure(self, config: Config) -> None:
        """Keeps for this long, and this much, from now on; the next sweep looks at both."""
        self._config = config
        self._age_at_us = self._size_at_us = 0

    def due(self, now_us: int) -> bool:
        """True if it is time for `run`."""
        if self._is_running:
            return False
        if now_us >= self._age_at_us:
            self._age_at_us = now_us + AGE_PERIOD_US
            return True
        if now_us >= self._size_at_us:
            self._size_at_us = now_us + SIZE_PERIOD_US
            return self._log.statistics()["bytes"] > self._config.retention_bytes
        return False

    def run(self, queues: KeptQueues) -> Pieces[Outcome]:
        """Removes what is past retention; else looks at segments of what was carried before."""
        self._is_running = True
        if not queues.are_listed():
            yield queues.are_listed
        began_us = self._now_us()
        try:
            if self._log.begin_retention(
                maximum_age_us=self._config.retention_age_s * 1_000_000,
                maximum_bytes=self._config.retention_bytes,
                now_us=began_us,
            ):
                outcome = yield from self._forget(queues)
                # There may be more of it.
                self._age_at_us = began_us
                return outcome
            if began_us < self._thin_at_us or not self._log.begin_thinning(began_us):
                return Outcome()
            outcome = yield from self._forget(queues)
            took_us = self._now_us() - began_us
            self._thin_at_us = self._now_us() + max(THIN_PERIOD_US, THIN_SHARE * took_us)
            return outcome
        except DiskError as error:
            if not error.full:
                raise
            # What must be kept has to be copied first, and there is no room for that yet.
            log.warning("retention waits for room on the disk")
            return Outcome()
        finally:
            self._log.abandon_retention()
            self._later.clear()
            self._is_running = False

    def _forget(self, queues: KeptQueues) -> Pieces[Outcome]:
        """All steps of one run."""
        # A queue that the view does not know yet would not be asked. Whoever comes later needs
        # nothing of this, and what is written anew below the view has: it may be behind with that.
        known = self._records.last_ahead(Table.QUEUES)
        # Nobody says any more what was removed, once the record that says so has gone.
        going = self._log.whole_controls_from() - 1
        survey = self._log.survey_job()
        assert survey is not None, "a run has begun"
        yield from self._beside.run(survey)
        self._log.finish(survey)
        yield lambda: self._records.has_all_up_to(going)
        yield from self._renew()
        yield lambda: self._records.has_all_up_to(known)
        view = self._records.refresh()
        for rows in self._pages(view):
            concerned = self._concerned(rows)
            for first in range(0, max(len(concerned), 1), ASKED):
                asked = yield from self._behind(queues, concerned[first : first + ASKED])
                yield from self._visit(queues, asked)
                yield None
        while not self._log.find_piece(PIECE_EFFORT):
            yield None
        return (yield from self._carry(queues))

    def _pages(self, view: View) -> Iterator[list[QueueRow]]:
        """All queues that may read something of what goes, those of groups first."""
        yield from _paged(view, shared=True)
        going = self._log.going_names(GOING_TOLD)
        if going is None:
            yield from _paged(view, shared=False)
            return
        # Most queues of a fleet read one topic, of their own: the view leaves out those that read
        # none of these, three times as fast as they could be read here.
        topics, after = json.dumps(going), 0
        while True:
            rows, end = view.queues_reading(topics, after, LOOKED_AT)
            if end is None:
                return
            after = end
            for first in range(0, max(len(rows), 1), PAGE):
                yield rows[first : first + PAGE]

    def _renew(self) -> Pieces[None]:
        """What the log would lose otherwise is written anew, and a checkpoint stands behind it."""
        while not self._log.renew_piece(PIECE_EFFORT, self._now_us()):
            self._commits.wake()
            yield lambda: self._log.uncommitted_bytes() < GATHERED_BYTES_MAXIMUM
            # A million names fill segments faster than a sweep looks for them.
            yield from self._footers.catch_up()
        yield from self._durable()
        # A nearly full disk has room for it as a rule. Without it a crash right behind the removal
        # brings back what was deleted there. One that was on its way may stand before the range.
        while not (
            self._log.retention_has_checkpoint() or self._checkpoints.waits_for_room(self._now_us())
        ):
            yield from self._checkpoints.write(self._now_us)
        while not self._log.retention_may_go_on():
            yield from self._checkpoints.write_now(self._now_us)

    def _visit(self, queues: KeptQueues, asked: Iterable[_Asked]) -> Pieces[None]:
        """These are asked what they have not seen; what they lose is put on record."""
        by_party = {item.cursor["party"]: item for item in asked}
        self._log.visit([item.cursor for item in by_party.values()])
        done = not by_party
        while not done:
            if not queues.has_room():
                yield queues.has_room
            losses, done = self._log.visit_piece(PIECE_EFFORT)
            for party, first, end, count in losses:
                if queues.mark(party) is None:
                    lost = by_party[party]
                    if lost.rules:
                        count = yield from lost.count(Inquiry(self._log), first, end)
                    self._lose(queues, lost, (first, end, count))
                else:
                    self._later.append((by_party[party], first, end))
            if not done:
                yield None

    def _lose(self, queues: KeptQueues, asked: _Asked, lost: tuple[int, int, int]) -> None:
        """A queue at rest loses this, and passes over it; one that has just ended has told what it
        lost."""
        if not queues.is_there(asked.cursor["party"]):
            return
        now_us, party, (first, end, count) = self._now_us(), asked.cursor["party"], lost
        if count:
            queues.lose(asked.owner, party, asked.reason(end), lost, now_us)
        self._log.give_up(party, first, end, now_us)

    def _carry(self, queues: KeptQueues) -> Pieces[Outcome]:
        """What was found needed is copied, and takes the place of the segments."""
        copy = self._log.carry_job(self._now_us())
        assert copy is not None, "all has been looked for"
        yield from self._beside.run(copy)
        _, _, naming = self._log.finish(copy)
        if naming is None:
            return Outcome()
        yield from self._tell_attached(queues)
        # After a crash nobody needs again what was not copied.
        yield from self._durable()
        has_checkpoint = self._log.retention_has_checkpoint()
        yield from self._beside.run(naming)
        segments, records, removal = self._log.finish(naming)
        assert removal is not None, "segments have gone"
        yield from self._beside.run(removal)
        self._log.finish(removal)
        if not has_checkpoint:
            # There is room for it now, and what went tells nobody any more which retained messages
            # it deleted.
            yield from self._checkpoints.write_now(self._now_us)
        return Outcome(segments, records)

    def _tell_attached(self, queues: KeptQueues) -> Pieces[None]:
        """Queues that are attached read on while the copy is made, so what they lose is told when
        it is about to go."""
        for asked, first, end in self._later:
            yield queues.has_room
            party, now_us = asked.cursor["party"], self._now_us()
            attached = queues.mark(party)
            mark = self._log.marks([party])[0] if attached is None else attached
            first = max(first, mark or 0)
            count = yield from asked.count(Inquiry(self._log), first, end)
            if not count:
                continue
            if attached is None:
                self._lose(queues, asked, (first, end, count))
            else:
                queues.lose(asked.owner, party, asked.reason(end), (first, end, count), now_us)

    def _durable(self) -> Pieces[None]:
        """Everything so far is durable."""
        end = self._log.end_position()
        self._commits.wake()
        yield lambda: self._log.durable_position() >= end

    def _concerned(self, rows: list[QueueRow]) -> list[QueueRow]:
        """Those for which there may be something in what goes. The commands of a fleet's devices
        have a topic each, of which few were published to; the others need not be asked."""
        read = [row.topics for row in rows]
        topics = [topic for some in read if some is not None for topic in some]
        going = {topics[place] for place in self._log.going(topics)}
        return [
            row
            for row, some in zip(rows, read, strict=True)
            if some is None or not going.isdisjoint(some)
        ]

    def _behind(self, queues: KeptQueues, rows: list[QueueRow]) -> Pieces[list[_Asked]]:
        """The cursors of those that have not seen all of what goes."""
        end, found = self._log.whole_from(), list[_Behind]()
        at_rest = self._log.marks([row.party for row in rows])
        for row, resting in zip(rows, at_rest, strict=True):
            attached = queues.mark(row.party)
            mark = resting if attached is None else attached
            if mark is None or mark < end:
                fields = parse_queue_fields(row.value)
                mark = fields["created_at_offset"] if mark is None else mark
                if mark < end:
                    found.append(_Behind(row, fields, mark, attached is not None))
        now_us, asked, inquiry = self._now_us(), list[_Asked](), Inquiry(self._log)
        ended = self._records.refresh().ended([each.row.party for each in found], now_us)
        for each in found:
            has_ended = each.row.party in ended and self._has_ended(each, now_us)
            asked.append((yield from self._ask(inquiry, each, has_ended, now_us)))
        return asked

    def _has_ended(self, behind: _Behind, now_us: int) -> bool:
        """True if its session has expired, by what was put last: the view may not know yet that its
        client was there in time."""
        value = self._records.get(Table.SESSIONS, behind.fields["owner"].encode())
        session = parse_value(value) if value else {}
        expires_at_us = session.get("expires_at_us")
        is_its_own = session.get("party") == behind.row.party
        return not is_its_own or (expires_at_us is not None and expires_at_us <= now_us)

    def _ask(
        self, inquiry: Inquiry, behind: _Behind, has_ended: bool, now_us: int
    ) -> Pieces[_Asked]:
        """What a queue is asked. What waits for a device that is there does not become too old."""
        fields, keep_from, named = behind.fields, 0, "queue_name" in behind.fields
        most = fields.get("messages_maximum", 0)
        quota = quota_of(self._config, fields["kind"], named=named, messages_maximum=most)
        if named:
            queue = parse_queue(behind.row.value.encode())
            # What a cursor has released need not be weighed.
            begin = behind.mark if queue.kind == "cursor" else queue.created_at_offset
            span = QueueSpan(queue.party, queue.reads, begin)
            keep_from = yield from self._kept.offset(inquiry, span, quota, now_us)
        elif not behind.is_attached:
            keep_from = self._kept.by_age(quota, now_us)
        aged_until = 0 if named else keep_from
        carried, rules, reads = quota.carried_messages, parse_rules(fields), fields["reads"]
        if fields["kind"] != "redrive":
            # What is driven again waits whatever the terms are on which it goes.
            reads = keeping(reads)
        if rules and carried is not None:
            party, end = behind.row.party, self._log.durable_offset()
            newest = yield from inquiry.newest(reads, party, behind.mark, end, carried, rules=rules)
            keep_from, carried = max(keep_from, newest), None
        cursor = {
            "party": behind.row.party,
            "mark": behind.mark,
            "subscriptions": reads,
            "keep_from": NOTHING if has_ended else keep_from,
            "messages_maximum": EVERYTHING if carried is None else carried,
        }
        return _Asked(cursor, fields["owner"], aged_until, has_ended, rules)


def _paged(view: View, *, shared: bool) -> Iterator[list[QueueRow]]:
    """The queues of that kind, page by page."""
    after = 0
    while rows := view.queues(after, PAGE, shared=shared):
        after = rows[-1].party
        yield rows
