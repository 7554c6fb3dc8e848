"""Rows of a batch, from the Arrow stream in which a writer sends them.

Owns: which columns a writer may send, and of which types. Never: looks at a value that fits its
type; the kernel does, column by column.

Invariant: what is no column here is refused with its name, and so is a type that does not fit; a
value that does not is refused with its row.
"""

import struct
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final

from holdfast.broker.batches.arrow_messages import check_messages, check_types
from holdfast.core.written import WRITTEN_COLUMNS
from holdfast.kernel import encode_rows

if TYPE_CHECKING:
    import pyarrow as pa

PublishGrant = list[tuple[bytes, bool]] | None
"""Where a publisher may publish; see `Routes.grant`."""

WHOLE: Final = {"qos": (2, "0, 1 or 2"), "expiry": (2**32 - 1, "0 to 4294967295 seconds")}
"""The greatest number of a column, and what it may be in words."""
PAIRED: Final = ("headers", "properties")
"""Columns of names with their values."""


def rows_of_stream(
    content: bytes | bytearray, publish: PublishGrant, message_bytes_maximum: int
) -> tuple[bytes, int]:
    """The rows, as the kernel takes them, and their number. Raises `ValueError` with what is wrong,
    and where."""
    import pyarrow as pa  # Loaded behind the start (`reading.log` says why).

    rows, batches, count = [], [], 0
    try:
        check_messages(content)
        with pa.ipc.open_stream(content) as stream:
            _check_names(stream.schema.names)
            check_types(stream.schema)
            for batch in stream:
                _validate(batch, count)
                batches.append(batch)
                count += batch.num_rows
            # In one, so that a row that is refused has its number in the stream.
            for batch in (
                pa.Table.from_batches(batches, stream.schema).combine_chunks().to_batches()
            ):
                if batch.num_rows:
                    columns = _columns(batch)
                    rows.append(
                        encode_rows(
                            columns,
                            batch.num_rows,
                            properties_are_texts="properties" in batch.schema.names,
                            publish=publish,
                            message_bytes_maximum=message_bytes_maximum,
                        )
                    )
    except (pa.ArrowException, OSError, struct.error) as error:
        raise ValueError(f"this is no Arrow stream of messages: {error}") from error
    return b"".join(rows), count


def _check_names(names: list[str]) -> None:
    for name in names:
        if name not in WRITTEN_COLUMNS:
            raise ValueError(f"unknown column '{name}'; known here: {', '.join(WRITTEN_COLUMNS)}")
        if names.count(name) > 1:
            raise ValueError(f"column '{name}' is there twice")
    for name in WRITTEN_COLUMNS[:2]:
        if name not in names:
            raise ValueError(f"column '{name}' is missing")
    if "headers" in names and "properties" in names:
        raise ValueError("columns 'headers' and 'properties' are the same in two forms; send one")


def _validate(batch: "pa.RecordBatch", first: int) -> None:
    """Raises what Arrow raises of a batch whose values lead to bytes that are nobody's, and a
    `ValueError` for a text that is none. Its first row is the stream's row `first`."""
    import pyarrow as pa

    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        for name in batch.schema.names:
            column = batch.column(name)
            parts = _parts(column) if name in PAIRED else [column]
            for part in parts:
                at = _first_that_is_no_text(part)
                if at is not None:
                    row = at if part is column else _row_of(column, at)
                    problem = f"column '{name}' holds bytes that are no UTF-8"
                    raise ValueError(f"row {first + row}{_topic(batch, row)}: {problem}") from None
        raise


def _first_that_is_no_text(column: "pa.Array") -> int | None:
    """The first string that is no UTF-8, of a column that holds strings."""
    import pyarrow as pa

    if not pa.types.is_string(column.type):
        return None
    found = column.view(pa.binary())
    found.validate(full=True)
    for at, each in enumerate(found):
        try:
            str(each.as_py() or b"", "utf-8")
        except UnicodeDecodeError:
            return at
    return None


def _topic(batch: "pa.RecordBatch", row: int) -> str:
    """The topic of a row in words, whether it is UTF-8 or not."""
    import pyarrow as pa

    topic = batch.column("topic")
    if not pa.types.is_string(topic.type):
        return ""
    told = topic.view(pa.binary())
    told.validate(full=True)
    return f", topic '{(told[row].as_py() or b'').decode(errors='backslashreplace')}'"


def _row_of(column: "pa.Array", at: int) -> int:
    """The row of a list that a part of it is in."""
    return bisect_right(column.offsets.to_pylist(), at) - 1


