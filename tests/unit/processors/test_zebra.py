"""What a Zebra FX9600 says becomes rows; all else is rejected, without being repeated."""

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.processors.message import Message
from holdfast.processors.processor import RejectedError
from holdfast.processors.table import ColumnType
from holdfast.processors.zebra import ZebraRfid
from tests.builders.tag_reads import read

AT = datetime(2026, 3, 1, 12, 30, 15, 250_000, UTC)
ZEBRA = ZebraRfid()


def message(payload: object, topic: str = "zebra/fx/7/reads") -> Message:
    """As it comes from a broker at AT."""
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return Message(topic, data, 2, False, False, (), None, int(AT.timestamp() * 1e6))


def event(**data: Any) -> dict[str, Any]:
    """A heartbeat."""
    return {
        "type": "heartbeat",
        "timestamp": "2026-03-01T14:30:15.250+0200",
        "data": {"hostName": "FX-1", "eventNum": 9, **data},
    }


def test_a_read_is_one_row() -> None:
    (row,) = ZEBRA.parse(message(read("FX-1", 42, AT, tag="e28011602000a001", user="ignored")))
    assert {name: value for name, value in row.items() if value is not None} == {
        "event_timestamp_utc": AT,
        "kind": "read",
        "reader": "FX-1",
        "event_number": 42,
        "epc": "E28011602000A001",
        "antenna": 1,
        "peak_rssi": -50,
        "read_count": 2,
    }


def test_an_event_is_one_row() -> None:
    payload = event(message="hot", temperature=61, uptimeSeconds=86_400)
    (row,) = ZEBRA.parse(message(payload, "zebra/fx/7/events"))
    assert {name: value for name, value in row.items() if value is not None} == {
        "event_timestamp_utc": AT,
        "kind": "event",
        "reader": "FX-1",
        "event_number": 9,
        "event_type": "heartbeat",
        "message": "hot",
        "temperature": 61.0,
        "uptime_s": 86_400,
    }


@pytest.mark.parametrize("payload", [read("FX-1", 1, AT), event()])
def test_rows_have_the_columns_of_the_table(payload: dict[str, Any]) -> None:
    topic = "zebra/fx/7/reads" if payload["type"] == "SIMPLE" else "zebra/fx/7/events"
    (row,) = ZEBRA.parse(message(payload, topic))
    assert list(row) == [column.name for column in ZEBRA.table.columns]
    assert all(row[column.name] is not None for column in ZEBRA.table.columns if column.required)


@pytest.mark.parametrize("zone", ["Z", "+00:00", "+0000"])
def test_zones_are_taken_as_readers_write_them(zone: str) -> None:
    payload = read("FX-1", 1, AT) | {"timestamp": f"2026-03-01T12:30:15.250{zone}"}
    assert ZEBRA.parse(message(payload))[0]["event_timestamp_utc"] == AT


@pytest.mark.accepts("S3.66")
def test_a_report_that_is_sent_again_has_its_identity_again() -> None:
    first = read("FX-1", 42, AT)
    again = {**first, "type": "AGAIN"}
    assert ZEBRA.identity(message(first)) == ZEBRA.identity(message(again)) is not None
    later = read("FX-1", 42, AT + timedelta(seconds=1))
    others = [later, read("FX-2", 42, AT), read("FX-1", 43, AT)]
    identities = {ZEBRA.identity(message(each)) for each in (first, *others)}
    identities.add(ZEBRA.identity(message(event(eventNum=42), "zebra/fx/7/events")))
    assert len(identities) == 5
    assert ZEBRA.identity(message(b"{")) is None


SECRET = "SECRET"


