"""Bridges as an operator sees them: what waits in each, when that has gone, where a message is.

Owns: a round over all of them now and then, the rate at which each is acknowledged, and the state
of one message. Never: reads a message, or notes anything for one.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from holdfast.broker.chores import Pieces
from holdfast.broker.observe.forecast import RATE_S, Ahead, Forecast
from holdfast.broker.state.bridges import BridgeSeen, Contents
from holdfast.broker.state.broker import Broker
from holdfast.broker.state.recorded import LOSS_TIME_END_US, LossesWanted
from holdfast.broker.store.questions import EXACT, LIST_EFFORT_MAXIMUM, Inquiry
from holdfast.broker.store.tables import Loss
from holdfast.core.units import SECOND_US

ROUND_PERIOD_US: Final = 5 * SECOND_US
"""How often all of them are looked at: a scraper asks less often."""
ROUNDS_KEPT: Final = RATE_S * SECOND_US // ROUND_PERIOD_US + 1
LOSSES_AT_ONCE: Final = 1_000
NOTHING_AHEAD: Final = Ahead(0, None, None)


class MessageState(StrEnum):
    """Where a message of a bridge is. What is being written to the socket is that for less than a
    turn of the loop, in which nobody can ask: it waits for its acknowledgement."""

    RECEIVED = "received"
    """Stored, and not durable yet."""
    QUEUED = "queued"
    """It waits in the log (Tier 1)."""
    POLLED = "polled"
    """Read from the log, and next when the remote has room for it."""
    BUFFERED = "buffered"
    """Read from the log while the remote is away (Tier 2)."""
    WAITING = "waiting_for_acknowledgement"
    """Sent on this connection."""
    RETRY = "retry_pending"
    """Sent on an earlier connection and not acknowledged, nor sent again yet: it goes first."""
    DELIVERED = "delivered"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSeen:
    """One message of a bridge."""

    offset: int
    state: MessageState
    reason: str | None
    """Why it was lost."""
    since_us: int | None
    """When it came there, if that is known."""


DoneAt = Callable[[int, Sequence[int]], Awaitable[Mapping[int, int]]]
"""When a party was done with messages, by offset: those of which it is on record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeStanding:
    """A bridge with what its remote has not acknowledged."""

    seen: BridgeSeen
    ahead: Ahead
    polled: int
    """Messages of QoS 1 and 2 that have been read from the log and are not in flight."""
    in_flight: int
    drained_in_s: int | None
    """When nothing waits any more, at the rate of the last minute; `None`: not in sight."""
    exact: bool
    """False: there was too much to count, and there are at least so many messages."""


