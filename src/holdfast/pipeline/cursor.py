"""A cursor at the broker, as a query has it, and the release of what Spark has committed.

Owns: the questions to the broker about one cursor, and what is released when. Never: releases what
Spark has not committed.

Invariants:
1. What is released was in `commits/` of the checkpoint before: `released_after_commit` reads it
   there, and an event of progress tells of a batch that is there.
2. Releasing again, or less, changes nothing, so that no two of the ways have to know of each other:
   the source when Spark commits an offset, which is a batch late and never of the last one; the
   listener at each progress; and the checkpoint itself when a query begins and has ended.
"""

import json
import logging
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from holdfast import system
from holdfast.client.http import HttpClient
from holdfast.core.errors import BrokerAbsentError, BrokerRefusedError
from holdfast.reading.log import BrokerAwayError
from holdfast.reading.remote import AWAY

log = logging.getLogger(__name__)

CURSOR: Final = "cursor"
HOLDER: Final = "holder"
"""Members of an offset in a checkpoint: which cursor it is the place of, and by what name this
checkpoint's query holds that. A query that starts again from its checkpoint is the same holder."""
NOT_FOUND: Final = 404


class CursorError(Exception):
    """The query cannot go on with its cursor: another one holds it, it has been removed, or it is
    one of another selection."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a cursor is, and who holds it."""

    epoch: str
    offset: int
    selection: tuple[str, ...]
    holder: str
    """Empty: nobody."""
    held_as: str


@dataclass(frozen=True, slots=True)
class Cursor:
    """One cursor of one broker; a value, which every process may ask by."""

    name: str
    broker: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def place(self) -> Place:
        """Where it is. Raises `CursorError` if it is not there, as all of these do, and
        `BrokerAwayError` if the broker does not answer."""
        return self._asked("GET", "")

    def make(self, selection: Sequence[str], place: str | int) -> Place:
        """There is one with this selection; one that was there is where it was."""
        return self._asked("PUT", "", {"selection": list(selection), "place": place})

    def join(self, selection: Sequence[str], place: int, holder: str) -> None:
        """There is one with this selection, which nobody else holds."""
        found = self.make(selection, place)
        if found.holder not in ("", holder):
            raise CursorError(
                f"{self._about()}: it is held by {found.held_as} ({found.holder}) until that one"
                " lets it go, or asks for nothing more"
            )

    def hold(self, holder: str, held_as: str = "") -> Place:
        """This holder has it, or has it still."""
        return self._asked("POST", "/hold", {"holder": holder, "held_as": held_as})

    def release(self, holder: str, offset: int, *, let_go: bool = False) -> Place:
        """What is below an offset needs to be kept no more."""
        body = {"holder": holder, "offset": offset, "let_go": let_go}
        return self._asked("POST", "/release", body)

    def _asked(self, method: str, action: str, body: Mapping[str, Any] | None = None) -> Place:
        path = f"/v1/cursors/{quote(self.name, safe='')}{action}"
        client = HttpClient.at(self.broker, self.user, self.password)
        try:
            if method == "GET":
                found = client.get(path)
            elif method == "PUT":
                found = client.put(path, body or {})
            else:
                found = client.post(path, body)
        except BrokerAbsentError as absent:
            if isinstance(absent.__cause__, ssl.SSLCertVerificationError):
                raise CursorError(f"{self._about()}: {absent}") from absent
            raise BrokerAwayError(str(absent)) from absent
        except BrokerRefusedError as refused:
            if refused.status in AWAY:
                raise BrokerAwayError(f"the broker at {self.broker} starts or ends") from refused
            raise CursorError(self._refusal(refused)) from refused
        return Place(
            found["epoch"],
            found["place"],
            tuple(found["selection"]),
            found["holder"],
            found["held_as"],
        )

    def _refusal(self, refused: BrokerRefusedError) -> str:
        if refused.status == NOT_FOUND:
            return (
                f"{self._about()} is not there: it has been removed, so that nothing keeps what"
                " the query has still to read. Take another name in the option 'cursor' to go on"
                " from the checkpoint with a new one"
            )
        return f"{self._about()}: {refused}"

    def _about(self) -> str:
        return f"holdfast data source: cursor {self.name!r} at {self.broker}"


def new_holder() -> str:
    """By what a query holds its cursor whose checkpoint does not know of that."""
    return system.entropy(16).hex()


@contextmanager
def released_after_commit(spark: SparkSession, cursor: Cursor, checkpoint: Path) -> Iterator[None]:
    """While it lasts, what a query with this cursor and checkpoint has committed is released at
    once, and when it has ended all of that, and its hold with it. The query is started and has
    ended within the block.

    Without it a query releases one batch late, and its last batch when it is started again."""
    release_committed(cursor, checkpoint)
    listener = _Releases(cursor)
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        spark.streams.removeListener(listener)
        release_committed(cursor, checkpoint, let_go=True)


def release_committed(cursor: Cursor, checkpoint: Path, *, let_go: bool = False) -> int | None:
    """Releases what the checkpoint says is committed; up to which offset, if it says anything of
    this cursor. A broker that is away is told the next time."""
    committed = committed_offset(cursor.name, checkpoint)
    if committed is None:
        return None
    _release(cursor, committed, let_go=let_go)
    return int(committed["o"])


def committed_offset(name: str, checkpoint: Path) -> dict[str, Any] | None:
    """The offset of the newest batch that Spark has committed, if it is a place of this cursor."""
    batch = _newest(_directory(checkpoint) / "commits")
    if batch is None:
        return None
    try:
        _version, _metadata, *offsets = (
            (_directory(checkpoint) / "offsets" / str(batch)).read_text().splitlines()
        )
    except FileNotFoundError:
        return None
    found = (json.loads(line) for line in offsets if line.startswith("{"))
    return next((each for each in found if each.get(CURSOR) == name), None)


def _newest(directory: Path) -> int | None:
    """The highest number that a file there is called by."""
    names = (entry.name for entry in directory.iterdir()) if directory.is_dir() else ()
    return max((int(name) for name in names if name.isdecimal()), default=None)


def _directory(checkpoint: Path) -> Path:
    parts = urlsplit(str(checkpoint))
    if parts.scheme not in ("", "file"):
        raise ValueError(f"a checkpoint on a disk of this host can be read, not {checkpoint}")
    return Path(parts.path)


def _release(cursor: Cursor, committed: Mapping[str, Any], *, let_go: bool = False) -> None:
    try:
        cursor.release(committed[HOLDER], int(committed["o"]), let_go=let_go)
    except (BrokerAwayError, CursorError) as problem:
        # The query itself is told, and stops where it must; here it would be told to nobody.
        log.warning("cursor not released: %s", problem)


class _Releases(StreamingQueryListener):
    """Releases at each progress: by then the batch is in the checkpoint's `commits`."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing is committed yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A batch is committed."""
        for source in event.progress.sources:
            offset = json.loads(source.endOffset) if source.endOffset else None
            if isinstance(offset, dict) and offset.get(CURSOR) == self._cursor.name:
                _release(self._cursor, offset)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing has come."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """What it has committed is in its checkpoint."""
