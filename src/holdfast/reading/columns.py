"""Make an Arrow record batch of the kernel's columns.

Owns: the schema of the read interface.
Never: copies a column or looks at a row; it only says where the buffers lie.

Invariants:
1. A batch has exactly the columns that were asked for, in that order.
2. Every buffer that the kernel handed over stays alive as long as the batch does.

Flow: kernel `LogReader.read` -> here -> HTTP response, Spark task, command line.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
PROPERTIES = pa.map_(pa.string(), pa.string())
HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(pa.field("element", HEADER))

SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("shard", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("entry", pa.int64(), nullable=False),
        pa.field("timestamp", TIMESTAMP, nullable=False),
        pa.field("event_time", TIMESTAMP),
        pa.field("qos", pa.int32(), nullable=False),
        pa.field("retain", pa.bool_(), nullable=False),
        pa.field("publisher", pa.int64()),
        pa.field("expires_at", TIMESTAMP),
        pa.field("properties", PROPERTIES, nullable=False),
        pa.field("headers", HEADERS, nullable=False),
    ]
)
"""Every column that can be read, in its order."""


def record_batch(columns: Mapping[str, Any], names: Sequence[str]) -> pa.RecordBatch:
    """A record batch over what `LogReader.read` returned, without copying it."""
    rows = columns["rows"]
    schema = pa.schema([SCHEMA.field(name) for name in names])
    arrays = [_array(field.type, rows, columns[field.name]) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(kind: pa.DataType, rows: int, buffers: Sequence[Any]) -> pa.Array:
    if kind == PROPERTIES:
        entries = [PROPERTIES.key_field, PROPERTIES.item_field]
        return _list_array(kind, entries, rows, buffers)
    if kind == HEADERS:
        return _list_array(kind, [HEADER.field("key"), HEADER.field("value")], rows, buffers)
    return pa.Array.from_buffers(kind, rows, [_buffer(each) for each in buffers])


def _list_array(
    kind: pa.DataType, fields: Sequence[pa.Field], rows: int, buffers: Sequence[Any]
) -> pa.Array:
    """A list of pairs has no buffers but offsets: keys and values are two columns below it."""
    offsets, *below = map(_buffer, buffers)
    pairs = pa.Array.from_buffers(pa.int32(), rows + 1, [None, offsets])[rows].as_py()
    keys, values = [None, *below[:2]], [None, *below[2:]]
    entries = pa.StructArray.from_arrays(
        [
            pa.Array.from_buffers(fields[0].type, pairs, keys),
            pa.Array.from_buffers(fields[1].type, pairs, values),
        ],
        fields=list(fields),
    )
    return pa.Array.from_buffers(kind, rows, [None, offsets], children=[entries])


def _buffer(data: Any) -> pa.Buffer | None:
    return None if data is None else pa.py_buffer(data)