class BridgesSeen:
    """Looks at bridges."""

    def __init__(self, broker: Broker, forecast: Forecast) -> None:
        self._broker = broker
        self._forecast = forecast
        self._is_looking = False
        self._look_at_us = 0
        self._acknowledged: dict[str, deque[tuple[int, int]]] = {}
        """When each bridge had how many, in the last rounds."""
        self.found: tuple[BridgeStanding, ...] = ()
        """All of them, as of the last round."""

    def look(self, now_us: int) -> None:
        """A second has passed: it may be time for a round."""
        if now_us >= self._look_at_us and not self._is_looking:
            self._is_looking, self._look_at_us = True, now_us + ROUND_PERIOD_US
            names = self._broker.bridges.names()
            self._broker.chores.begin(self._rows(names, EXACT), self._end_round)

    def _end_round(self, found: list[BridgeStanding]) -> None:
        self._is_looking, self.found = False, tuple(found)
        now_us, before = self._broker.now_us(), self._acknowledged
        self._acknowledged = {}
        for row in found:
            name = row.seen.bridge.name
            rounds = before.get(name) or deque(maxlen=ROUNDS_KEPT)
            rounds.append((now_us, row.seen.acknowledged))
            self._acknowledged[name] = rounds

    async def page(self, after: str, limit: int) -> tuple[list[BridgeStanding], str | None]:
        """The first bridges after one by name, and where the next page begins."""
        names = [name for name in self._broker.bridges.names() if name > after]
        page = names[:limit]
        rows = await self._broker.chores.outcome(self._rows(page, LIST_EFFORT_MAXIMUM))
        return rows, page[-1] if len(names) > limit else None

    async def show(self, name: str) -> BridgeStanding | None:
        """One bridge, counted to the end, if it is there."""
        rows = await self._broker.chores.outcome(self._rows([name], EXACT))
        return rows[0] if rows else None

    async def messages(
        self, name: str, from_offset: int | None, limit: int, done_at: DoneAt
    ) -> tuple[list[MessageSeen], int | None]:
        """Messages of a bridge from an offset on, or from the first that is not acknowledged, with
        the state of each; and where the next page begins."""
        contents = self._broker.bridges.contents(name, whole=True)
        if contents is None:
            return [], None
        begin = contents.first_offset() if from_offset is None else from_offset
        offsets = await self._broker.chores.outcome(self._offsets(contents, begin, limit + 1))
        page = offsets[:limit]
        losses = await self._losses(name, contents.party)
        done_at_us = await done_at(contents.party, list(filter(contents.is_done, page)))
        seen = [self._state(contents, offset, losses, done_at_us) for offset in page]
        return seen, offsets[limit] if len(offsets) > limit else None

    def _offsets(self, contents: Contents, begin: int, limit: int) -> Pieces[list[int]]:
        inquiry, end = self._broker.log.inquire(), self._broker.log.durable_offset()
        found: list[int] = []
        while len(found) < limit:
            begin = yield from contents.first(begin, end, inquiry)
            if begin >= end:
                break
            found.append(begin)
            begin += 1
            yield from inquiry.rest()
        return found

    async def _losses(self, name: str, party: int) -> list[Loss]:
        found: list[Loss] = []
        after, is_more = 0, True
        while is_more:
            wanted = LossesWanted(
                after=after,
                client_identifier=name,
                reason="",
                since_us=0,
                until_us=LOSS_TIME_END_US,
            )
            rows = await self._broker.recorded.losses(wanted, LOSSES_AT_ONCE)
            found += [loss for _, loss in rows if loss.party == party]
            is_more = len(rows) == LOSSES_AT_ONCE
            after = rows[-1][0] if rows else 0
        return found

    def _state(
        self,
        contents: Contents,
        offset: int,
        losses: list[Loss],
        done_at_us: Mapping[int, int],
    ) -> MessageSeen:
        reason, since_us = None, None
        if offset >= self._broker.log.durable_offset():
            state, since_us = MessageState.RECEIVED, self._broker.log.stored_at_us(offset)
        elif contents.is_awaited(offset):
            state, since_us = MessageState.WAITING, contents.sent_at_us.get(offset)
        elif offset in contents.flights:
            state, since_us = MessageState.RETRY, contents.ended_at_us
        elif contents.is_done(offset):
            lost = next((loss for loss in losses if _holds(loss, offset)), None)
            if lost is None:
                state, since_us = MessageState.DELIVERED, done_at_us.get(offset)
            else:
                state, reason, since_us = MessageState.LOST, lost.reason.value, lost.at_us
        elif offset < contents.polled_to:
            state = MessageState.POLLED if contents.is_connected else MessageState.BUFFERED
        else:
            state, since_us = MessageState.QUEUED, self._broker.log.stored_at_us(offset)
        return MessageSeen(offset=offset, state=state, reason=reason, since_us=since_us)

    def _rows(self, names: list[str], effort_maximum: int) -> Pieces[list[BridgeStanding]]:
        """Those that are still there."""
        rows, inquiry = [], self._broker.log.inquire(effort_maximum)
        for name in names:
            seen = self._broker.bridges.of(name)
            if seen is not None:
                rows.append((yield from self._row(seen, inquiry)))
            yield from inquiry.rest()
        return rows

    def _row(self, seen: BridgeSeen, inquiry: Inquiry) -> Pieces[BridgeStanding]:
        name = seen.bridge.name
        contents = self._broker.bridges.contents(name)
        ahead, polled, in_flight, drained_in_s = NOTHING_AHEAD, 0, seen.in_flight, None
        if contents is not None:
            in_flight = max(in_flight, len(contents.flights))
            ahead = yield from self._ahead(contents, inquiry)
            read = yield from contents.count(contents.mark, contents.polled_to, inquiry)
            polled = read + len(contents.completing)
            drained_in_s = yield from self._drained_in_s(name, seen, contents, ahead, inquiry)
        return BridgeStanding(
            seen=seen,
            ahead=ahead,
            polled=max(polled - in_flight, 0),
            in_flight=in_flight,
            drained_in_s=drained_in_s,
            exact=inquiry.is_exact,
        )

    def _ahead(self, contents: Contents, inquiry: Inquiry) -> Pieces[Ahead]:
        end = self._broker.log.durable_offset()
        messages = yield from contents.count(contents.mark, end, inquiry)
        messages += len(contents.completing)
        if not messages:
            return NOTHING_AHEAD
        record, now_us = contents.record, self._broker.now_us()
        ahead = yield from self._forecast.of_queue(
            inquiry,
            record.reads,
            contents.party,
            contents.mark,
            contents.quota,
            now_us,
            rules=record.rules,
        )
        first = yield from contents.first(contents.first_offset(), end, inquiry)
        oldest_at_us = self._broker.log.stored_at_us(first) if first < end else None
        return replace(ahead, messages=messages, oldest_at_us=oldest_at_us)

    def _drained_in_s(
        self, name: str, seen: BridgeSeen, contents: Contents, ahead: Ahead, inquiry: Inquiry
    ) -> Pieces[int | None]:
        if not ahead.messages:
            return 0
        rounds = self._acknowledged.get(name)
        if not rounds or not contents.is_connected:
            return None
        began_us, acknowledged = rounds[0]
        since = self._broker.log.offset_at(began_us)
        end = self._broker.log.durable_offset()
        arrived = yield from contents.count(since, end, inquiry)
        fewer = seen.acknowledged - acknowledged - arrived
        if fewer <= 0:
            return None
        elapsed_s = max((self._broker.now_us() - began_us) // SECOND_US, 1)
        return ahead.messages * elapsed_s // fewer


def _holds(loss: Loss, offset: int) -> bool:
    return any(first <= offset < end for first, end in loss.spans)
