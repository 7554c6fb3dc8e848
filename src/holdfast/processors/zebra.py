"""The Zebra FX9600: what its tags and what it itself say, as rows of `bbu.tag_read_processings`.

Owns: what a payload of this reader has to be. Never: says in a rejection what was in one.

Reads and events are one table with a `kind`, since one processor takes both topics and has one
table; columns that only one of them has are empty in the other's rows.

A row is itself by kind, reader, event number and time. A reader that was not sure of its last
reports sends them again with their numbers and times; one that starts anew counts from the
beginning, with other times.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, ClassVar, Final, TypeVar

from msgspec import DecodeError, Meta, Struct, ValidationError
from msgspec.json import Decoder

from holdfast.processors.message import Message
from holdfast.processors.processor import Processor, RejectedError
from holdfast.processors.table import Column, ColumnType, Row, Table

PAYLOAD_BYTES_MAXIMUM: Final = 64 * 1024
"""A report has some three hundred bytes."""
FUTURE_MAXIMUM: Final = timedelta(days=1)
"""How far a reader's clock may be before ours. A zone that was set wrong makes half a day; beyond
that it is no clock, and the row would be the newest of its table for as long."""

MINUTE_US: Final = 60_000_000

Report = TypeVar("Report")

READ: Final = "read"
EVENT: Final = "event"

Counted = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Name = Annotated[str, Meta(min_length=1, max_length=255)]
Text = Annotated[str, Meta(max_length=4096)]

EPC_WORD_DIGITS: Final = 4
EPC_DIGITS_MAXIMUM: Final = 512
HEX_DIGITS: Final = "0123456789ABCDEFabcdef"
"""A bank of a tag is read in words of 16 bits."""


class _NamedData(Struct):
    hostName: Name  # noqa: N815 The reader's own spelling.
    eventNum: Counted  # noqa: N815


class _Named(Struct):
    timestamp: Annotated[str, Meta(max_length=64)]
    data: _NamedData


class _ReadData(Struct):
    hostName: Name  # noqa: N815
    eventNum: Counted  # noqa: N815
    idHex: str  # noqa: N815
    antenna: Counted | None = None
    peakRssi: Counted | None = None  # noqa: N815
    reads: Counted | None = None


class _Read(Struct):
    timestamp: str
    data: _ReadData


class _EventData(Struct):
    hostName: Name  # noqa: N815
    eventNum: Counted  # noqa: N815
    message: Text | None = None
    temperature: float | None = None
    uptimeSeconds: Counted | None = None  # noqa: N815


class _Event(Struct):
    timestamp: str
    type: Name
    data: _EventData


_decode_named = Decoder(_Named).decode
_decode_read = Decoder(_Read).decode
_decode_event = Decoder(_Event).decode


class ZebraRfid(Processor):
    """Reads from topics that end in `reads`, events from those that end in `events`."""

    table: ClassVar[Table] = Table(
        "bbu.tag_read_processings",
        (
            Column("event_timestamp_utc", ColumnType.TIMESTAMP),
            Column("kind", ColumnType.TEXT),
            Column("reader", ColumnType.TEXT),
            Column("event_number", ColumnType.INTEGER),
            Column("epc", ColumnType.TEXT, required=False),
            Column("antenna", ColumnType.INTEGER, required=False),
            # In dBm.
            Column("peak_rssi", ColumnType.INTEGER, required=False),
            Column("read_count", ColumnType.INTEGER, required=False),
            Column("event_type", ColumnType.TEXT, required=False),
            Column("message", ColumnType.TEXT, required=False),
            # In degrees Celsius.
            Column("temperature", ColumnType.REAL, required=False),
            Column("uptime_s", ColumnType.INTEGER, required=False),
        ),
        key=("reader", "kind", "event_number", "event_timestamp_utc"),
    )

    def parse(self, message: Message) -> Sequence[Row]:
        """One row. Raises `RejectedError`."""
        if message.topic.endswith("/reads"):
            return (_row_of_read(message),)
        if message.topic.endswith("/events"):
            return (_row_of_event(message),)
        raise RejectedError("its topic ends in neither reads nor events")

    def identity(self, message: Message) -> str | None:
        """Topic, reader, event number and time as the reader wrote it; None for what says no such
        thing. Where no broker names messages it is asked for each, and so reads only these."""
        try:
            report = _decoded(_decode_named, message.payload)
        except RejectedError:
            return None
        data = report.data
        return f"{message.topic} {data.hostName} {data.eventNum} {report.timestamp}"


def _row_of_read(message: Message) -> Row:
    read = _decoded(_decode_read, message.payload)
    data = read.data
    tag = data.idHex
    is_whole = 0 < len(tag) <= EPC_DIGITS_MAXIMUM and len(tag) % EPC_WORD_DIGITS == 0
    if not is_whole or tag.strip(HEX_DIGITS):
        raise RejectedError("data.idHex is not some words of 16 bits in hex")
    return {
        "event_timestamp_utc": _moment(read.timestamp, message.received_at_us),
        "kind": READ,
        "reader": _storable(data.hostName, "data.hostName"),
        "event_number": data.eventNum,
        "epc": tag.upper(),
        "antenna": data.antenna,
        "peak_rssi": data.peakRssi,
        "read_count": data.reads,
        "event_type": None,
        "message": None,
        "temperature": None,
        "uptime_s": None,
    }


def _row_of_event(message: Message) -> Row:
    event = _decoded(_decode_event, message.payload)
    data = event.data
    return {
        "event_timestamp_utc": _moment(event.timestamp, message.received_at_us),
        "kind": EVENT,
        "reader": _storable(data.hostName, "data.hostName"),
        "event_number": data.eventNum,
        "epc": None,
        "antenna": None,
        "peak_rssi": None,
        "read_count": None,
        "event_type": _storable(event.type, "type"),
        "message": None if data.message is None else _storable(data.message, "data.message"),
        "temperature": data.temperature,
        "uptime_s": data.uptimeSeconds,
    }


def _decoded(decode: Callable[[bytes], Report], payload: bytes) -> Report:
    if len(payload) > PAYLOAD_BYTES_MAXIMUM:
        raise RejectedError(f"it has more than {PAYLOAD_BYTES_MAXIMUM} bytes")
    try:
        return decode(payload)
    except (ValidationError, DecodeError) as error:
        # It names places and types, no values.
        raise RejectedError(str(error)[:200]) from None
    except UnicodeDecodeError:
        raise RejectedError("it is not UTF-8") from None
    except RecursionError:
        raise RejectedError("it is nested too deep") from None


def _moment(text: str, received_at_us: int) -> datetime:
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            raise RejectedError("timestamp has no zone")
        found = found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise RejectedError("timestamp is no time") from None
    if found > _latest(received_at_us // MINUTE_US):
        raise RejectedError("timestamp is more than a day in the future")
    return found


@lru_cache(maxsize=4)
def _latest(received_minute: int) -> datetime:
    """What a reader's clock may say in a minute of ours; asked for each message, so for a minute
    rather than a moment."""
    return datetime.fromtimestamp((received_minute + 1) * 60, UTC) + FUTURE_MAXIMUM


def _storable(text: str, place: str) -> str:
    if "\0" in text:
        raise RejectedError(f"{place} has a character that is zero")
    return text
