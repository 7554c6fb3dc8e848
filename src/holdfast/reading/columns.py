"""Make an Arrow record batch of the kernel's columns.

Owns: the schema of the read interface.
Never: copies a column or looks at a row; it only says where the buffers lie.

Invariants:
1. A batch has exactly the schema's columns, in the schema's order.
2. Every buffer that the kernel handed over stays alive as long as the batch does.

Flow: kernel `LogReader.read` -> here -> HTTP response, Spark task, command line.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
PROPERTIES = pa.map_(pa.string(), pa.string())

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
    ]
)
"""Every column that can be read, in its order."""


def record_batch(columns: Mapping[str, Any]) -> pa.RecordBatch:
    """A record batch over what `LogReader.read` returned, without copying it."""
    rows = columns["rows"]
    arrays = [_array(field.type, rows, columns[field.name]) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _array(kind: pa.DataType, rows: int, buffers: Sequence[Any]) -> pa.Array:
    if kind == PROPERTIES:
        return _map_array(rows, buffers)
    return pa.Array.from_buffers(kind, rows, [_buffer(each) for each in buffers])


def _map_array(rows: int, buffers: Sequence[Any]) -> pa.Array:
    """A map has no buffers but offsets: its keys and values are two string columns below it."""
    offsets, key_offsets, key_data, value_offsets, value_data = map(_buffer, buffers)
    pairs = pa.Array.from_buffers(pa.int32(), rows + 1, [None, offsets])[rows].as_py()
    entries = pa.StructArray.from_arrays(
        [
            pa.StringArray.from_buffers(pairs, key_offsets, key_data),
            pa.StringArray.from_buffers(pairs, value_offsets, value_data),
        ],
        fields=[PROPERTIES.key_field, PROPERTIES.item_field],
    )
    return pa.Array.from_buffers(PROPERTIES, rows, [None, offsets], children=[entries])


def _buffer(data: Any) -> pa.Buffer | None:
    return None if data is None else pa.py_buffer(data)
