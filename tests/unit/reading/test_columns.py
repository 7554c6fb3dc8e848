"""Columns of the kernel become Arrow batches, without a copy and without a look at the rows."""

from typing import Any

import pyarrow as pa
import pytest

from holdfast.reading.columns import HEADERS, PROPERTIES, SCHEMA, record_batch
from holdfast.reading.log import COLUMNS


def kernel_columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What `LogReader.read` returns for these rows, made by Arrow itself."""
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    columns: dict[str, Any] = {"rows": batch.num_rows}
    for field, array in zip(SCHEMA, batch.columns, strict=True):
        if field.type == PROPERTIES:
            keys, values = array.keys.buffers(), array.items.buffers()
            columns[field.name] = [array.buffers()[1], *keys[1:], *values[1:]]
        elif field.type == HEADERS:
            keys, values = (array.values.field(place).buffers() for place in (0, 1))
            columns[field.name] = [array.buffers()[1], *keys[1:], *values[1:]]
        else:
            columns[field.name] = array.buffers()
        columns[field.name] = [
            None if each is None else each.to_pybytes() for each in columns[field.name]
        ]
    return columns


def row(offset: int, **changes: Any) -> dict[str, Any]:
    plain = {
        "topic": f"zebra/fx/{offset}/reads",
        "key": None,
        "value": b"payload",
        "shard": 0,
        "offset": offset,
        "entry": offset,
        "timestamp": 1_700_000_000_000_000 + offset,
        "event_time": None,
        "qos": 1,
        "retain": False,
        "publisher": None,
        "expires_at": None,
        "properties": [],
        "headers": [],
    }
    return {**plain, **changes}


def test_every_column_comes_through() -> None:
    rows = [
        row(0, key=b"k", properties=[("a", "1"), ("b", "2")]),
        row(3, headers=[{"key": "a", "value": b"\xff"}, {"key": "a", "value": b""}]),
        row(1, retain=True, qos=2, event_time=5, expires_at=7, publisher=3),
        row(2, value=b"", properties=[("a", "")]),
    ]
    batch = record_batch(kernel_columns(rows), COLUMNS)
    batch.validate(full=True)
    assert batch.schema == SCHEMA
    assert batch.to_pylist() == pa.RecordBatch.from_pylist(rows, schema=SCHEMA).to_pylist()


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
def test_any_number_of_rows(count: int) -> None:
    rows = [row(n, retain=n % 3 == 0, properties=[("n", str(n))] * (n % 3)) for n in range(count)]
    batch = record_batch(kernel_columns(rows), COLUMNS)
    batch.validate(full=True)
    assert batch.num_rows == count
    assert batch["retain"].to_pylist() == [n % 3 == 0 for n in range(count)]
    assert batch["properties"].to_pylist() == [[("n", str(n))] * (n % 3) for n in range(count)]


def test_payloads_are_not_copied() -> None:
    columns = kernel_columns([row(0), row(1)])
    value = record_batch(columns, ["offset", "value"])["value"]
    assert value.buffers()[2].address == pa.py_buffer(columns["value"][2]).address


def test_the_names_told_without_arrow_are_the_schema_s() -> None:
    assert tuple(SCHEMA.names) == COLUMNS
