"""Arrow streams that writers send: what lies in them is what comes out, or they are refused."""

import datetime
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.batches.arrow import rows_of_stream

BYTES_MAXIMUM = 1 << 20
LARGE = b"\0" * 100_000
PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])


def stream(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def messages(value: pa.Array) -> pa.Table:
    return pa.table({"topic": ["a"] * len(value), "value": value})


def rows(content: bytes) -> int:
    return rows_of_stream(content, None, BYTES_MAXIMUM)[1]


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_what_is_compressed_is_refused_before_it_is_decoded(compression: str) -> None:
    table = messages(pa.array([LARGE] * 50))
    assert rows(stream(table)) == 50
    with pytest.raises(ValueError, match="it is compressed; send it without"):
        rows(stream(table, compression))


def dictionary() -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int32()), pa.array([LARGE]))


def runs() -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array([LARGE]))


def views() -> pa.Array:
    return pa.array([LARGE, LARGE], pa.binary_view())


@pytest.mark.parametrize("value", [dictionary, runs, views])
def test_values_that_stand_for_others_are_refused(value: Callable[[], pa.Array]) -> None:
    with pytest.raises(ValueError, match="send values as they are"):
        rows(stream(messages(value())))
    within = pa.table(
        {
            "topic": ["a"],
            "value": [b"x"],
            "headers": pa.ListArray.from_arrays(
                [0, 2], pa.StructArray.from_arrays([["k", "k"], value()], ["key", "value"])
            ),
        }
    )
    with pytest.raises(ValueError, match="send values as they are"):
        rows(stream(within))


@pytest.mark.parametrize("column", ["value", "key"])
def test_bytes_that_are_nobodys_are_never_read(column: str) -> None:
    offsets = pa.py_buffer(b"".join(each.to_bytes(4, "little") for each in (0, 900_000, 8)))
    beyond = pa.Array.from_buffers(
        pa.binary(), 2, [pa.py_buffer(b"\x01"), offsets, pa.py_buffer(b"x" * 8)]
    )
    table = messages(pa.array([b"x", b"x"]))
    at = table.schema.get_field_index(column)
    table = table.set_column(at, column, beyond) if at >= 0 else table.append_column(column, beyond)
    with pytest.raises(ValueError, match="this is no Arrow stream of messages"):
        rows(stream(table))


NO_TEXT = pa.array([b"k", b"\xff"]).view(pa.string())


def headers(names: pa.Array) -> pa.Array:
    pairs = pa.StructArray.from_arrays([names, pa.array([b"v", b"v"])], ["key", "value"])
    return pa.ListArray.from_arrays(pa.array([0, 1, 1, 2], pa.int32()), pairs)


@pytest.mark.parametrize(
    ("column", "values", "problem"),
    [
        ("topic", pa.array(["a", "b", None]), "its topic is null"),
        ("topic", pa.array(["a", "b", "c/+"]), "a topic to publish to is not"),
        ("topic", pa.array([b"a", b"b", b"c\xff"]).view(pa.string()), "column 'topic' holds bytes"),
        ("value", pa.array([b"", b"", b"\xff"]).view(pa.string()), "column 'value' holds bytes"),
        ("value", pa.array([b"", b"", bytes(2 << 20)]), "the message has 2097153 bytes"),
        ("qos", pa.array([0, 1, 300]), "qos is 0, 1 or 2, not 300"),
        ("headers", headers(pa.array(["k", None])), "column 'headers' has a pair without a name"),
        ("headers", headers(NO_TEXT), "column 'headers' holds bytes that are no UTF-8"),
        (
            "properties",
            pa.MapArray.from_arrays([0, 1, 1, 2], ["k", "k"], NO_TEXT),
            "column 'properties' holds bytes that are no UTF-8",
        ),
    ],
)
def test_a_value_that_is_refused_is_told_with_its_row_in_the_stream(
    column: str, values: pa.Array, problem: str
) -> None:
    table = pa.table({"topic": ["a", "b", "c"], "value": [b"x"] * 3})
    at = table.schema.get_field_index(column)
    table = table.set_column(at, column, values) if at >= 0 else table.append_column(column, values)
    before = table.slice(0, 2)
    several = pa.concat_tables([before, before, table])
    with pytest.raises(ValueError, match=rf"^row 6(, topic 'c(/\+|\\xff)?')?: {problem}"):
        rows(stream(several))


def every_column() -> bytes:
    count = 12
    pairs = [None if n % 4 == 0 else [{"key": "k", "value": b"v"}] * (n % 3) for n in range(count)]
    day = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    table = pa.table(
        {
            "topic": [f"a/{n}" for n in range(count)],
            "value": pa.array([None if n % 5 == 0 else b"x" * n for n in range(count)]),
            "key": pa.array([None if n % 3 else b"k" for n in range(count)], pa.binary()),
            "qos": pa.array([None if n % 7 == 0 else 1 for n in range(count)], pa.int32()),
            "retain": pa.array([None if n % 2 else True for n in range(count)]),
            "headers": pa.array(pairs, pa.list_(PAIR)),
            "eventTime": pa.array([day if n % 2 else None for n in range(count)]),
            "expiry": pa.array([None if n % 2 else n for n in range(count)], pa.int64()),
        }
    )
    return stream(table)


EVERY = every_column()
CHANGED = st.lists(
    st.tuples(st.integers(0, len(EVERY) - 1), st.integers(0, 255)), min_size=1, max_size=4
)


@given(CHANGED)
def test_a_stream_that_was_damaged_is_taken_or_refused(changes: list[tuple[int, int]]) -> None:
    content = bytearray(EVERY)
    for at, byte in changes:
        content[at] = byte
    try:
        assert rows(bytes(content)) >= 0
    except ValueError:
        return
