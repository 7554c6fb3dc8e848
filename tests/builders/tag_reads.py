"""Payloads as fixed readers send them."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.builders.stored import START_US, STEP_US, Message

START = datetime.fromtimestamp(START_US / 1e6, UTC)


def received_at(number: int) -> datetime:
    """When the broker takes the message with this number, as `store` has it."""
    return START + timedelta(microseconds=number * STEP_US)


def read(
    reader: str, event: int, at: datetime, *, tag: str = "E28011602000A001", **data: Any
) -> dict[str, Any]:
    """One tag read."""
    return {
        "type": "SIMPLE",
        "timestamp": at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}+0000",
        "data": {
            "eventNum": event,
            "format": "epc",
            "idHex": tag,
            "antenna": 1,
            "peakRssi": -50,
            "reads": 2,
            "hostName": reader,
            **data,
        },
    }


def message(payload: bytes | dict[str, Any], *, topic: str = "zebra/fx/1/reads") -> Message:
    """As it is published."""
    value = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return Message(topic, value)


def mixed(count: int) -> list[Message]:
    """Reads of three readers: every seventh is sent again at once, every eleventh is broken, every
    thirteenth an hour late, and every seventeenth on a topic that no schema knows."""
    found: list[Message] = []
    number = 0
    while len(found) < count:
        at = received_at(len(found))
        reader, tag = f"FX-{number % 3}", f"E28011602000A00{number % 4}"
        payload = read(reader, number, at - timedelta(hours=1 if number % 13 == 12 else 0), tag=tag)
        topic = f"zebra/fx/{number % 3}/reads"
        if number % 11 == 10:
            payload["timestamp"] = "yesterday"
        if number % 17 == 16:
            topic = "zebra/fx/1/unknown"
        found += [message(payload, topic=topic)] * (2 if number % 7 == 6 else 1)
        number += 1
    return found[:count]
