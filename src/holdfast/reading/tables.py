"""Tables about a broker: their columns, and the files that they are handed over in.

Owns: the schemas of the tables. Never: knows where rows come from.

A column is added here first: the broker writes by it, Spark reads by it, and the page of the
tables is checked against it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from holdfast.reading.columns import TIMESTAMP

TEXT, COUNT, FLAG, NUMBER = pa.string(), pa.int64(), pa.bool_(), pa.int32()
FILTERS = pa.list_(pa.field("element", TEXT, nullable=False))


def _schema(required: dict[str, pa.DataType], optional: dict[str, pa.DataType]) -> pa.Schema:
    fields = [pa.field(name, kind, nullable=False) for name, kind in required.items()]
    return pa.schema(fields + [pa.field(name, kind) for name, kind in optional.items()])


SCHEMAS: Final = {
    "topics": _schema({"topic": TEXT, "messages": COUNT}, {}),
    "retained": _schema({"topic": TEXT, "offset": COUNT}, {"expires_at": TIMESTAMP}),
    "sessions": _schema(
        {
            "client": TEXT,
            "state": TEXT,
            "client_type": TEXT,
            "protocol_version": NUMBER,
            "persistent": FLAG,
            "will": FLAG,
        },
        {"user_name": TEXT, "queue": TEXT, "expiry_s": COUNT, "expires_at": TIMESTAMP},
    ),
    "subscriptions": _schema(
        {
            "client": TEXT,
            "topic_filter": TEXT,
            "qos": NUMBER,
            "no_local": FLAG,
            "retain_as_published": FLAG,
            "from_offset": COUNT,
        },
        {"group": TEXT, "identifier": COUNT},
    ),
    "groups": _schema(
        {
            "group": TEXT,
            "name": TEXT,
            "topic_filter": TEXT,
            "members": COUNT,
            "connected": COUNT,
        },
        {"queue": TEXT, "ends_at": TIMESTAMP},
    ),
    "queues": _schema(
        {
            "queue": TEXT,
            "name": TEXT,
            "kind": TEXT,
            "filters": FILTERS,
            "created_at_offset": COUNT,
        },
        {"queue_name": TEXT, "ends_at": TIMESTAMP, "end_offset": COUNT},
    ),
    "deliveries": _schema(
        {
            "queue": TEXT,
            "name": TEXT,
            "offset": COUNT,
            "state": TEXT,
            "holder": TEXT,
            "packet_identifier": NUMBER,
            "qos": NUMBER,
            "phase": TEXT,
            "retained": FLAG,
            "attempts": NUMBER,
        },
        {"since": TIMESTAMP},
    ),
    "acknowledgements": _schema(
        {"queue": TEXT, "name": TEXT, "begin": COUNT, "end": COUNT},
        {},
    ),
    "losses": _schema(
        {
            "number": COUNT,
            "name": TEXT,
            "reason": TEXT,
            "begin": COUNT,
            "end": COUNT,
            "messages": COUNT,
            "at": TIMESTAMP,
        },
        {"redriven_at": TIMESTAMP},
    ),
    "cursors": _schema(
        {"name": TEXT, "queue": TEXT, "filters": FILTERS, "place": COUNT},
        {"holder": TEXT, "held_as": TEXT, "made_by": TEXT},
    ),
}
"""Every table but `messages`, which is read as the log is."""


class TableFile:
    """A table that is being written, batch by batch, as an Arrow stream."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.rows = 0
        self.path = path
        self.names = schema.names
        self._stream = pa.ipc.new_stream(pa.OSFile(str(path), "wb"), schema)
        self._schema = schema

    def write(self, columns: Mapping[str, object]) -> None:
        """Further rows, as columns of the schema."""
        batch = batch_of(columns, self._schema)
        self.rows += batch.num_rows
        self._stream.write_batch(batch)

    def close(self) -> None:
        """That was all."""
        self._stream.close()


def batch_of(columns: Mapping[str, object], schema: pa.Schema) -> pa.RecordBatch:
    """Columns of a table as a batch of its schema."""
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, field.type)
        for field in schema
        for column in [columns[field.name]]
    ]
    arrays = [array.cast(field.type) for array, field in zip(arrays, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def rows_of(path: Path) -> Iterator[pa.RecordBatch]:
    """The batches of a table that was written."""
    with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as stream:
        yield from stream
