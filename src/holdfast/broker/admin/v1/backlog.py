"""What sessions at rest have waiting for them, all together.

Owns: the count, on demand. Never: counts for a scrape: each queue is looked up in the log's index,
which takes microseconds to a millisecond, and there may be a million of them.

Invariant: a request is counted in pieces, and requests wait for one another.
"""

import asyncio
import heapq
from typing import Annotated, Final

from msgspec import Meta, Struct

from holdfast.broker.admin.http.operation import (
    AFTER,
    LIMIT,
    Answered,
    Asked,
    Next,
    Operation,
)
from holdfast.broker.admin.v1.view_reader import ViewReader
from holdfast.broker.chores import Pieces
from holdfast.broker.mqtt.session_records import parse_session
from holdfast.broker.observe.forecast import Ahead, Forecast
from holdfast.broker.observe.queue_length import QueueLengths
from holdfast.broker.server import Server
from holdfast.broker.store.questions import SESSION_EFFORT, Inquiry
from holdfast.broker.store.tables import parse_subscriptions

LONGEST_MAXIMUM: Final = 20
_AT_REST: Final = (
    "SELECT sessions.value, coalesce(subscriptions.value, '')"
    " FROM sessions LEFT JOIN subscriptions USING (key)"
    " WHERE NOT sessions.connected AND coalesce(sessions.expires_at_us > ?, TRUE)"
    " AND sessions.key > ? ORDER BY sessions.key LIMIT ?"
)


class Behind(Struct, kw_only=True):
    """A session at rest with messages waiting."""

    client_identifier: str
    messages: int
    oldest_at_us: int | None
    first_loss_in_s: int | None


class BacklogPage(Struct, kw_only=True):
    """Totals of some sessions, and the longest."""

    sessions: Annotated[int, Meta(description="Sessions at rest that were looked at.")]
    behind: Annotated[int, Meta(description="Those with messages waiting.")]
    messages: Annotated[
        int,
        Meta(
            description="Messages that have not expired; queue.messages_maximum, which is applied"
            " when a session comes back, is not subtracted."
        ),
    ]
    first_loss_in_s: Annotated[
        int | None,
        Meta(
            description="When the first of these messages will be lost, to the limit of a queue or"
            " to its age, at the rate of the last minute; null while that is not in sight."
        ),
    ]
    longest: list[Behind]
    next: Next


class Backlog:
    """What can be asked about queues at rest."""

    def __init__(self, server: Server, view: ViewReader, forecast: Forecast) -> None:
        self._forecast = forecast
        self._chores = server.stages.chores
        self._log = server.stages.kernel.log
        self._lengths = QueueLengths(server)
        self._now_us = server.now_us
        self._view = view
        self._one_at_a_time = asyncio.Lock()

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        return [
            Operation(
                method="GET",
                path="/v1/backlog",
                name="countBacklog",
                summary="Messages that wait for sessions at rest, `limit` sessions at a time.",
                run=self.count,
                parameters=(LIMIT, AFTER),
                answers={200: Answered("Totals of these sessions, and the longest.", BacklogPage)},
            )
        ]

    async def count(self, asked: Asked) -> BacklogPage:
        """Totals over a page of sessions."""
        limit = asked.query["limit"]
        async with self._one_at_a_time:
            after = asked.query["after"].encode()
            rows = await self._view.rows(_AT_REST, self._now_us(), after, limit)
            last, found = await self._chores.outcome(self._counted(rows))
        losses = [it.first_loss_in_s for *_, it in found if it.first_loss_in_s is not None]
        longest = heapq.nlargest(LONGEST_MAXIMUM, found, key=lambda row: row[:2])
        return BacklogPage(
            sessions=len(rows),
            behind=len(found),
            messages=sum(messages for messages, *_ in found),
            first_loss_in_s=min(losses, default=None),
            longest=[
                Behind(
                    client_identifier=client_identifier,
                    messages=messages,
                    oldest_at_us=ahead.oldest_at_us,
                    first_loss_in_s=ahead.first_loss_in_s,
                )
                for messages, client_identifier, ahead in longest
            ],
            next=last if len(rows) == limit else None,
        )

    def _counted(
        self, rows: list[tuple[str, str]]
    ) -> Pieces[tuple[str | None, list[tuple[int, str, Ahead]]]]:
        inquiry, last = Inquiry(self._log), None
        found: list[tuple[int, str, Ahead]] = []
        for session_text, subscriptions_text in rows:
            yield from inquiry.rest(SESSION_EFFORT)
            session = parse_session(session_text.encode())
            subscriptions = parse_subscriptions(subscriptions_text.encode())
            last = session.client_identifier
            messages, _, _ = yield from self._lengths.at_rest(inquiry, session, subscriptions)
            if messages:
                now_us = self._now_us()
                ahead = yield from self._forecast.of_session(
                    inquiry, session, subscriptions, now_us
                )
                found.append((messages, last, ahead))
        return last, found
