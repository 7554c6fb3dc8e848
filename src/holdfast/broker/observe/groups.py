"""Groups of shared subscriptions as an operator sees them: what waits in each, and what is ahead.

Never: knows how members are chosen.
"""

from dataclasses import dataclass

from holdfast.broker.chores import Pieces
from holdfast.broker.observe.forecast import Ahead, Forecast
from holdfast.broker.observe.watch import Stuck, Watch
from holdfast.broker.state.broker import Broker
from holdfast.broker.state.groups import AwaitedSeen, GroupSeen, KeysSeen, ShareSeen
from holdfast.broker.store.questions import EXACT, LIST_EFFORT_MAXIMUM, Inquiry
from holdfast.core.quota import UNLIMITED


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupQueue:
    """A group with what waits in its queue."""

    seen: GroupSeen
    queued: int
    exact: bool
    """False: there was too much to count, and `queued` is at least so many."""
    stuck: Stuck | None
    ahead: Ahead
    environment: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDetail:
    """A group with its members' shares and keys, and whom it waits for."""

    queue: GroupQueue
    shares: list[ShareSeen]
    awaited: list[AwaitedSeen]
    keys: KeysSeen


class GroupsSeen:
    """Looks at groups."""

    def __init__(self, broker: Broker, watch: Watch, forecast: Forecast) -> None:
        self._broker = broker
        self._watch = watch
        self._forecast = forecast

    async def page(self, after: str, limit: int) -> tuple[list[GroupQueue], str | None]:
        """The first groups after one by name, and where the next page begins."""
        names = [name for name in self._broker.groups.names() if name > after]
        page = names[:limit]
        rows = await self._broker.chores.outcome(self._rows(page, LIST_EFFORT_MAXIMUM))
        return rows, page[-1] if len(names) > limit else None

    async def show(self, name: str) -> GroupDetail | None:
        """One group in detail, if it is there."""
        rows = await self._broker.chores.outcome(self._rows([name], EXACT))
        if not rows:
            return None
        groups = self._broker.groups
        awaited = await self._broker.chores.outcome(groups.awaited(name))
        shares, keys = groups.shares(name), groups.keys(name)
        return GroupDetail(queue=rows[0], shares=shares, awaited=awaited, keys=keys)

    def _rows(self, names: list[str], effort_maximum: int) -> Pieces[list[GroupQueue]]:
        """Those that are still there."""
        rows, inquiry = [], self._broker.log.inquire(effort_maximum)
        for name in names:
            seen = self._broker.groups.of(name)
            if seen is not None:
                rows.append((yield from self._row(seen, inquiry)))
            yield from inquiry.rest()
        return [row for row in rows if row.seen.group in self._broker.groups]

    def _row(self, seen: GroupSeen, inquiry: Inquiry) -> Pieces[GroupQueue]:
        # While members are there, nothing is cut off its queue.
        quota = UNLIMITED if seen.members else self._broker.queues.quota(seen.record)
        ahead = yield from self._forecast.of_queue(
            inquiry,
            seen.reads,
            seen.party,
            seen.mark,
            quota,
            self._broker.now_us(),
        )
        queued = yield from self._broker.groups.queued(seen.group, inquiry)
        return GroupQueue(
            seen=seen,
            queued=queued,
            exact=inquiry.is_exact,
            stuck=self._watch.stuck_of(seen.party),
            ahead=ahead,
            environment=self._broker.environments.of_group(seen.group),
        )
