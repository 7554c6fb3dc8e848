"""The SQLite view of control records: sessions at rest, subscriptions, the loss ledger.

Owns: a copy of the newest value of every control record, and the number of the last one applied.
Never: is the truth. It can be deleted, and is then made again from the log; nothing waits for it.

Invariants:
1. Every control record up to `applied` is in it, and none after.
2. A view that knows of records that the log has lost is emptied, never believed.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from holdfast.broker.store.tables import WILL_OF_CONNECTED, Table, key_party, party_key

IN_MEMORY = ":memory:"
"""The path of a view without a file."""
SCHEMA_VERSION = 9
"""Another one, newer or older, means: empty it and read the log again."""

_WILLS_OF_CONNECTED = WILL_OF_CONNECTED.to_bytes(8, "big")
"""Their keys are this one and those behind it."""

_SCHEMA = """
CREATE TABLE applied (number INTEGER NOT NULL);
INSERT INTO applied VALUES (0);
CREATE TABLE sessions (
    key BLOB PRIMARY KEY, value TEXT NOT NULL, number INTEGER NOT NULL,
    party INTEGER GENERATED ALWAYS AS (json_extract(value, '$.party')) VIRTUAL,
    connected INTEGER GENERATED ALWAYS AS (json_extract(value, '$.connected')) VIRTUAL,
    expires_at_us INTEGER GENERATED ALWAYS AS (json_extract(value, '$.expires_at_us')) VIRTUAL,
    will_due_at_us INTEGER GENERATED ALWAYS AS (json_extract(value, '$.will_due_at_us')) VIRTUAL,
    queue_name TEXT GENERATED ALWAYS AS (json_extract(value, '$.queue_name')) VIRTUAL
) WITHOUT ROWID;
CREATE UNIQUE INDEX sessions_by_party ON sessions (party);
CREATE INDEX sessions_connected ON sessions (key) WHERE connected;
CREATE INDEX sessions_by_expiry ON sessions (expires_at_us) WHERE expires_at_us IS NOT NULL;
CREATE INDEX sessions_by_will ON sessions (will_due_at_us) WHERE will_due_at_us IS NOT NULL;
CREATE INDEX sessions_by_queue ON sessions (queue_name) WHERE queue_name IS NOT NULL;
CREATE TABLE memberships (
    key BLOB PRIMARY KEY, value TEXT NOT NULL, number INTEGER NOT NULL,
    shares INTEGER GENERATED ALWAYS AS (instr(value, '"$share/') > 0) VIRTUAL
) WITHOUT ROWID;
CREATE INDEX memberships_that_share ON memberships (key) WHERE shares;
CREATE TABLE queues (
    key INTEGER PRIMARY KEY, value TEXT NOT NULL, number INTEGER NOT NULL,
    shared INTEGER GENERATED ALWAYS AS (substr(value, 1, 16) <> '{"kind":"client"') VIRTUAL,
    reads TEXT GENERATED ALWAYS AS (json_extract(value, '$.reads')) VIRTUAL,
    topics TEXT GENERATED ALWAYS AS (CASE
        WHEN instr(reads, '+') OR instr(reads, '#') THEN NULL
        ELSE json_extract(reads, '$[0].topic_filter')
            || coalesce('#' || json_extract(reads, '$[1].topic_filter'), '')
            || coalesce('#' || json_extract(reads, '$[2].topic_filter'), '')
            || coalesce('#' || json_extract(reads, '$[3].topic_filter'), '')
            || CASE json_array_length(reads) > 4 WHEN 1 THEN NULL ELSE '' END
    END) STORED
);
CREATE INDEX queues_that_are_shared ON queues (key) WHERE shared;
CREATE VIEW subscriptions AS
SELECT sessions.key AS key, CASE
        WHEN queues.value IS NULL THEN memberships.value
        WHEN memberships.value IS NULL THEN json_extract(queues.value, '$.reads')
        ELSE rtrim(json_extract(queues.value, '$.reads'), ']') || ','
            || ltrim(memberships.value, '[')
    END AS value
