"""What sessions at rest have waiting for them, all together.

Owns: the count, on demand. Never: counts for a scrape: each queue is looked up in the log's index,
which takes microseconds to a millisecond, and there may be a million of them.

Invariant: one request holds up the loop for SESSIONS_AT_ONCE queues at a time; requests wait for
one another.
"""

import asyncio
import heapq
from typing import Any, Final

from holdfast.broker.admin.operation import (
    AFTER,
    LIMIT,
    Answered,
    Asked,
    Operation,
    Schema,
    row_of,
)
from holdfast.broker.admin.view_reader import ViewReader
from holdfast.broker.dispatch.queues import queue_at_rest
from holdfast.broker.server import Server
from holdfast.broker.store.tables import parse_session, parse_subscriptions
from holdfast.protocols.mqtt.session import own_of

SESSIONS_AT_ONCE: Final = 10
"""Queues that are counted in one turn: some milliseconds at most."""
LONGEST_MAXIMUM: Final = 20
_AT_REST: Final = (
    "SELECT sessions.value, coalesce(subscriptions.value, '')"
    " FROM sessions LEFT JOIN subscriptions USING (key)"
    " WHERE NOT sessions.connected AND sessions.key > ? ORDER BY sessions.key LIMIT ?"
)
ANSWER: Final[Schema] = {
    "type": "object",
    "required": ["sessions", "behind", "messages", "longest", "next"],
    "properties": {
        "sessions": {"type": "integer", "description": "Sessions at rest that were looked at."},
        "behind": {"type": "integer", "description": "Those with messages waiting."},
        "messages": {
            "type": "integer",
            "description": "Matching messages from the marks on; queue_messages_maximum, which is"
            " applied when a session comes back, is not subtracted.",
        },
        "longest": {
            "type": "array",
            "items": row_of(client_identifier="string", messages="integer"),
        },
        "next": {
            "type": ["string", "null"],
            "description": "`after` for the sessions that follow; null at the end.",
        },
    },
}


class Backlog:
    """What can be asked about queues at rest."""

    def __init__(self, server: Server, view: ViewReader) -> None:
        self._log = server.stages.kernel.log
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
                answers={200: Answered("Totals of these sessions, and the longest.", ANSWER)},
            )
        ]

    async def count(self, asked: Asked) -> dict[str, Any]:
        """Totals over a page of sessions."""
        limit = asked.query["limit"]
        async with self._one_at_a_time:
            rows = await self._view.rows(_AT_REST, asked.query["after"].encode(), limit)
            found: list[tuple[int, str]] = []
            last = None
            for number, (session, subscriptions) in enumerate(rows, start=1):
                last, messages = self._waiting(session, subscriptions)
                found += [(messages, last)] if messages else []
                if number % SESSIONS_AT_ONCE == 0:
                    await asyncio.sleep(0)
        return {
            "sessions": len(rows),
            "behind": len(found),
            "messages": sum(messages for messages, _ in found),
            "longest": [
                {"client_identifier": client_identifier, "messages": messages}
                for messages, client_identifier in heapq.nlargest(LONGEST_MAXIMUM, found)
            ],
            "next": last if len(rows) == limit else None,
        }

    def _waiting(self, session_text: str, subscriptions_text: str) -> tuple[str, int]:
        session = parse_session(session_text.encode())
        own = own_of(parse_subscriptions(subscriptions_text.encode()))
        tables = [item.table() for item in own]
        mark = queue_at_rest(self._log, session, own).mark
        end = self._log.durable_offset()
        messages = self._log.count(tables, session.party, mark, end) if tables else 0
        return session.client_identifier, messages
