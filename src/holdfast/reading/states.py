"""Deliveries, acknowledgements and retained messages as rows of tables, made of what the kernel has
copied of them.

Owns: how the kernel's columns become columns of a table, and what parties are called. Never: knows
whether they come from a running broker or from its directory.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.reading.columns import TIMESTAMP

Columns = Mapping[str, Any]
"""Rows as the kernel hands them out."""
Arrays = dict[str, pa.Array]

RETAINED: Final = {"offset": "uint64", "expires_at": "uint64"}
ACKNOWLEDGED: Final = {"party": "uint32", "begin": "uint64", "end": "uint64"}
IN_FLIGHT: Final = {
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
PARTY: Final = (pa.uint32(), pa.string(), pa.string())


class StateTables:
    """Rows of `deliveries` and `acknowledgements`."""

    def __init__(self, parties: Iterable[Sequence[tuple[int, str, str]]]) -> None:
        """Of everybody: party, what its queue is called, and its name."""
        parts = [
            [pa.array(column) for column in zip(*rows, strict=True)] for rows in parties if rows
        ]
        self._parties, self._queues, self._names = (
            pa.chunked_array([part[at].cast(kind) for part in parts], kind).combine_chunks()
            for at, kind in enumerate(PARTY)
        )

    def acknowledgements(self, ranges: Arrays) -> Arrays:
        """Of ranges that parties have acknowledged: those that are not empty, of known parties."""
        known = pc.index_in(ranges["party"], value_set=self._parties)
        wanted = pc.and_(pc.is_valid(known), pc.less(ranges["begin"], ranges["end"]))
        known = known.filter(wanted)
        return {
            "queue": self._queues.take(known),
            "name": self._names.take(known),
            "begin": ranges["begin"].filter(wanted),
            "end": ranges["end"].filter(wanted),
        }

    def deliveries(self, found: Arrays, state: str) -> Arrays:
        """Of what is in flight, all of it in this state."""
        queue = pc.index_in(found["queue"], value_set=self._parties)
        holder = pc.index_in(found["party"], value_set=self._parties)
        received = found["received"].cast(pa.bool_())
        return {
            **{name: found[name] for name in ("offset", "packet_identifier", "qos", "attempts")},
            "queue": pc.fill_null(self._queues.take(queue), ""),
            "name": pc.fill_null(self._names.take(queue), ""),
            "holder": pc.fill_null(self._names.take(holder), ""),
            "state": pa.array([state] * len(queue), pa.string()),
            "phase": pc.if_else(received, "received", "sent"),
            "retained": found["retained"].cast(pa.bool_()),
            "since": _times(found["since"]),
        }


def acknowledged(columns: Columns) -> Arrays:
    """What parties have acknowledged."""
    return _arrays(columns, ACKNOWLEDGED)


def in_flight(columns: Columns) -> Arrays:
    """What is in flight to parties."""
    return _arrays(columns, IN_FLIGHT)


def retained(columns: Columns) -> Arrays:
    """Rows of `retained`."""
    found = _arrays(columns, RETAINED)
    ends, names = pa.py_buffer(columns["name_ends"]), pa.py_buffer(columns["names"])
    return {
        "topic": pa.Array.from_buffers(pa.string(), columns["rows"], [None, ends, names]),
        "offset": found["offset"],
        "expires_at": _times(found["expires_at"]),
    }


def move_cursors(cursors: dict[int, dict[str, Any]], ranges: Arrays) -> None:
    """Rows of `cursors`, by party, get their places: a cursor is where its first range ends."""
    wanted = pc.and_(
        pc.is_in(ranges["party"], value_set=pa.array(list(cursors), pa.uint32())),
        pc.equal(ranges["begin"], pa.scalar(0, pa.uint64())),
    )
    places = (ranges[name].filter(wanted).to_pylist() for name in ("party", "end"))
    for party, place in zip(*places, strict=True):
        cursors[party]["place"] = place


def _times(column: pa.Array) -> pa.Array:
    """Microseconds as a time; 0 is none."""
    known = pc.not_equal(column, pa.scalar(0, pa.uint64()))
    return pc.if_else(known, column.cast(pa.int64()).cast(TIMESTAMP), pa.scalar(None, TIMESTAMP))


def _arrays(columns: Columns, kinds: Mapping[str, str]) -> Arrays:
    """Columns of the kernel as arrays over its bytes."""
    rows, found = columns["rows"], {}
    for name, kind in kinds.items():
        buffers = [None, pa.py_buffer(columns[name])]
        found[name] = pa.Array.from_buffers(pa.type_for_alias(kind), rows, buffers)
    return found
