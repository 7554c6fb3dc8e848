"""Understand the options of the data source `holdfast`.

Owns: the options' names, forms and defaults, in the style of Spark's Kafka source.
Never: talks to a broker or a directory.

Invariants:
1. What is misspelt or contradicts itself raises `OptionError`, which names the option.
2. `Options` is a value: it travels to executors and means the same there.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from holdfast.core.moment import parse_moment_us
from holdfast.core.queue_names import CURSOR_NAME_RULE, is_cursor_name
from holdfast.kernel import is_valid_topic_filter
from holdfast.pipeline.source.columns import DEFAULT_COLUMNS, READ_COLUMNS
from holdfast.reading.criteria import Criteria

Boundary = Literal["earliest", "latest"] | int

KNOWN = (
    "broker",
    "user",
    "password",
    "dataDir",
    "subscribe",
    "cursor",
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "columns",
    "includeHeaders",
)
_KNOWN_LOWER = {name.lower(): name for name in KNOWN}
_SPARK_ITS_OWN = {"path"}
"""Spark adds `path` where `load(path)` is called; anything else is the user's."""
_HEADERS = "properties"


class OptionError(ValueError):
    """An option of the data source is wrong. The message names it."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"holdfast data source: option '{option}' {problem}")


@dataclass(frozen=True, slots=True)
class Options:
    """What one `load()` asked for."""

    broker: str | None
    user: str | None
    password: str | None = field(repr=False)
    data_dir: str | None
    criteria: Criteria
    cursor: str | None
    starting_offset: Boundary | None
    starting_time_us: int | None
    ending_offset: Boundary | None
    ending_time_us: int | None
    offsets_per_trigger: int | None
    partitions: int | None
    fail_on_data_loss: bool
    columns: tuple[str, ...]


def parse_options(given: Mapping[str, str]) -> Options:
    """Options as Spark hands them over: text, with names in any case."""
    options = _known(given)
    broker, data_dir = options.get("broker"), options.get("dataDir")
    if (broker is None) == (data_dir is None):
        raise OptionError("broker", "or 'dataDir' must be given, and not both")
    for one, other in (("user", "password"), ("password", "user")):
        if one in options and (broker is None or other not in options):
            raise OptionError(one, f"goes with 'broker' and '{other}'")
    for at, time in (
        ("startingOffsets", "startingTimestamp"),
        ("endingOffsets", "endingTimestamp"),
    ):
        if at in options and time in options:
            raise OptionError(time, f"cannot be combined with '{at}'")
    return Options(
        broker=None if broker is None else _address(broker),
        user=options.get("user"),
        password=options.get("password"),
        data_dir=data_dir,
        criteria=Criteria(filters=_filters(options.get("subscribe"))),
        cursor=_cursor(options),
        starting_offset=_boundary("startingOffsets", options.get("startingOffsets")),
        starting_time_us=_time_us("startingTimestamp", options.get("startingTimestamp")),
        ending_offset=_boundary("endingOffsets", options.get("endingOffsets")),
        ending_time_us=_time_us("endingTimestamp", options.get("endingTimestamp")),
        offsets_per_trigger=_count("maxOffsetsPerTrigger", options.get("maxOffsetsPerTrigger")),
        partitions=_count("minPartitions", options.get("minPartitions")),
        fail_on_data_loss=_flag("failOnDataLoss", options.get("failOnDataLoss"), default=True),
        columns=_columns(options),
    )


def _known(given: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for name, value in given.items():
        if name.lower() in _SPARK_ITS_OWN:
            raise OptionError(
                name, "is not used; give 'broker' or 'dataDir', and load() without a path"
            )
        if name.lower() not in _KNOWN_LOWER:
            raise OptionError(name, f"is unknown; there are {', '.join(KNOWN)}")
        known = _KNOWN_LOWER[name.lower()]
        found[known] = value if known == "password" else value.strip()
    return found


def _address(text: str) -> str:
    host, colon, port = text.removeprefix("https://").rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise OptionError(
            "broker",
            f"must be host:port of the broker's HTTP listener, or https://host:port, not {text!r}",
        )
    return text


def _filters(text: str | None) -> tuple[str, ...]:
    if text is None:
        raise OptionError("subscribe", "is missing: topics or MQTT filters, separated by commas")
    filters = tuple(part.strip() for part in text.split(","))
    for each in filters:
        if not is_valid_topic_filter(each.encode()):
            raise OptionError("subscribe", f"has {each!r}, which is not a valid MQTT topic filter")
    return filters


def _cursor(options: Mapping[str, str]) -> str | None:
    name = options.get("cursor")
    if name is None:
        return None
    if "broker" not in options:
        raise OptionError("cursor", "is kept by a running broker: it goes with 'broker'")
    if not is_cursor_name(name):
        raise OptionError("cursor", f"cannot be {name!r}: its name has {CURSOR_NAME_RULE}")
    return name


def _boundary(option: str, text: str | None) -> Boundary | None:
    """earliest, latest, an offset, or an offset per shard as JSON: {"0": 17}."""
    if text is None:
        return None
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    wrong = OptionError(
        option, f'must be earliest, latest, a number or {{"0": number}}, not {text!r}'
    )
    try:
        value = json.loads(text)
    except ValueError:
        raise wrong from None
    if isinstance(value, dict) and list(value) == ["0"]:
        value = value["0"]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise wrong
    return value


def _time_us(option: str, text: str | None) -> int | None:
    """Milliseconds since 1970, as for Spark's Kafka source, or ISO 8601 (UTC by default)."""
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) < 16:
        return int(text) * 1000
    try:
        return parse_moment_us(text)
    except ValueError:
        problem = f"must be milliseconds since 1970 or ISO 8601, not {text!r}"
        raise OptionError(option, problem) from None


def _count(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 0 < int(text[:19]) < 2**63):
        raise OptionError(option, f"must be a whole number greater than 0, not {text!r}")
    return int(text)


def _flag(option: str, text: str | None, *, default: bool) -> bool:
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise OptionError(option, f"must be true or false, not {text!r}")
    return text.lower() == "true"


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    headers = _flag("includeHeaders", options.get("includeHeaders"), default=True)
    if "columns" not in options:
        return tuple(name for name in DEFAULT_COLUMNS if headers or name != _HEADERS)
    names = tuple(part.strip() for part in options["columns"].split(","))
    for name in names:
        if name not in READ_COLUMNS:
            raise OptionError("columns", f"has {name!r}; there are {', '.join(READ_COLUMNS)}")
    if len(set(names)) != len(names):
        raise OptionError("columns", "names a column twice")
    if _HEADERS in names and not headers:
        raise OptionError("columns", "names 'properties', and 'includeHeaders' is false")
    return names
