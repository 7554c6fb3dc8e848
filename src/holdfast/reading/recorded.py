"""What a broker has on record, read from the view of its control records: of one moment.

Owns: the questions to the view, and how its values become rows of tables. Never: writes.

Invariant: everything is read in one transaction, so all of it is of one moment, whatever is written
meanwhile.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from holdfast.core.share_name import is_shared, parse_shared
from holdfast.core.subscription import IN_FORCE
from holdfast.reading.log import UnreadableLogError

LOCKED_FOR_S: Final = 30
"""How long the view may be locked, as it is while a disk that stalls takes a checkpoint of it."""

ROWS_AT_ONCE: Final = 10_000
"""Rows of one batch: a megabyte or two."""

Row = dict[str, Any]
Rows = Iterator[list[Row]]
"""Rows of a table, ROWS_AT_ONCE at most at a time."""


class RecordedMoment:
    """A transaction of the view."""

    def __init__(self, view: Path) -> None:
        """Raises `UnreadableLogError` where there is no view, or one of another version."""
        address = f"{view.absolute().as_uri()}?mode=ro"
        try:
            self._database = sqlite3.connect(
                address,
                timeout=LOCKED_FOR_S,
                uri=True,
                isolation_level=None,
                check_same_thread=False,
            )
            self._database.execute("BEGIN")
            self.number = int(self._database.execute("SELECT number FROM applied").fetchone()[0])
            """Of the last control record that it knows."""
        except sqlite3.Error as error:
            raise UnreadableLogError(f"the view {view} cannot be read: {error}") from error

    def close(self) -> None:
        """Ends the transaction."""
        self._database.close()

    def parties(self) -> Iterator[list[tuple[int, str, str]]]:
        """Of everybody on record: party, what its queue is called, and its name."""
        for rows in self._parts("SELECT party, key FROM sessions"):
            yield [(party, key.decode(), key.decode()) for party, key in rows]
        for rows in self._parts("SELECT key, value FROM queues WHERE shared"):
            records = [(party, json.loads(value)) for party, value in rows]
            yield [(party, _queue_of(record), _name_of(record)) for party, record in records]

    def sessions(self, now_us: int) -> Rows:
        """Rows of `sessions`."""
        for rows in self._parts("SELECT value FROM sessions ORDER BY key"):
            yield [session_row(json.loads(value), now_us) for (value,) in rows]

    def subscriptions(self) -> Rows:
        """Rows of `subscriptions`."""
        for rows in self._parts("SELECT key, value FROM subscriptions ORDER BY key"):
            yield [
                subscription_row(key.decode(), item)
                for key, value in rows
                for item in json.loads(value)
                if item.get("until_offset", IN_FORCE) == IN_FORCE
            ]

    def queues(self) -> Rows:
        """Rows of `queues`."""
        for rows in self._parts("SELECT value FROM queues ORDER BY key"):
            yield [_queue_row(json.loads(value)) for (value,) in rows]

    def groups(self, members: Callable[[str], tuple[int, int]]) -> Rows:
        """Rows of `groups`; `members` tells how many sessions a group has, and how many of them
        are connected."""
        query = "SELECT value FROM queues WHERE shared ORDER BY key"
        for rows in self._parts(query):
            records = [json.loads(value) for (value,) in rows]
            yield [
                _group_row(record, members(record["owner"]))
                for record in records
                if record["kind"] == "group"
            ]

    def cursors(self) -> dict[int, Row]:
        """Rows of `cursors`, by party, with the places where they began."""
        found = self._database.execute("SELECT key, value FROM queues WHERE shared")
        records = ((party, json.loads(value)) for party, value in found)
        return {
            party: _cursor_row(record) for party, record in records if record["kind"] == "cursor"
        }

    def consumers(self, name: str, *, with_losses: bool) -> list[Row]:
        """The queues that are called so, by any of their names: what each is to deliver, and what
        of that it has lost."""
        own = (
            "SELECT key, value FROM queues WHERE key IN"
            " (SELECT party FROM sessions WHERE key = CAST(? AS BLOB)"
            " UNION SELECT party FROM sessions WHERE queue_name = ?)"
        )
        found = {
            party: json.loads(value) for party, value in self._database.execute(own, (name, name))
        }
        for party, value in self._database.execute("SELECT key, value FROM queues WHERE shared"):
            record = json.loads(value)
            if name in (_queue_of(record), _name_of(record), record.get("queue_name")):
                found[party] = record
        lost: dict[int, list[tuple[int, int]]] = {party: [] for party in found}
        if with_losses:
            for (value,) in self._database.execute("SELECT value FROM losses"):
                loss = json.loads(value)
                whole = (loss["first_offset"], loss["end_offset"])
                lost.get(loss["party"], []).extend(loss.get("ranges") or [whole])
        return [
            {
                "party": party,
                "queue": _queue_of(record),
                "created_at_offset": record["created_at_offset"],
                "reads": record["reads"],
                "lost": lost[party],
            }
            for party, record in found.items()
        ]

    def losses(self) -> Rows:
        """Rows of `losses`."""
        for rows in self._parts("SELECT key, value FROM losses ORDER BY key"):
            yield [_loss_row(int.from_bytes(key, "big"), json.loads(value)) for key, value in rows]

    def _parts(self, query: str) -> Iterator[list[tuple[Any, ...]]]:
        found = self._database.execute(query)
        while rows := found.fetchmany(ROWS_AT_ONCE):
            yield rows


def session_row(session: Row, now_us: int) -> Row:
    """A row of `sessions`, of a session's fields."""
    expires_at_us = session.get("expires_at_us")
    state = "connected" if session["connected"] else "at rest"
    if expires_at_us is not None and expires_at_us <= now_us:
        state = "expired"
    return {
        "client": session["client_identifier"],
        "state": state,
        "client_type": session.get("client_type", "DEVICE"),
        "protocol_version": session["protocol_version"],
        "persistent": session["expiry_s"] != 0,
        "will": session.get("will") is not None,
        "user_name": session.get("user_name"),
        "queue": session.get("queue_name"),
        "expiry_s": session["expiry_s"],
        "expires_at": expires_at_us,
    }


