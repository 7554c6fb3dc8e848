"""Rows of a batch, from the Arrow stream in which a writer sends them.

Owns: which columns a writer may send, and of which types. Never: looks at a value that fits its
type; the kernel does, column by column.

Invariant: what is no column here is refused with its name, and so is a type that does not fit; a
value that does not is refused with its row.
"""

import struct
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


def rows_of_stream(
    content: bytes | bytearray, publish: PublishGrant, message_bytes_maximum: int
) -> tuple[bytes, int]:
    """The rows, as the kernel takes them, and their number. Raises `ValueError` with what is wrong,
    and where."""
    import pyarrow as pa  # Loaded behind the start (`reading.log` says why).

    rows, count = [], 0
    try:
        check_messages(content)
        with pa.ipc.open_stream(content) as stream:
            _check_names(stream.schema.names)
            check_types(stream.schema)
            for batch in stream:
                # Until then its offsets may lead to bytes that are nobody's.
                batch.validate(full=True)
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
                    count += batch.num_rows
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
    for name in ("headers", "properties"):
        if name in found:
            columns["properties"] = _pairs(name, found[name])
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


def _pairs(name: str, column: "pa.Array") -> list[bytes]:
    """The counts, names and values of a map or of a list of pairs."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_map(kind):
        names, values = column.keys, column.items
    elif pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        pairs = column.values
        if [field.name for field in kind.value_type] != ["key", "value"]:
            raise ValueError(f"column '{name}' is a list of key and value, not of {kind}")
        names, values = pairs.field(0), pairs.field(1)
    else:
        raise ValueError(f"column '{name}' is a map, or a list of key and value, not {kind}")
    if names.null_count:
        raise ValueError(f"column '{name}' has a pair without a name")
    counts = column.buffers()[1].slice(column.offset * 4, (len(column) + 1) * 4)
    return [
        counts.to_pybytes(),
        *_texts(_cast(name, names, pa.string())),
        *_texts(_cast(name, values, pa.binary())),
    ]


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
