"""How much a named queue keeps: the properties of the reference product's topics, as one setting.

Owns: the syntax `key:value;...`, and which keys there are. Never: says what follows (core.quota).
"""

from dataclasses import dataclass, fields
from typing import Final

from holdfast.core.settings import Kind
from holdfast.core.units import CENTURY_S

UNLIMITED: Final = -1
_KEYS: Final = {
    "retention.ms": "retention_ms",
    "segment.bytes": "segment_bytes",
    "retention.bytes": "retention_bytes",
    "replication.factor": "replication_factor",
}
_RANGES: Final = {
    "retention.ms": (1, CENTURY_S * 1_000),
    "segment.bytes": (1_024, 2**31 - 1),
    "retention.bytes": (1, 2**63 - 1),
    "replication.factor": (1, 1),
}
_MAY_BE_UNLIMITED: Final = ("retention.ms", "retention.bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicProperties:
    """How long and how much a queue with a name keeps, read or not."""

    retention_ms: int = 604_800_000
    """-1: as long as the log has it."""
    segment_bytes: int = 26_214_400
    """It loses as many bytes at a time."""
    retention_bytes: int = 1_048_576_000
    """-1: as much as the log has."""
    replication_factor: int = 1


def topic_properties() -> Kind:
    """The setting's kind."""
    keys = ", ".join(_KEYS)
    return Kind(f"key:value pairs with ; between them; keys: {keys}", _parse, _show)


def _parse(value: object) -> TopicProperties:
    if isinstance(value, TopicProperties):
        return value
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    given: dict[str, int] = {}
    for pair in value.split(";"):
        if not pair.strip():
            continue
        key, colon, text = (part.strip() for part in pair.partition(":"))
        if not colon:
            raise ValueError(f'"{pair.strip()}" is no key:value')
        if key not in _KEYS:
            raise ValueError(f'"{key}" is no key here; there are {", ".join(_KEYS)}')
        if _KEYS[key] in given:
            raise ValueError(f'"{key}" is there twice')
        given[_KEYS[key]] = _number(key, text)
    return TopicProperties(**given)


def _number(key: str, text: str) -> int:
    low, high = _RANGES[key]
    unlimited = key in _MAY_BE_UNLIMITED
    digits = text.removeprefix("-")
    number = int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None
    if unlimited and number == UNLIMITED:
        return UNLIMITED
    if key == "replication.factor" and number is not None and number > 1:
        raise ValueError(
            f'"replication.factor" {number} is more than 1, and one disk is one copy: there is no'
            " replication here"
        )
    if number is None or not low <= number <= high:
        or_unlimited = ", or -1 for no limit" if unlimited else ""
        raise ValueError(
            f'"{key}" must be a whole number from {low} to {high}{or_unlimited}, not "{text}"'
        )
    return number


def _show(value: TopicProperties) -> str:
    by_field = {field: key for key, field in _KEYS.items()}
    names = sorted((field.name for field in fields(value)), key=list(by_field).index)
    return ";".join(f"{by_field[name]}:{getattr(value, name)}" for name in names)