def _columns(batch: "pa.RecordBatch") -> dict[str, list[bytes]]:
    import pyarrow as pa

    found = {name: batch.column(name) for name in batch.schema.names}
    if found["topic"].null_count:
        row = found["topic"].is_null().to_pylist().index(True)
        raise ValueError(f"row {row}: its topic is null")
    columns = {
        "topic": _texts(_cast("topic", found["topic"], pa.string())),
        "value": _texts(_cast("value", found["value"], pa.binary())),
    }
    if "key" in found:
        columns["key"] = [
            _present(found["key"]),
            *_texts(_cast("key", found["key"], pa.binary())),
        ]
    if "qos" in found:
        columns["qos"] = [_bytes(_whole("qos", found, pa.uint8()).fill_null(1), 1)]
    if "retain" in found:
        retain = _cast("retain", found["retain"], pa.bool_())
        columns["retain"] = [_bytes(retain.fill_null(False).cast(pa.uint8()), 1)]
    if "eventTime" in found:
        times = _times(found["eventTime"])
        columns["event_time"] = [_present(times), _bytes(times.fill_null(0), 8)]
    if "expiry" in found:
        expiry = _whole("expiry", found, pa.uint32())
        columns["expiry"] = [_present(expiry), _bytes(expiry.fill_null(0), 4)]
    for name in PAIRED:
        if name in found:
            columns["properties"] = _pairs(name, found)
    return columns


def _cast(name: str, column: "pa.Array", kind: "pa.DataType") -> "pa.Array":
    import pyarrow as pa

    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"column '{name}' does not hold {kind}: {error}") from error


def _whole(name: str, found: dict[str, "pa.Array"], kind: "pa.DataType") -> "pa.Array":
    """The numbers of a column. Raises `ValueError` for the first one that does not fit."""
    import pyarrow as pa

    column = found[name]
    try:
        return _cast(name, column, kind)
    except ValueError:
        if not pa.types.is_integer(column.type):
            raise
        most, told = WHOLE[name]
        for row, value in enumerate(column.to_pylist()):
            if value is not None and not 0 <= value <= most:
                topic = found["topic"][row].as_py()
                raise ValueError(
                    f"row {row}, topic '{topic}': {name} is {told}, not {value}"
                ) from None
        raise


def _times(column: "pa.Array") -> "pa.Array":
    import pyarrow as pa

    if not pa.types.is_timestamp(column.type):
        raise ValueError(f"column 'eventTime' does not hold timestamps but {column.type}")
    return _cast("eventTime", column.cast(pa.timestamp("us", column.type.tz)), pa.int64())


def _pairs(name: str, found: dict[str, "pa.Array"]) -> list[bytes]:
    """The counts, names and values of a map or of a list of pairs."""
    import pyarrow as pa

    column = found[name]
    if not (parts := _parts(column)):
        raise ValueError(f"column '{name}' is a map, or a list of key and value, not {column.type}")
    names, values = parts
    if names.null_count:
        row = _row_of(column, names.is_null().index(True).as_py())
        topic = found["topic"][row].as_py()
        raise ValueError(f"row {row}, topic '{topic}': column '{name}' has a pair without a name")
    counts = column.buffers()[1].slice(column.offset * 4, (len(column) + 1) * 4)
    return [
        counts.to_pybytes(),
        *_texts(_cast(name, names, pa.string())),
        *_texts(_cast(name, values, pa.binary())),
    ]


def _parts(column: "pa.Array") -> list["pa.Array"]:
    """The names and the values of a map or of a list of pairs; nothing of another column."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_map(kind):
        return [column.keys, column.items]
    is_paired = pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)
    if is_paired and [field.name for field in kind.value_type] == ["key", "value"]:
        return [column.values.field(0), column.values.field(1)]
    return []


def _present(column: "pa.Array") -> bytes:
    """A byte for each row: 1 where it has a value."""
    import pyarrow as pa

    return _bytes(column.is_valid().cast(pa.uint8()), 1)


def _texts(column: "pa.Array") -> list[bytes]:
    """Offsets and data; what is not there is empty."""
    import pyarrow as pa

    filled = column.fill_null("" if pa.types.is_string(column.type) else b"")
    _, offsets, data = filled.buffers()
    if offsets is None or not len(filled):
        return [bytes(4), b""]
    found = offsets.slice(filled.offset * 4, (len(filled) + 1) * 4)
    return [found.to_pybytes(), b"" if data is None else data.to_pybytes()]


def _bytes(column: "pa.Array", width: int) -> bytes:
    buffer: Any = column.buffers()[1]
    found: bytes = buffer.slice(column.offset * width, len(column) * width).to_pybytes()
    return found
