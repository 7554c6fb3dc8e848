"""Tables about a broker, read from its data directory: what is on record and in the log.

Never: knows what is in memory. What is in flight, and what only a running broker or a recovery
knows, is asked of a broker.

Invariant: a table is of the moment in which it is read; beside a running broker two tables are of
two moments.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from holdfast import system
from holdfast.core.layout import LOG_DIRECTORY, VIEW_FILE
from holdfast.reading.directory import LogDirectory
from holdfast.reading.log import UnreadableLogError
from holdfast.reading.recorded import ROWS_AT_ONCE, RecordedMoment, Rows
from holdfast.reading.tables import SCHEMAS

RUNNING_ONLY: Final = ("retained", "deliveries", "acknowledgements", "cursors")
"""What a directory does not tell."""


class DirectoryTables:
    """The tables of the broker that has written a data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def read(self, name: str) -> Iterator[pa.RecordBatch]:
        """The rows of a table. Raises `UnreadableLogError`."""
        if name in RUNNING_ONLY:
            raise UnreadableLogError(
                f"table {name!r} is known to a running broker only: give 'broker' in place of"
                " 'dataDir'"
            )
        schema = SCHEMAS[name]
        for rows in self._topics() if name == "topics" else self._recorded(name):
            yield pa.RecordBatch.from_pylist(rows, schema=schema)

    def _topics(self) -> Rows:
        log = LogDirectory(str(self._data_dir / LOG_DIRECTORY))
        after = ""
        while found := log.topics("#", after, ROWS_AT_ONCE):
            after = found[-1][0]
            yield [{"topic": topic, "messages": messages} for topic, messages in found]

    def _recorded(self, name: str) -> Rows:
        recorded = RecordedMoment(self._data_dir / VIEW_FILE)
        try:
            yield from {
                "sessions": lambda: recorded.sessions(system.now_us()),
                "subscriptions": recorded.subscriptions,
                "groups": lambda: _groups(recorded),
                "queues": recorded.queues,
                "losses": recorded.losses,
            }[name]()
        finally:
            recorded.close()


def _groups(recorded: RecordedMoment) -> Rows:
    connected = {
        row["client"]
        for rows in recorded.sessions(0)
        for row in rows
        if row["state"] == "connected"
    }
    members, there = Counter[str](), Counter[str]()
    for rows in recorded.subscriptions():
        groups = [row for row in rows if row["group"] is not None]
        members.update(row["group"] for row in groups)
        there.update(row["group"] for row in groups if row["client"] in connected)
    return recorded.groups(lambda group: (members[group], there[group]))