FROM sessions
LEFT JOIN queues ON queues.key = sessions.party
LEFT JOIN memberships ON memberships.key = sessions.key
WHERE queues.value IS NOT NULL OR memberships.value IS NOT NULL;
CREATE TABLE losses (
    key BLOB PRIMARY KEY, value TEXT NOT NULL, number INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE counters (
    key BLOB PRIMARY KEY, value TEXT NOT NULL, number INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE credentials (
    key BLOB PRIMARY KEY, value TEXT NOT NULL, number INTEGER NOT NULL,
    proof TEXT GENERATED ALWAYS AS (json_extract(value, '$.proof')) VIRTUAL
) WITHOUT ROWID;
CREATE INDEX credentials_by_identifier ON credentials (key) WHERE proof = 'identifier';
CREATE TABLE rules (
    key BLOB PRIMARY KEY, value TEXT NOT NULL, number INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE groups (
    key BLOB PRIMARY KEY, value TEXT NOT NULL, number INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE wills (
    key BLOB PRIMARY KEY, value TEXT NOT NULL, number INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE redrives (
    key BLOB PRIMARY KEY, value TEXT NOT NULL, number INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE producers (
    key BLOB PRIMARY KEY, value TEXT NOT NULL, number INTEGER NOT NULL,
    forget_at_us INTEGER GENERATED ALWAYS AS (json_extract(value, '$.forget_at_us')) VIRTUAL
) WITHOUT ROWID;
CREATE INDEX producers_by_time ON producers (forget_at_us);
CREATE TABLE bridges (
    key BLOB PRIMARY KEY, value TEXT NOT NULL, number INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE topics (
    key BLOB PRIMARY KEY, value TEXT NOT NULL, number INTEGER NOT NULL
) WITHOUT ROWID;
"""
_NAMES = {
    Table.SESSIONS: "sessions",
    Table.SUBSCRIPTIONS: "memberships",
    Table.LOSSES: "losses",
    Table.COUNTERS: "counters",
    Table.CREDENTIALS: "credentials",
    Table.RULES: "rules",
    Table.GROUPS: "groups",
    Table.WILLS: "wills",
    Table.REDRIVES: "redrives",
    Table.QUEUES: "queues",
    Table.PRODUCERS: "producers",
    Table.BRIDGES: "bridges",
    Table.TOPICS: "topics",
}
_PUT = {
    table: f"INSERT OR REPLACE INTO {name} (key, value, number) VALUES {{}}"  # noqa: S608
    for table, name in _NAMES.items()
}
_REMOVE = {table: f"DELETE FROM {name} WHERE key IN ({{}})" for table, name in _NAMES.items()}  # noqa: S608
_GET = {table: f"SELECT value FROM {name} WHERE key = ?" for table, name in _NAMES.items()}  # noqa: S608


_COUNT = {table: f"SELECT count(*) FROM {name}" for table, name in _NAMES.items()}  # noqa: S608
_ROWS = {
    table: f"SELECT key, value FROM {name} WHERE key > ? ORDER BY key LIMIT ?"  # noqa: S608
    for table, name in _NAMES.items()
}

_QUEUE = "key, value, topics"
_QUEUES = {
    shared: f"SELECT {_QUEUE} FROM queues WHERE {is_shared} AND key > ? ORDER BY key LIMIT ?"  # noqa: S608
    for shared, is_shared in ((True, "shared"), (False, "NOT shared"))
}


_PAGE_END = "SELECT max(key) FROM (SELECT key FROM queues WHERE key > ? ORDER BY key LIMIT ?)"
_QUEUES_READING = (
    f"SELECT {_QUEUE} FROM queues WHERE key > ? AND key <= ? AND NOT shared"  # noqa: S608
    " AND (topics IS NULL OR instr(topics, '#')"
    " OR topics IN (SELECT value FROM json_each(?))) ORDER BY key"
)


class QueueRow(NamedTuple):
    """A queue as it is on record."""

    party: int
    value: str
    joined_topics: str | None
    """What it reads where that is a few topics and no filter with a wildcard, which no topic has a
    character of."""

    @property
    def topics(self) -> list[str] | None:
        """The same, one by one; `None` where it is more, or has wildcards."""
        return None if self.joined_topics is None else self.joined_topics.split("#")


T = TypeVar("T")
Row = tuple[bytes | int, str, int]

ROWS_AT_ONCE = 64
"""Of one statement, which holds the interpreter's lock only while it begins and ends: a thread that
asked for it back for each row would hold up the loop for as many changes of threads."""


class View:
    """One SQLite database: one thread looks things up, and one at a time writes."""

    def __init__(self, path: str) -> None:
        self._database = _connect(path)
        # One that is in memory is a simulation's, which has no threads.
        self._writer = self._database if path == IN_MEMORY else _connect(path)
        self._writer.execute("PRAGMA journal_mode = WAL")
        # A view that has lost its last transactions is merely behind; the log is what is synced.
        self._writer.execute("PRAGMA synchronous = NORMAL")
        if self._one("PRAGMA user_version") != SCHEMA_VERSION:
            self.clear()

    def clear(self) -> None:
        """Empties the view; it has applied nothing."""
        rows = self._writer.execute(
            "SELECT type, name FROM sqlite_master"
            " WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
        for kind, name in rows:
            self._writer.execute(f'DROP {kind} "{name}"')
        self._writer.executescript(_SCHEMA)
        self._writer.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def applied(self) -> int:
        """The number of the last control record in the view; 0 if there is none."""
        return self._one("SELECT number FROM applied")

    def apply(self, records: Iterable[tuple[int, int, bytes, bytes]]) -> None:
        """Takes over control records (number, table, key, value), in one transaction; those that it
        has already it passes over. Another thread may look things up meanwhile."""
        with self._transaction() as cursor:
            known: int = cursor.execute("SELECT number FROM applied").fetchone()[0]
            last, puts, removals = _newest(records, known)
            for table, keys in removals.items():
                for some in _parts(keys):
                    cursor.execute(_many(_REMOVE[table], some, "?"), some)
            for table, rows in puts.items():
                for part in _parts(rows):
                    cursor.execute(_many(_PUT[table], part, "(?, ?, ?)"), list(chain(*part)))
            cursor.execute("UPDATE applied SET number = ?", (last,))

    def advance(self, number: int) -> None:
        """There was nothing for the view up to this control record."""
        with self._transaction() as cursor:
            cursor.execute("UPDATE applied SET number = max(number, ?)", (number,))

    def get(self, table: Table, key: bytes) -> bytes:
        """The newest value; empty if there is none."""
        row = self._database.execute(_GET[table], (_stored_key(table, key),)).fetchone()
        return b"" if row is None else row[0].encode()

    def count(self, table: Table) -> int:
        """How many rows a table has."""
        return self._one(_COUNT[table])

    def rows(self, table: Table, after: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Key and value of the rows that follow a key, in the order of their keys."""
        found = self._database.execute(_ROWS[table], (_stored_key(table, after), limit))
        return [(_told_key(table, key), value.encode()) for key, value in found]

    def credentials_by_identifier(self) -> list[bytes]:
        """Credentials (their values) that a client identifier alone proves."""
        return self._values("SELECT value FROM credentials WHERE proof = 'identifier' ORDER BY key")

    def sessions(self) -> Iterator[tuple[bytes, bytes]]:
        """Every session's value, and that of its subscriptions."""
        query = (
            "SELECT sessions.value, coalesce(subscriptions.value, '')"
            " FROM sessions LEFT JOIN subscriptions USING (key)"
        )
        for session, subscriptions in self._database.execute(query):
            yield session.encode(), subscriptions.encode()

    def queues(self, after: int, limit: int, *, shared: bool) -> list[QueueRow]:
        """What several take from, or the own queues of sessions: those that follow a party."""
        return list(map(QueueRow._make, self._database.execute(_QUEUES[shared], (after, limit))))

    def queues_reading(
        self, topics: str, after: int, limit: int
    ) -> tuple[list[QueueRow], int | None]:
        """Of the `limit` queues that follow a party, the own ones of sessions that may read one of
        these topics (a list, as JSON): those that read another topic alone are not among them. And
        the last of all; `None` where none follows."""
        end = self._database.execute(_PAGE_END, (after, limit)).fetchone()[0]
        if end is None:
            return [], None
        rows = self._database.execute(_QUEUES_READING, (after, end, topics))
        return list(map(QueueRow._make, rows)), end

    def ended(self, parties: Sequence[int], now_us: int) -> set[int]:
        """Those of these parties whose session has expired."""
        query = f"SELECT party FROM sessions WHERE party IN ({{}}) AND expires_at_us <= {now_us:d}"  # noqa: S608
        found = self._database.execute(_many(query, parties, "?"), parties)
        return {party for (party,) in found}

    def shared_queues(self) -> list[bytes]:
        """Everything that several take from."""
        return self._values("SELECT value FROM queues WHERE shared")

    def sharing_sessions(self) -> Iterator[tuple[int, bytes]]:
        """The party of each session that subscribes to a group, and the value of its row."""
        query = (
            "SELECT sessions.party, memberships.value"
            " FROM sessions JOIN memberships USING (key)"
            " WHERE memberships.shares"
        )
        for party, subscriptions in self._database.execute(query):
            yield party, subscriptions.encode()

    def client_of(self, party: int) -> str:
        """The client identifier of a party; empty if it has no session."""
        query = "SELECT key FROM sessions WHERE party = ?"
        row = self._database.execute(query, (party,)).fetchone()
        return "" if row is None else row[0].decode()

    def named_queues(self) -> list[tuple[str, str]]:
        """Name and client identifier of the sessions whose queue has a name."""
        query = "SELECT queue_name, key FROM sessions WHERE queue_name IS NOT NULL"
        return [(name, key.decode()) for name, key in self._database.execute(query)]

    def session_count(self) -> int:
        """How many sessions are recorded."""
        return self._one("SELECT count(*) FROM sessions")

    def connected(self, after: bytes, limit: int) -> list[bytes]:
        """Keys of the sessions that are recorded as connected, in their order."""
        query = "SELECT key FROM sessions WHERE connected AND key > ? ORDER BY key LIMIT ?"
        return [key for (key,) in self._database.execute(query, (after, limit))]

    def expired(
        self, by_us: int, after_us: int, after: bytes, limit: int
    ) -> list[tuple[bytes, int, bytes]]:
        """Key, time and value of the sessions whose time has come by then, the earliest first;
        those that follow this time and key."""
        query = (
            "SELECT key, expires_at_us, value FROM sessions"
            " WHERE expires_at_us <= ? AND (expires_at_us, key) > (?, ?)"
            " ORDER BY expires_at_us, key LIMIT ?"
        )
        found = self._database.execute(query, (by_us, after_us, after, limit))
        return [(key, expires_at_us, value.encode()) for key, expires_at_us, value in found]

    def wills_due(self, now_us: int, limit: int) -> list[bytes]:
        """Sessions whose Will is due, the earliest first."""
        return self._values(
            "SELECT value FROM sessions WHERE will_due_at_us <= ? ORDER BY will_due_at_us LIMIT ?",
            now_us,
            limit,
        )

    def wills_to_come(
        self, after_us: int, after: bytes, limit: int
    ) -> list[tuple[bytes, int, bytes]]:
        """Key, time and value of the sessions whose Will is due later than this time, or at it with
        a key behind this one; in that order."""
        query = (
            "SELECT key, will_due_at_us, value FROM sessions"
            " WHERE will_due_at_us IS NOT NULL AND (will_due_at_us, key) > (?, ?)"
            " ORDER BY will_due_at_us, key LIMIT ?"
        )
        found = self._database.execute(query, (after_us, after, limit))
        return [(key, due_at_us, value.encode()) for key, due_at_us, value in found]

    def wills_of_ended(self, limit: int) -> list[tuple[bytes, bytes]]:
        """Key and value of the Wills of sessions that have ended, the earliest first."""
        query = "SELECT key, value FROM wills WHERE key < ? ORDER BY key LIMIT ?"
        rows = self._database.execute(query, (_WILLS_OF_CONNECTED, limit)).fetchall()
        return [(key, value.encode()) for key, value in rows]

    def wills_of_connected(self, after: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Key and value of the Wills of sessions that end with their connections, in the order of
        their keys; those that follow this one."""
        query = "SELECT key, value FROM wills WHERE key > ? AND key >= ? ORDER BY key LIMIT ?"
        rows = self._database.execute(query, (after, _WILLS_OF_CONNECTED, limit)).fetchall()
        return [(key, value.encode()) for key, value in rows]

    def producers_pending(self) -> list[tuple[bytes, bytes]]:
        """Key and value of the producers with a batch on its way into the log."""
        rows = self._database.execute(
            "SELECT key, value FROM producers WHERE forget_at_us IS NULL ORDER BY key"
        )
        return [(key, value.encode()) for key, value in rows]

    def producers_unused(self, now_us: int, limit: int) -> list[bytes]:
        """Producers (their keys) that are to be forgotten by now."""
        query = "SELECT key FROM producers WHERE forget_at_us <= ? ORDER BY forget_at_us LIMIT ?"
        return [key for (key,) in self._database.execute(query, (now_us, limit))]

    def losses(self, limit: int) -> list[tuple[bytes, bytes]]:
        """Key and value of the oldest rows of the loss ledger."""
        rows = self._database.execute(
            "SELECT key, value FROM losses ORDER BY key LIMIT ?", (limit,)
        )
        return [(key, value.encode()) for key, value in rows]

    def first_loss(self) -> int:
        """The lowest number a row of the loss ledger has; 0 if there is none."""
        key = self._database.execute("SELECT min(key) FROM losses").fetchone()[0]
        return 0 if key is None else int.from_bytes(key, "big")

    def last_loss(self) -> int:
        """The highest number a row of the loss ledger has; 0 if there is none."""
        key = self._database.execute("SELECT max(key) FROM losses").fetchone()[0]
        return 0 if key is None else int.from_bytes(key, "big")

    def close(self) -> None:
        """Closes the database."""
        self._database.close()
        self._writer.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        cursor = self._writer.cursor()
        cursor.execute("BEGIN IMMEDIATE")
        try:
            yield cursor
        except BaseException:
            cursor.execute("ROLLBACK")
            raise
        cursor.execute("COMMIT")

    def _one(self, query: str) -> int:
        number: int = self._database.execute(query).fetchone()[0]
        return number

    def _values(self, query: str, *arguments: int | bytes) -> list[bytes]:
        return [value.encode() for (value,) in self._database.execute(query, arguments)]


def _connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


def _newest(
    records: Iterable[tuple[int, int, bytes, bytes]], known: int
) -> tuple[int, dict[Table, list[Row]], dict[Table, list[bytes | int]]]:
    """The last number, and for each table what to put and what to remove: of each key the newest
    record behind number `known`."""
    last, newest = known, dict[tuple[int, bytes], tuple[int, bytes]]()
    for number, table, key, value in records:
        if number > known:
            newest[table, key] = number, value
            last = number
    puts, removals = dict[Table, list[Row]](), dict[Table, list[bytes | int]]()
    for (table, key), (number, value) in newest.items():
        # A table that a newer version wrote is not ours to show, and does no harm.
        if table in _NAMES and value:
            row = _stored_key(table, key), value.decode(), number
            puts.setdefault(Table(table), []).append(row)
        elif table in _NAMES:
            removals.setdefault(Table(table), []).append(_stored_key(table, key))
    return last, puts, removals


def _stored_key(table: int, key: bytes) -> bytes | int:
    """The key as the view has it: queues come in the order of their parties, and are joined by
    them."""
    return key_party(key) if table == Table.QUEUES else key


def _told_key(table: int, key: Any) -> bytes:
    return party_key(key) if table == Table.QUEUES else key


def _parts(rows: list[T]) -> Iterator[list[T]]:
    return (rows[first : first + ROWS_AT_ONCE] for first in range(0, len(rows), ROWS_AT_ONCE))


def _many(statement: str, rows: Sized, each: str) -> str:
    return statement.format(", ".join([each] * len(rows)))
