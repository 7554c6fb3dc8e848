"""A stored message as a person reads it: one line, or one JSON object.

Never: sends a device's bytes to a terminal as they are; what cannot be printed is escaped.
"""

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

PAYLOAD_CHARACTERS_MAXIMUM = 200
"""Of a payload, a line shows so much; JSON has all of it."""


def as_line(row: Mapping[str, Any]) -> str:
    """Offset, time, QoS, topic and the beginning of the payload; of an entry that cannot be opened,
    why that is."""
    closed = dict(row["properties"] or []).get("closed") if not row["value"] else None
    payload = payload_text(row["value"]) if closed is None else f"({printable(closed)})"
    flags = "R" if row["retain"] else " "
    moment = row["timestamp"].isoformat(timespec="microseconds").replace("+00:00", "Z")
    topic = printable(row["topic"])
    return f"{row['offset']:>8}  {moment}  {row['qos']}{flags} {topic}  {payload}"


def payload_text(payload: bytes) -> str:
    """The beginning of a payload."""
    text = printable(payload.decode(errors="backslashreplace"))
    if len(text) > PAYLOAD_CHARACTERS_MAXIMUM:
        return f"{text[:PAYLOAD_CHARACTERS_MAXIMUM]}... ({len(payload)} bytes)"
    return text


def as_json(row: Mapping[str, Any]) -> str:
    """All columns; bytes that are not text as base64 under a name that says so."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, bytes):
            text = _text(value)
            if text is None:
                found[f"{name}_base64"] = base64.b64encode(value).decode()
            else:
                found[name] = text
        elif isinstance(value, datetime):
            found[name] = value.isoformat()
        elif name == "properties":
            # A list of pairs: a user property may come twice [MQTT-3.1.3-10].
            found[name] = [list(pair) for pair in value or []]
        else:
            found[name] = value
    return json.dumps(found)


def time_text(time_us: int) -> str:
    """A time in UTC to the millisecond."""
    moment = datetime.fromtimestamp(time_us / 1_000_000, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def printable(text: str) -> str:
    """The text with whatever could command a terminal escaped."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )
