"""What control records say, read beside the loop: on a thread, with a connection of its own to the
view.

Owns: the questions. Never: writes; holds up the loop, which reads each row only when it is come to.

Invariant: what is read is not older than what was durable when it was asked for.
"""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.broker.mqtt.session import Session
from holdfast.broker.mqtt.session_records import parse_session
from holdfast.broker.state.wanted import (
    ClientsWanted,
    SubscriptionsWanted,
    lies_within,
    names_filter,
)
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.tables import Loss, parse_loss, parse_subscriptions
from holdfast.core.errors import BrokerBusyError
from holdfast.core.subscription import Subscription
from holdfast.reading.recorded import RecordedMoment

LOCKED_FOR_S: Final = 30
"""How long the view may be locked, as it is while a disk that stalls takes a checkpoint of it."""
LOSS_TIME_END_US: Final = 2**63 - 1
"""Later than any loss."""
_SESSIONS: Final = (
    "SELECT value FROM sessions WHERE key > ?1 AND instr(key, ?2) > 0"
    " AND (?3 = '' OR json_extract(value, '$.user_name') = ?3)"
    " AND (?4 = 'any' OR ?4 = CASE WHEN connected THEN 'connected'"
    " WHEN expires_at_us <= ?5 THEN 'expired' ELSE 'at_rest' END)"
    " ORDER BY key LIMIT ?6"
)
_AT_REST: Final = (
    "SELECT sessions.value, coalesce(json_extract(queues.value, '$.reads'), '')"
    " FROM sessions LEFT JOIN queues ON queues.key = sessions.party"
    " WHERE NOT sessions.connected AND coalesce(sessions.expires_at_us > ?, TRUE)"
    " AND sessions.key > ? ORDER BY sessions.key LIMIT ?"
)
_SUBSCRIPTIONS: Final = (
    "SELECT key, value FROM subscriptions WHERE key > ? AND instr(key, ?) > 0 ORDER BY key LIMIT ?"
)
ENDLESS: Final = "1e19"
"""Larger than any offset, and not than IN_FORCE, which SQLite knows only as a broken number."""
_EACH_SUBSCRIPTION: Final = (
    "FROM subscriptions, json_each(subscriptions.value) AS item WHERE"
    f" coalesce(json_extract(item.value, '$.until_offset'), {ENDLESS}) >= {ENDLESS}"
)
_DEVICE_FILTERS: Final = (
    "SELECT DISTINCT json_extract(item.value, '$.topic_filter')"
    " FROM sessions JOIN subscriptions USING (key), json_each(subscriptions.value) AS item"
    " WHERE coalesce(json_extract(sessions.value, '$.client_type'), 'DEVICE') = 'DEVICE'"
    " AND json_extract(item.value, '$.qos') > 0 LIMIT ?"
)
_LOSSES: Final = (
    "SELECT key, value FROM losses WHERE key > ?1"
    " AND (?2 = '' OR json_extract(value, '$.client_identifier') = ?2)"
    " AND (?3 = '' OR json_extract(value, '$.reason') = ?3)"
    " AND json_extract(value, '$.at_us') >= ?4 AND json_extract(value, '$.at_us') < ?5"
    " ORDER BY key LIMIT ?6"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossesWanted:
    """Which rows of the loss ledger."""

    after: int
    """The number of the row before the first one."""
    client_identifier: str
    """Empty: of all clients."""
    reason: str
    """Empty: all reasons."""
    since_us: int
    until_us: int


class Recorded:
    """Pages of what is on record."""

    def __init__(self, path: Path, records: ControlRecords) -> None:
        self._path = path
        self._address = f"{path.absolute().as_uri()}?mode=ro"
        self._records = records

    async def sessions(
        self, after: str, search: str, user_name: str, state: str, now_us: int, limit: int
    ) -> Iterator[Session]:
        """Sessions in the order of their client identifiers: those that contain `search`, of this
        user or any, and in this state (`connected`, `at_rest`, `expired`) or any."""
        wanted = (after.encode(), search.encode(), user_name, state, now_us, limit)
        rows = await self._rows(_SESSIONS, *wanted)
        return (parse_session(value.encode()) for (value,) in rows)

    async def at_rest(self, after: str, now_us: int, limit: int) -> list["RestingSession"]:
        """Sessions at rest with what their own queues read."""
        rows = await self._rows(_AT_REST, now_us, after.encode(), limit)
        return [RestingSession(*row) for row in rows]

    async def subscriptions(
        self, after: str, search: str, limit: int
    ) -> Iterator[tuple[str, tuple[Subscription, ...]]]:
        """What clients subscribe to whose client identifiers contain this, in their order."""
        rows = await self._rows(_SUBSCRIPTIONS, after.encode(), search.encode(), limit)
        return ((key.decode(), parse_subscriptions(value.encode())) for key, value in rows)

    async def clients(self, wanted: ClientsWanted, first: int, limit: int) -> Iterator[Session]:
        """Sessions in the order of their client identifiers, without the `first` ones."""
        where, values = _where("FROM sessions WHERE TRUE", wanted.conditions())
        query = f"SELECT value {where} ORDER BY key LIMIT ? OFFSET ?"
        rows = await self._rows(query, *values, limit, first)
        return (parse_session(value.encode()) for (value,) in rows)

    async def count_clients(self, wanted: ClientsWanted) -> int:
        """How many there are of them."""
        where, values = _where("FROM sessions WHERE TRUE", wanted.conditions())
        ((count,),) = await self._rows(f"SELECT count(*) {where}", *values)
        return int(count)

    async def each_subscription(
        self, wanted: SubscriptionsWanted, first: int, limit: int
    ) -> list[tuple[str, Subscription]]:
        """Subscriptions in force with whose they are, in the order of the client identifiers,
        without the `first` ones."""
        where, values = _where(_EACH_SUBSCRIPTION, wanted.conditions())
        query = f"SELECT subscriptions.key, item.value {where}"
        query += " ORDER BY subscriptions.key, item.key LIMIT ? OFFSET ?"
        rows = await self._rows(query, *values, limit, first)
        return [(key.decode(), Subscription(**json.loads(value))) for key, value in rows]

    async def count_subscriptions(self, wanted: SubscriptionsWanted) -> int:
        """How many there are of them."""
        where, values = _where(_EACH_SUBSCRIPTION, wanted.conditions())
        ((count,),) = await self._rows(f"SELECT count(*) {where}", *values)
        return int(count)

    async def device_filters(self, limit: int) -> list[str]:
        """Topic filters of DEVICE clients at QoS 1 and 2, each once."""
        return [topic_filter for (topic_filter,) in await self._rows(_DEVICE_FILTERS, limit)]

    async def losses(self, wanted: LossesWanted, limit: int) -> list[tuple[int, Loss]]:
        """Rows of the loss ledger with their numbers, the oldest first."""
        rows = await self._rows(
            _LOSSES,
            wanted.after.to_bytes(8, "big"),
            wanted.client_identifier,
            wanted.reason,
            wanted.since_us,
            wanted.until_us,
            limit,
        )
        return [(int.from_bytes(key, "big"), parse_loss(value.encode())) for key, value in rows]

    async def caught_up(self) -> None:
        """Returns when the view has every control record that was there before."""
        await self._records.caught_up()

    def moment(self) -> RecordedMoment:
        """A transaction of the view, begun now; for a thread."""
        return RecordedMoment(self._path)

    async def _rows(self, query: str, *arguments: object) -> list[tuple[Any, ...]]:
        """All rows; the query bounds their number."""
        await self._records.caught_up()
        try:
            return await asyncio.to_thread(self._read, query, arguments)
        except sqlite3.OperationalError as error:
            raise BrokerBusyError(f"the view cannot be read now: {error}") from error

    def _read(self, query: str, arguments: tuple[object, ...]) -> list[tuple[Any, ...]]:
        database = sqlite3.connect(self._address, timeout=LOCKED_FOR_S, uri=True)
        database.create_function("names_filter", 2, names_filter, deterministic=True)
        database.create_function("lies_within", 2, lies_within, deterministic=True)
        try:
            return database.execute(query, arguments).fetchall()
        finally:
            database.close()


def _where(source: str, conditions: list[tuple[str, object]]) -> tuple[str, tuple[object, ...]]:
    """Where the rows are that fit, with the values that they are compared with."""
    words = "".join(f" AND {condition}" for condition, _ in conditions)
    return source + words, tuple(value for _, value in conditions)


@dataclass(frozen=True, slots=True)
class RestingSession:
    """A session at rest as its records have it, which takes some 100 us to read."""

    session_text: str
    subscriptions_text: str

    def read(self) -> tuple[Session, tuple[Subscription, ...]]:
        """The session, and what its own queue reads."""
        session = parse_session(self.session_text.encode())
        return session, parse_subscriptions(self.subscriptions_text.encode())
