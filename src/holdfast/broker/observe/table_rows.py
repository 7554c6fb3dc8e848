"""The rows of a moment's tables, written as they come.

Owns: the files while they are written, and what parties are called. Never: waits, or is used by two
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
        import pyarrow as pa  # Loaded behind the start (`reading.log` says why).
        import pyarrow.compute as pc

        from holdfast.reading.tables import SCHEMAS, TableFile

        self._pa, self._pc = pa, pc
        self._moment = moment
        self._recorded = recorded
        self._files: dict[str, TableFile] = {
            name: TableFile(directory / f"{name}.arrow", SCHEMAS[name])
            for name in SCHEMAS
            if name in names
        }
        self._parties = self._queues = self._names = pa.array([], pa.null())
        self._present: list[pa.Array] = []
        """Parties with a receiver."""
        self._cursors = recorded.cursors() if "cursors" in names else {}

    def write_recorded(self) -> None:
        """What is on record, with those sessions that are on none."""
        self._learn_parties()
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
        found = _columns(self._pa, columns, IN_FLIGHT)
        self._present.append(found["party"].filter(self._is(found, 0)))
        self._deliveries(found, self._pc.invert(self._is(found, 0)), "in flight")

    def write_states(self, acknowledged: Columns, at_rest: Columns) -> None:
        """What delivery states have, after all that is in flight."""
        pa, pc = self._pa, self._pc
        present = pa.chunked_array(self._present, pa.uint32()).combine_chunks()
        found = _columns(pa, at_rest, IN_FLIGHT)
        away = pc.invert(pc.is_in(found["party"], value_set=present))
        self._deliveries(found, away, "at rest")
        ranges = _columns(pa, acknowledged, ACKNOWLEDGED)
        self._move_cursors(ranges)
        if "acknowledgements" not in self._files:
            return
        known = pc.index_in(ranges["party"], value_set=self._parties)
        wanted = pc.and_(pc.is_valid(known), pc.less(ranges["begin"], ranges["end"]))
        known = known.filter(wanted)
        self._files["acknowledgements"].write(
            {
                "queue": self._queues.take(known),
                "name": self._names.take(known),
                "begin": ranges["begin"].filter(wanted),
                "end": ranges["end"].filter(wanted),
            }
        )

    def write_retained(self, columns: Columns) -> None:
        """Retained messages."""
        pa, rows = self._pa, columns["rows"]
        ends, names = pa.py_buffer(columns["name_ends"]), pa.py_buffer(columns["names"])
        found = _columns(pa, columns, RETAINED)
        self._files["retained"].write(
            {
                "topic": pa.Array.from_buffers(pa.string(), rows, [None, ends, names]),
                "offset": found["offset"],
                "expires_at": self._time(found["expires_at"]),
            }
        )

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

    def _move_cursors(self, ranges: dict[str, "pa.Array"]) -> None:
        """A cursor is where its first range ends."""
        if not self._cursors:
            return
        pa, pc = self._pa, self._pc
        wanted = pc.and_(
            pc.is_in(ranges["party"], value_set=pa.array(list(self._cursors), pa.uint32())),
            pc.equal(ranges["begin"], pa.scalar(0, pa.uint64())),
        )
        places = (ranges[name].filter(wanted).to_pylist() for name in ("party", "end"))
        for party, place in zip(*places, strict=True):
            self._cursors[party]["place"] = place

    def _learn_parties(self) -> None:
        pa = self._pa
        parts = []
        for rows in self._recorded.parties():
            parts.append([pa.array(column) for column in zip(*rows, strict=True)])
        there = self._moment.attached
        for first in range(0, len(there), ROWS_AT_ONCE):
            sessions = [item.session for item in there[first : first + ROWS_AT_ONCE]]
            unkept = [session for session in sessions if not is_durable(session)]
            names = [session.client_identifier for session in unkept]
            numbers = [session.party for session in unkept]
            parts.append([pa.array(numbers), pa.array(names), pa.array(names)])
        kinds = (pa.uint32(), pa.string(), pa.string())
        self._parties, self._queues, self._names = (
            pa.chunked_array([part[at].cast(kind) for part in parts], kind).combine_chunks()
            for at, kind in enumerate(kinds)
        )

    def _sessions(self, unrecorded: list[Attached]) -> Iterator[Rows]:
        yield from self._recorded.sessions(self._moment.at_us)
        rows = (session_row(_fields(item.session), self._moment.at_us) for item in unrecorded)
        yield list(rows)

    def _subscriptions(self, unrecorded: list[Attached]) -> Iterator[Rows]:
        yield from self._recorded.subscriptions()
        # A change behind the moment has begun, and ended what was, at an offset that is not below.
        now = self._moment.offset
        yield [
            subscription_row(item.session.client_identifier, _fields(subscription))
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
        pa, pc = self._pa, self._pc
        found = {name: column.filter(wanted) for name, column in found.items()}
        queue = pc.index_in(found["queue"], value_set=self._parties)
        holder = pc.index_in(found["party"], value_set=self._parties)
        rows = len(queue)
        received = found["received"].cast(pa.bool_())
        self._files["deliveries"].write(
            {
                **{name: found[name] for name in ("offset", "packet_identifier", "qos")},
                "queue": pc.fill_null(self._queues.take(queue), ""),
                "name": pc.fill_null(self._names.take(queue), ""),
                "holder": pc.fill_null(self._names.take(holder), ""),
                "state": pa.array([state] * rows, pa.string()),
                "phase": pc.if_else(received, "received", "sent"),
                "retained": found["retained"].cast(pa.bool_()),
                "attempts": found["attempts"],
                "since": self._time(found["since"]),
            }
        )

    def _is(self, found: dict[str, "pa.Array"], packet_identifier: int) -> "pa.Array":
        number = self._pa.scalar(packet_identifier, self._pa.uint16())
        return self._pc.equal(found["packet_identifier"], number)

    def _time(self, column: "pa.Array") -> "pa.Array":
        """Microseconds as a time; 0 is none."""
        from holdfast.reading.columns import TIMESTAMP

        pa = self._pa
        known = self._pc.not_equal(column, pa.scalar(0, pa.uint64()))
        times = column.cast(pa.int64()).cast(TIMESTAMP)
        return self._pc.if_else(known, times, pa.scalar(None, TIMESTAMP))

    def _put(self, name: str, rows: Rows) -> None:
        file = self._files[name]
        file.write({field: [row[field] for row in rows] for field in file.names})


RETAINED = {"offset": "uint64", "expires_at": "uint64"}
ACKNOWLEDGED = {"party": "uint32", "begin": "uint64", "end": "uint64"}
IN_FLIGHT = {
    "party": "uint32",
    "packet_identifier": "uint16",
    "offset": "uint64",
    "qos": "uint8",
    "received": "uint8",
    "retained": "uint8",
    "queue": "uint32",
    "attempts": "uint16",
    "since": "uint64",
}


def _columns(pa: Any, columns: Columns, kinds: dict[str, str]) -> dict[str, "pa.Array"]:
    """Columns of the kernel as arrays over its bytes."""
    rows, found = columns["rows"], {}
    for name, kind in kinds.items():
        buffers = [None, pa.py_buffer(columns[name])]
        found[name] = pa.Array.from_buffers(pa.type_for_alias(kind), rows, buffers)
    return found


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}