def with_data(**data: Any) -> dict[str, Any]:
    return read("FX-1", 1, AT, **data)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "truncated"),
        (b"SECRET", "malformed"),
        (b"\xff\xfeSECRET", "malformed"),
        (b"null", "Expected `object`"),
        (b"[]", "Expected `object`"),
        (b'{"timestamp":"x","x":' + b"[" * 30_000 + b"]" * 30_000 + b"}", "nested too deep"),
        (b'{"timestamp":"' + b"S" * 5_000_000 + b'"}', "more than 65536 bytes"),
        ({}, "timestamp"),
        ({"timestamp": "2026-03-01T12:30:15Z"}, "data"),
        (with_data(hostName=None), "data.hostName"),
        (with_data(hostName=""), "data.hostName"),
        (with_data(hostName=SECRET * 100), "data.hostName"),
        (with_data(hostName="SECRET\0"), "character that is zero"),
        (json.dumps(with_data()).replace("FX-1", "\\ud800").encode(), "truncated"),
        (json.dumps(with_data()).encode().replace(b"FX-1", b"\xed\xa0\x80"), "UTF-8"),
        (with_data(eventNum="1"), "data.eventNum"),
        (with_data(eventNum=True), "data.eventNum"),
        (with_data(eventNum=1.5), "data.eventNum"),
        (with_data(eventNum=2**63), "data.eventNum"),
        (with_data(eventNum=10**30), "data.eventNum"),
        (with_data(antenna=float("nan")), "malformed"),
        (with_data(antenna=[SECRET]), "data.antenna"),
        (with_data(idHex=SECRET), "idHex"),
        (with_data(idHex="E28"), "idHex"),
        (with_data(idHex=""), "idHex"),
        (with_data(idHex="E280\n"), "idHex"),
        (with_data(idHex="٣٣٣٣"), "idHex"),
        (with_data() | {"timestamp": SECRET}, "no time"),
        (with_data() | {"timestamp": 1}, "timestamp"),
        (with_data() | {"timestamp": "2026-03-01"}, "no zone"),
        (with_data() | {"timestamp": "2026-03-01T12:30:15.250"}, "no zone"),
        (with_data() | {"timestamp": "2026-03-02T12:31:01Z"}, "future"),
        (with_data() | {"timestamp": "9999-12-31T23:59:59-12:00"}, "no time"),
        (with_data() | {"timestamp": "0001-01-01T00:00:00+12:00"}, "no time"),
    ],
)
def test_what_is_no_read_is_rejected_with_a_short_reason(payload: object, reason: str) -> None:
    with pytest.raises(RejectedError, match=reason) as rejected:
        ZEBRA.parse(message(payload))
    assert len(str(rejected.value)) <= 200
    assert SECRET not in str(rejected.value)


@pytest.mark.parametrize(
    "data", [{"message": "a\0"}, {"temperature": float("inf")}, {"message": "x" * 5000}]
)
def test_what_is_no_event_is_rejected(data: dict[str, Any]) -> None:
    with pytest.raises(RejectedError):
        ZEBRA.parse(message(event(**data), "zebra/fx/7/events"))


def test_other_topics_are_rejected() -> None:
    with pytest.raises(RejectedError, match="neither reads nor events"):
        ZEBRA.parse(message(read("FX-1", 1, AT), "zebra/fx/7/alarms"))


def test_a_clock_that_is_hours_ahead_is_believed() -> None:
    payload = with_data() | {"timestamp": "2026-03-02T12:30:15Z"}
    assert ZEBRA.parse(message(payload))[0]["event_timestamp_utc"] == AT.replace(
        day=2, microsecond=0
    )


PYTHON = {
    ColumnType.TEXT: str,
    ColumnType.INTEGER: int,
    ColumnType.REAL: float,
    ColumnType.TIMESTAMP: datetime,
}


@given(seed=st.integers(0, 2**32), topic=st.sampled_from(["a/reads", "a/events"]))
def test_whatever_comes_is_a_row_that_fits_or_a_rejection(seed: int, topic: str) -> None:
    draw = random.Random(seed)
    payload = read("FX-1", 1, AT) if topic == "a/reads" else event(message="m", temperature=1.5)
    data = bytearray(json.dumps(payload).encode())
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(data))
        what = draw.choice([b"", b"0", b"9" * 30, b'"', b"}", b"[", b"\\u0000", b"\xff", b"-"])
        data[place : place + draw.randint(0, 3)] = what
    try:
        (row,) = ZEBRA.parse(message(bytes(data), topic))
    except RejectedError:
        return
    for column in ZEBRA.table.columns:
        value = row[column.name]
        assert type(value) is PYTHON[column.type] or (value is None and not column.required)
