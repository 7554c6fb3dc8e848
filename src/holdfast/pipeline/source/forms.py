"""Read the text of one option, each form by its own function.

Owns: the forms, and the sentence for what is wrong. Never: knows what an option is for.

Invariant: what is wrong raises `OptionError`, which names the option.
"""

import json
import re
from pathlib import Path
from typing import Final, Literal

from holdfast.core.limits import READ_PARTS_MAXIMUM
from holdfast.core.moment import parse_moment_us
from holdfast.core.queue_names import APPLICATION_PREFIX, CURSOR_NAME_RULE, is_cursor_name
from holdfast.core.share_name import is_shared, parse_shared
from holdfast.kernel import is_valid_topic_filter
from holdfast.pipeline.source.columns import READ_COLUMNS
from holdfast.reading.criteria import Criteria
from holdfast.reading.directory import compiled

Boundary = Literal["earliest", "latest"] | int
FOREVER: Final = "forever"
TOPICS_MAXIMUM: Final = 16_384
"""Topics and filters of one `subscribe`: as many as a request for records may name."""
_QUEUES: Final = APPLICATION_PREFIX.removesuffix("app.")
_WORDS: Final = {"-2": "earliest", "-1": "latest"}
_UNITS_S: Final = {"": 0.001, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class OptionError(ValueError):
    """An option of the data source is wrong. The message names it."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"holdfast data source: option '{option}' {problem}")


def text(_option: str, given: str) -> str:
    """Any text."""
    return given


def password_file(option: str, given: str) -> str:
    """The password that a file holds; the end of its line is none of it."""
    try:
        return Path(given).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as problem:
        raise OptionError(option, f"is read where the query is planned: {problem}") from problem


def address(option: str, given: str) -> str:
    """Where a broker listens. What stands before an `@` may be a password: it is not repeated."""
    if "@" in given:
        raise OptionError(
            option,
            "cannot have '@': it is an address alone. Give credentials as 'user' and 'password' or"
            " 'passwordFile'",
        )
    host, colon, port = given.removeprefix("https://").rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise OptionError(
            option,
            f"must be host:port of the broker's HTTP listener, or https://host:port, not {given!r}",
        )
    return given


def filters(option: str, given: str) -> tuple[str, ...]:
    """Topics and MQTT filters, separated by commas."""
    found = tuple(part.strip() for part in given.split(","))
    if len(found) > TOPICS_MAXIMUM:
        raise OptionError(option, f"names {len(found)} topics; at most {TOPICS_MAXIMUM} are read")
    for each in found:
        if is_shared(each):
            parts = parse_shared(each)
            rest = "the filter behind it" if parts is None else repr(parts.topic_filter)
            raise OptionError(
                option, f"has {each!r}, of which no message has the name; subscribe to {rest}"
            )
        if each.startswith(_QUEUES):
            raise OptionError(
                option, f"has {each!r}, which names a queue and no topic; give it as 'queue'"
            )
        if not is_valid_topic_filter(each.encode()):
            raise OptionError(option, f"has {each!r}, which is not a valid MQTT topic filter")
    return found


def pattern(option: str, given: str) -> str:
    """A regular expression, with work that is linear in what it looks at."""
    try:
        compiled(Criteria(pattern=given))
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise OptionError(
            option, f"is no regular expression that can be used (without look-around): {reason}"
        ) from None
    return given


def cursor(option: str, given: str) -> str:
    """The name of a cursor."""
    if not is_cursor_name(given):
        raise OptionError(option, f"cannot be {given!r}: its name has {CURSOR_NAME_RULE}")
    return given


def boundary(option: str, given: str) -> Boundary:
    """earliest (-2), latest (-1), an offset, or one of these per shard as JSON: {"0": 17}."""
    wrong = OptionError(
        option, f'must be earliest, latest, a number or {{"0": number}}, not {given!r}'
    )
    value = _of_the_shard(option, given, wrong)
    word = _WORDS.get(str(value), value)
    if word == "earliest" or word == "latest":
        if word == "earliest" and option.startswith("ending"):
            raise OptionError(option, "cannot be earliest: nothing is before it")
        return word
    if isinstance(word, bool) or not isinstance(word, int) or not 0 <= word < 2**63:
        raise wrong
    return word


def shard_time_us(option: str, given: str) -> int:
    """A time per shard as JSON: {"0": milliseconds since 1970}."""
    wrong = OptionError(option, f'must be {{"0": milliseconds since 1970}}, not {given!r}')
    value = _of_the_shard(option, given, wrong)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**15:
        raise wrong
    return value * 1000


def time_us(option: str, given: str) -> int:
    """Milliseconds since 1970, as for Spark's Kafka source, or ISO 8601 (UTC by default)."""
    if given.isascii() and given.isdigit() and len(given) < 16:
        return int(given) * 1000
    try:
        return parse_moment_us(given)
    except ValueError:
        problem = f"must be milliseconds since 1970 or ISO 8601, not {given!r}"
        raise OptionError(option, problem) from None


def count(option: str, given: str) -> int:
    """A whole number greater than 0."""
    if not (given.isascii() and given.isdigit() and 0 < int(given[:19]) < 2**63):
        raise OptionError(option, f"must be a whole number greater than 0, not {given!r}")
    return int(given)


def partitions(option: str, given: str) -> int:
    """A number of tasks that a plan can have."""
    found = count(option, given)
    if found > READ_PARTS_MAXIMUM:
        raise OptionError(option, f"can be {READ_PARTS_MAXIMUM} at most, not {given}")
    return found


def size(option: str, given: str) -> int:
    """A number of bytes, also with the units k, m and g, as in Spark's settings."""
    found = re.fullmatch(r"(\d{1,15})([kmg]?)b?", given.lower())
    if found is None or int(found[1]) == 0:
        raise OptionError(option, f"must be a number of bytes such as 134217728 or 128m: {given!r}")
    return int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[found[2]]


def flag(option: str, given: str) -> bool:
    """true or false."""
    if given.lower() not in ("true", "false"):
        raise OptionError(option, f"must be true or false, not {given!r}")
    return given.lower() == "true"


def duration_s(option: str, given: str) -> float:
    """A time such as 500ms, 30s, 15m or 1h; a number alone is milliseconds."""
    found = re.fullmatch(r"(\d{1,12})\s*(ms|s|m|h|)", given.lower())
    if found is None:
        raise OptionError(option, f"must be a time such as 500ms, 30s, 15m or 1h, not {given!r}")
    return int(found[1]) * _UNITS_S[found[2]]


def patience_s(option: str, given: str) -> float:
    """A time, or for ever."""
    return float("inf") if given.lower() == FOREVER else duration_s(option, given)


def strategy(option: str, given: str) -> str:
    """What a starting time means that is later than every message."""
    if given not in ("error", "latest"):
        raise OptionError(option, f"must be error or latest, not {given!r}")
    return given


def columns(option: str, given: str) -> tuple[str, ...]:
    """Names of columns, separated by commas."""
    names = tuple(part.strip() for part in given.split(","))
    for name in names:
        if name not in READ_COLUMNS:
            raise OptionError(option, f"has {name!r}; there are {', '.join(READ_COLUMNS)}")
    if len(set(names)) != len(names):
        raise OptionError(option, "names a column twice")
    return names


def _of_the_shard(option: str, given: str, wrong: OptionError) -> object:
    """The value itself, or that of shard 0 in a JSON object."""
    # In any case, as Spark's source for Kafka takes them.
    if given.lower() in ("earliest", "latest"):
        return given.lower()
    try:
        value = json.loads(given)
    except ValueError:
        raise wrong from None
    if isinstance(value, dict) and any(isinstance(each, dict) for each in value.values()):
        raise OptionError(
            option,
            "names topics; all topics are in one log here, with one offset: give"
            ' {"0": number}, and the topics to subscribe',
        )
    return value["0"] if isinstance(value, dict) and list(value) == ["0"] else value
