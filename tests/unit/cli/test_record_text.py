"""Stored messages as people read them."""

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.record_text import as_json, as_line, time_text


def row(value: bytes = b"21.5", topic: str = "zebra/fx/7/reads", **others: Any) -> dict[str, Any]:
    return {
        "offset": 12,
        "timestamp": datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC),
        "qos": 1,
        "retain": False,
        "topic": topic,
        "value": value,
        "properties": [("content-type", "a"), ("content-type", "b")],
        **others,
    }


def test_a_line_says_offset_time_qos_topic_and_payload() -> None:
    expected = "      12  2026-01-31T12:00:00.000005Z  1  zebra/fx/7/reads  21.5"
    assert as_line(row()) == expected
    assert "  1R zebra" in as_line(row(retain=True))


def test_a_long_payload_is_cut_and_says_how_long_it_was() -> None:
    assert as_line(row(b"x" * 5_000)).endswith("xxx... (5000 bytes)")


def test_a_line_without_a_value_says_why() -> None:
    assert as_line(row(b"", properties=[("closed", "encrypted")])).endswith("  (encrypted)")
    assert as_line(row(b"")).endswith("reads  ")


@given(st.binary(max_size=300), st.text(max_size=50))
def test_nothing_that_a_device_sends_reaches_the_terminal_as_a_control_character(
    value: bytes, topic: str
) -> None:
    assert as_line(row(value, topic.encode(errors="ignore").decode())).isprintable()


def test_json_keeps_text_as_text_and_other_bytes_as_base64() -> None:
    assert json.loads(as_json(row()))["value"] == "21.5"
    binary = json.loads(as_json(row(b"\xff\x00")))
    assert binary["value_base64"] == "/wA="
    assert "value" not in binary


def test_json_keeps_a_property_that_comes_twice() -> None:
    assert json.loads(as_json(row()))["properties"] == [
        ["content-type", "a"],
        ["content-type", "b"],
    ]


def test_times_are_in_utc() -> None:
    assert time_text(1_769_860_800_000_000) == "2026-01-31T12:00:00.000Z"
