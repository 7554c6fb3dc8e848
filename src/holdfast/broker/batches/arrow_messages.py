"""What the messages of an Arrow stream say of themselves, before anything of them is decoded.

Owns: that what is decoded is no longer than what came. Never: looks at a value.

Arrow makes room for whatever a compressed message says that it becomes, and pyarrow does not tell
which ones are compressed. Their metadata does: tables of FlatBuffers, of which Arrow itself has
checked that each lies within its bytes.
"""

from struct import unpack_from
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

# Fields by their places in `Message` and `RecordBatch` (Arrow's Message.fbs).
HEADER: Final = 2
COMPRESSION: Final = 3


def check_messages(content: bytes | bytearray) -> None:
    """Raises `ValueError` if a part of the stream is compressed, or stands for values that lie
    elsewhere; and what Arrow raises of one that is none."""
    import pyarrow as pa  # Loaded behind the start (`reading.log` says why).

    for message in pa.ipc.MessageReader.open_stream(content):
        if message.type not in ("schema", "record batch"):
            raise ValueError(f"it has a {message.type} in it; send values as they are")
        if message.type == "record batch" and _is_compressed(message):
            raise ValueError("it is compressed; send it without")


def check_types(schema: "pa.Schema") -> None:
    """Raises `ValueError` for a column whose values stand in less room than they take."""
    for field in schema:
        if not _is_plain(field.type):
            raise ValueError(
                f"column '{field.name}' is of type {field.type}; send values as they are"
            )


def _is_plain(kind: "pa.DataType") -> bool:
    import pyarrow.types as kinds

    if kinds.is_nested(kind):
        is_whole = kinds.is_list(kind) or kinds.is_map(kind) or kinds.is_struct(kind)
        return is_whole and all(_is_plain(kind.field(at).type) for at in range(kind.num_fields))
    is_shared = kinds.is_dictionary(kind) or kinds.is_run_end_encoded(kind)
    return not (is_shared or kinds.is_string_view(kind) or kinds.is_binary_view(kind))


def _is_compressed(message: "pa.Message") -> bool:
    metadata = message.metadata.to_pybytes()
    header = _field(metadata, _referred(metadata, 0), HEADER)
    if header is None:
        raise ValueError("it has a record batch without a header")
    return _field(metadata, _referred(metadata, header), COMPRESSION) is not None


def _referred(data: bytes, at: int) -> int:
    """Where the table begins to which this place refers."""
    found: int = at + unpack_from("<I", data, at)[0]
    return found


def _field(data: bytes, table: int, place: int) -> int | None:
    """Where a field of a table lies; `None` if it is not there."""
    description = table - unpack_from("<i", data, table)[0]
    size_bytes = unpack_from("<H", data, description)[0]
    at = 4 + 2 * place
    offset = unpack_from("<H", data, description + at)[0] if at < size_bytes else 0
    return table + offset if offset else None
