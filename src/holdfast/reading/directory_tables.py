"""Tables about a broker, read from its data directory: what is on record and in the log.

Never: knows what is in memory: what is in flight at QoS 1 to who is connected, and who comes
without a session on record, is asked of a running broker.

Invariant: a table is of the moment in which it is read; beside a running broker two tables are of
two moments.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from holdfast import system
from holdfast.core.layout import LOG_DIRECTORY, VIEW_FILE
from holdfast.reading import states
from holdfast.reading.directory import LogDirectory
from holdfast.reading.recorded import ROWS_AT_ONCE, RecordedMoment, Rows
from holdfast.reading.tables import SCHEMAS, batch_of


class DirectoryTables:
    """The tables of the broker that has written a data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def read(self, name: str) -> Iterator[pa.RecordBatch]:
        """The rows of a table. Raises `UnreadableLogError`."""
        schema = SCHEMAS[name]
        if name in ("retained", "deliveries", "acknowledgements"):
            batch = batch_of(self._states(name), schema)
            for first in range(0, batch.num_rows, ROWS_AT_ONCE):
                yield batch.slice(first, ROWS_AT_ONCE)
            return
        for rows in self._topics() if name == "topics" else self._recorded(name):
            yield pa.RecordBatch.from_pylist(rows, schema=schema)

    def _states(self, name: str) -> states.Arrays:
        acknowledged, in_flight, retained = self._log().recorded()
        if name == "retained":
            return states.retained(retained)
        with self._moment() as recorded:
            tables = states.StateTables(recorded.parties())
        if name == "deliveries":
            return tables.deliveries(states.in_flight(in_flight), "at rest")
        return tables.acknowledgements(states.acknowledged(acknowledged))

    def _topics(self) -> Rows:
        log = self._log()
        after = ""
        while found := log.topics("#", after, ROWS_AT_ONCE):
            after = found[-1][0]
            yield [{"topic": topic, "messages": messages} for topic, messages in found]

    def _recorded(self, name: str) -> Rows:
        with self._moment() as recorded:
            tables: dict[str, Callable[[], Rows]] = {
                "sessions": lambda: recorded.sessions(system.now_us()),
                "subscriptions": recorded.subscriptions,
                "groups": lambda: _groups(recorded),
                "queues": recorded.queues,
                "losses": recorded.losses,
                "cursors": lambda: self._cursors(recorded),
            }
            yield from tables[name]()

    def _cursors(self, recorded: RecordedMoment) -> Rows:
        cursors = recorded.cursors()
        states.move_cursors(cursors, states.acknowledged(self._log().recorded()[0]))
        yield list(cursors.values())

    def _log(self) -> LogDirectory:
        return LogDirectory(str(self._data_dir / LOG_DIRECTORY))

    @contextmanager
    def _moment(self) -> Iterator[RecordedMoment]:
        recorded = RecordedMoment(self._data_dir / VIEW_FILE)
        try:
            yield recorded
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