def subscription_row(client: str, item: Row) -> Row:
    """A row of `subscriptions`, of a subscription's fields."""
    topic_filter = item["topic_filter"]
    parts = parse_shared(topic_filter) if is_shared(topic_filter) else None
    return {
        "client": client,
        "topic_filter": topic_filter if parts is None else parts.topic_filter,
        "qos": item["qos"],
        "no_local": item.get("no_local", False),
        "retain_as_published": item.get("retain_as_published", False),
        "from_offset": item["from_offset"],
        "group": None if parts is None else topic_filter,
        "identifier": item.get("identifier"),
    }


def _queue_of(record: Row) -> str:
    """What the queue is called in all tables: nobody else's is called so."""
    kind, owner = record["kind"], record["owner"]
    return str(owner) if kind in ("client", "group", "subscription") else f"{kind}/{owner}"


def _name_of(record: Row) -> str:
    """What its owner calls it: a client's identifier, or the share name of a group."""
    parts = parse_shared(record["owner"]) if record["kind"] == "group" else None
    return str(record["owner"] if parts is None else parts.share_name)


def _filters_of(record: Row) -> list[str]:
    return [
        item["topic_filter"]
        for item in record["reads"]
        if item.get("until_offset", IN_FORCE) == IN_FORCE
    ]


def _cursor_row(record: Row) -> Row:
    return {
        "name": record["owner"],
        "queue": _queue_of(record),
        "filters": _filters_of(record),
        "place": record["created_at_offset"],
        "holder": record.get("holder"),
        "held_as": record.get("held_as"),
        "made_by": record.get("made_by"),
    }


def _queue_row(record: Row) -> Row:
    return {
        "queue": _queue_of(record),
        "name": _name_of(record),
        "kind": record["kind"],
        "filters": _filters_of(record),
        "created_at_offset": record["created_at_offset"],
        "queue_name": record.get("queue_name"),
        "ends_at": record.get("ends_at_us"),
        "end_offset": record.get("end_offset") or None,
    }


def _group_row(record: Row, members: tuple[int, int]) -> Row:
    parts = parse_shared(record["owner"])
    assert parts is not None, "planning lets no other pass"
    return {
        "group": record["owner"],
        "name": parts.share_name,
        "topic_filter": parts.topic_filter,
        "members": members[0],
        "connected": members[1],
        "queue": record.get("queue_name"),
        "ends_at": record.get("ends_at_us"),
    }


def _loss_row(number: int, loss: Row) -> Row:
    return {
        "number": number,
        "name": loss["client_identifier"],
        "reason": loss["reason"],
        "begin": loss["first_offset"],
        "end": loss["end_offset"],
        "messages": loss["count"],
        "at": loss["at_us"],
        "redriven_at": loss.get("redriven_at_us"),
    }
