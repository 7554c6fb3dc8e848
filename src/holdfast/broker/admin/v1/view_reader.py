"""Read the view beside the loop: on a thread, with a connection of its own.

Owns: nothing but the path. Never: writes.

Invariant: what is read is not older than what was durable when the request came.
"""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

from holdfast.broker.admin.http.operation import ProblemError
from holdfast.broker.store.control_records import ControlRecords

LOCKED_FOR_S = 30
"""How long the view may be locked, as it is while a disk that stalls takes a checkpoint of it."""


class ViewReader:
    """Answers queries from the view."""

    def __init__(self, path: Path, records: ControlRecords) -> None:
        self._address = f"{path.absolute().as_uri()}?mode=ro"
        self._records = records

    async def rows(self, query: str, *arguments: object) -> list[tuple[Any, ...]]:
        """All rows; the query bounds their number."""
        await self._records.caught_up()
        try:
            return await asyncio.to_thread(self._rows, query, arguments)
        except sqlite3.OperationalError as error:
            raise ProblemError(503, "busy", f"the view cannot be read now: {error}") from error

    def _rows(self, query: str, arguments: tuple[object, ...]) -> list[tuple[Any, ...]]:
        database = sqlite3.connect(self._address, timeout=LOCKED_FOR_S, uri=True)
        try:
            return database.execute(query, arguments).fetchall()
        finally:
            database.close()
