"""The rows of a moment's tables, written as they come.

Owns: the files while they are written, and who was connected. Never: waits, or is used by two
threads at once.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.broker.moments import Columns, Moment
from holdfast.broker.mqtt.attached import Attached, is_durable
from holdfast.reading.directory import LogDirectory
from holdfast.reading.recorded import ROWS_AT_ONCE, RecordedMoment, session_row, subscription_row

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.reading.tables import TableFile

Rows = list[dict[str, Any]]


class TableRows:
    """Writes the tables of a moment to a directory."""

    def __init__(
        self, directory: Path, names: frozenset[str], moment: Moment, recorded: RecordedMoment
    ) -> None:
        # Loaded behind the start, as Arrow is (`reading.log` says why).
        import pyarrow as pa
        import pyarrow.compute as pc

        from holdfast.reading import states
        from holdfast.reading.tables import SCHEMAS, TableFile

        self._pa, self._pc, self._states = pa, pc, states
        self._moment = moment
        self._recorded = recorded
        self._files: dict[str, TableFile] = {
            name: TableFile(directory / f"{name}.arrow", SCHEMAS[name])
            for name in SCHEMAS
            if name in names
        }
        self._tables = states.StateTables([])
        self._present: list[pa.Array] = []
        """Parties with a receiver."""
        self._cursors = recorded.cursors() if "cursors" in names else {}

    def write_recorded(self) -> None:
        """What is on record, with those sessions that are on none."""
        self._tables = self._states.StateTables(self._all_parties())
        unrecorded = [item for item in self._moment.attached if not is_durable(item.session)]
        writers: dict[str, Callable[[], Iterator[Rows]]] = {
            "sessions": lambda: self._sessions(unrecorded),
            "subscriptions": lambda: self._subscriptions(unrecorded),
            "groups": lambda: self._groups(unrecorded),
            "queues": self._recorded.queues,
            "losses": self._recorded.losses,
        }
        for name, rows in writers.items():
            if name in self._files:
                for part in rows():
                    self._put(name, part)

    def write_in_flight(self, columns: Columns) -> None:
        """What was in flight to who was connected."""
        found = self._states.in_flight(columns)
        is_presence = self._is(found, 0)
        self._present.append(found["party"].filter(is_presence))
        self._deliveries(found, self._pc.invert(is_presence), "in flight")

    def write_states(self, acknowledged: Columns, at_rest: Columns) -> None:
        """What delivery states have, after all that is in flight."""
        pa, pc = self._pa, self._pc
        present = pa.chunked_array(self._present, pa.uint32()).combine_chunks()
        found = self._states.in_flight(at_rest)
        away = pc.invert(pc.is_in(found["party"], value_set=present))
        self._deliveries(found, away, "at rest")
        ranges = self._states.acknowledged(acknowledged)
        if self._cursors:
            self._states.move_cursors(self._cursors, ranges)
        if "acknowledgements" in self._files:
            self._files["acknowledgements"].write(self._tables.acknowledgements(ranges))

    def write_retained(self, columns: Columns) -> None:
        """Retained messages."""
        self._files["retained"].write(self._states.retained(columns))

    def write_topics(self, log: LogDirectory) -> None:
        """Topics, with how many messages the log has of each."""
        after = ""
        while found := log.topics("#", after, ROWS_AT_ONCE):
            after = found[-1][0]
            names, messages = zip(*found, strict=True)
            self._files["topics"].write({"topic": list(names), "messages": list(messages)})

    def close(self) -> list["TableFile"]:
        """Ends the files; returns them."""
        self._recorded.close()
        if self._cursors:
            self._put("cursors", list(self._cursors.values()))
        for file in self._files.values():
            file.close()
        return list(self._files.values())

    def _all_parties(self) -> Iterator[list[tuple[int, str, str]]]:
        yield from self._recorded.parties()
        there = self._moment.attached
        for first in range(0, len(there), ROWS_AT_ONCE):
            sessions = [item.session for item in there[first : first + ROWS_AT_ONCE]]
            unkept = [session for session in sessions if not is_durable(session)]
            yield [(each.party, each.client_identifier, each.client_identifier) for each in unkept]

    def _sessions(self, unrecorded: list[Attached]) -> Iterator[Rows]:
        yield from self._recorded.sessions(self._moment.at_us)
        rows = (session_row(_fields(item.session), self._moment.at_us) for item in unrecorded)
        yield list(rows)

    def _subscriptions(self, unrecorded: list[Attached]) -> Iterator[Rows]:
        yield from self._recorded.subscriptions()
        # A change behind the moment has begun, and ended what was, at an offset that is not below.
        now = self._moment.offset
        yield [
            subscription_row(item.session.client_identifier, subscription._asdict())
            for item in unrecorded
            for subscription in item.subscriptions
            if subscription.from_offset <= now < subscription.until_offset
        ]

    def _groups(self, unrecorded: list[Attached]) -> Iterator[Rows]:
        there = {item.session.client_identifier for item in self._moment.attached}
        members, connected = Counter[str](), Counter[str]()
        for rows in self._subscriptions(unrecorded):
            groups = [row for row in rows if row["group"] is not None]
            members.update(row["group"] for row in groups)
            connected.update(row["group"] for row in groups if row["client"] in there)
        yield from self._recorded.groups(lambda group: (members[group], connected[group]))

    def _deliveries(self, found: dict[str, "pa.Array"], wanted: "pa.Array", state: str) -> None:
        if "deliveries" not in self._files:
            return
        chosen = {name: column.filter(wanted) for name, column in found.items()}
        self._files["deliveries"].write(self._tables.deliveries(chosen, state))

    def _is(self, found: dict[str, "pa.Array"], packet_identifier: int) -> "pa.Array":
        number = self._pa.scalar(packet_identifier, self._pa.uint16())
        return self._pc.equal(found["packet_identifier"], number)

    def _put(self, name: str, rows: Rows) -> None:
        file = self._files[name]
        file.write({field: [row[field] for row in rows] for field in file.names})


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}
