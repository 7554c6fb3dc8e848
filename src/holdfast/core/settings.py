"""What a setting is, and how its text becomes a value.

Owns: the description of one setting (`Setting`) and the kinds of value there are. Never: knows
which settings exist (`config` does), reads a file or the environment.

Invariants:
1. `parse` gives a value of the kind within its range or raises `ValueError` with a reason a person
   can act on; it never guesses.
2. `show` gives text that `parse` reads back as the same value.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

T = TypeVar("T")

EVERY_HOUR: Final = "0 0 * ? * *"
"""The one cron expression that need not be looked at, so that no start loads what reads others."""

_SIZE_UNITS: Final = {
    "TiB": 2**40,
    "GiB": 2**30,
    "MiB": 2**20,
    "KiB": 2**10,
    "TB": 10**12,
    "GB": 10**9,
    "MB": 10**6,
    "KB": 10**3,
    "B": 1,
}
_DURATION_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_QUANTITY: Final = re.compile(r"(-?\d{1,20})\s*([A-Za-z]*)")


@dataclass(frozen=True, slots=True)
class Kind:
    """How values of one kind are read, shown and described."""

    expects: str
    """What a right value looks like, to complete the sentence "expected ..."."""
    parse: Callable[[object], Any]
    show: Callable[[Any], str] = str


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table of settings."""

    name: str
    """Its table, a dot, and its name there: `log.retention_bytes`."""
    attribute: str
    """How `Config` calls it: by its name there, with its table in front where that alone could be
    something else: `retention_bytes`, `mqtt_port`."""
    kind: Kind
    default: object
    """As an operator would write it; read by `kind` like any other value."""
    reason: str
    """What it does, and why the default is what it is."""
    aliases: tuple[str, ...]
    """Further names that it is accepted under, in a file and in the environment."""
    reloadable: bool = False
    """A running broker takes a new value over (SIGHUP); otherwise it needs a restart."""

    @property
    def table(self) -> str:
        """The table that it is written in."""
        return self.name.partition(".")[0]

    def value_in(self, config: object) -> Any:
        """Its value in a `Config`."""
        return getattr(config, self.attribute)

    def shown_in(self, config: object) -> str:
        """The same as text that reads back as the same."""
        return self.kind.show(self.value_in(config))

    @property
    def environment_variable(self) -> str:
        """Its name in the environment."""
        return "HOLDFAST_" + self.name.upper().replace(".", "_")

    @property
    def option(self) -> str:
        """Its name on the command line."""
        return "--" + self.name.replace(".", "-").replace("_", "-")


def setting(
    name: str,
    kind: Kind,
    default: object,
    reason: str,
    *,
    aliases: tuple[str, ...] = (),
    reloadable: bool = False,
) -> Any:
    """Describe a field of `Config`, by the full name of its setting."""
    value = kind.parse(default)
    row = Setting(name, "", kind, default, " ".join(reason.split()), aliases, reloadable)
    return field(default=value, metadata={"setting": row})


def integer(minimum: int, maximum: int) -> Kind:
    """A whole number between two others, both included."""

    def parse(value: object) -> int:
        number = _whole(value)
        return _within(number, minimum, maximum, str)

    return Kind(f"a whole number from {minimum} to {maximum}", parse)


def size(minimum: int, maximum: int) -> Kind:
    """Bytes: a number, or a number with a unit such as `64MiB` or `10 GB`."""

    def parse(value: object) -> int:
        if isinstance(value, str):
            number = _quantity(value, _SIZE_UNITS)
        else:
            number = _whole(value)
        return _within(number, minimum, maximum, show_size)

    expects = f"a size such as 64MiB, from {show_size(minimum)} to {show_size(maximum)}"
    return Kind(expects, parse, show_size)


def duration(minimum: int, maximum: int) -> Kind:
    """Seconds: a number, or a number with a unit (s, m, h, d, w) such as `7d`."""

    def parse(value: object) -> int:
        if isinstance(value, str):
            number = _quantity(value, _DURATION_UNITS)
        else:
            number = _whole(value)
        return _within(number, minimum, maximum, show_duration)

    expects = f"a duration such as 7d, from {show_duration(minimum)} to {show_duration(maximum)}"
    return Kind(expects, parse, show_duration)


def choice(*words: str) -> Kind:
    """One of a few words."""

    def parse(value: object) -> str:
        if value not in words:
            raise ValueError(f"{_written(value)} is not one of them")
        return str(value)

    return Kind(f"one of {', '.join(words)}", parse)


def text(*, may_be_empty: bool = False) -> Kind:
    """Any text."""

    def parse(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError(f"{_written(value)} is not text")
        if not value and not may_be_empty:
            raise ValueError("it is empty")
        return value

    return Kind("text", parse)


def addresses() -> Kind:
    """One host or several, kept as one text with commas between them."""
    hosts = texts(lambda item: re.fullmatch(r"[^\s,/\[\]]+", item) is not None, "a host")

    def parse(value: object) -> str:
        found = hosts.parse(value)
        if not found:
            raise ValueError("it is empty")
        return ",".join(found)

    return Kind("an address or a list of them", parse)


def texts(check: Callable[[str], bool], what: str) -> Kind:
    """A list of texts, in the environment and on the command line separated by commas."""

    def parse(value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            items: list[object] = [item.strip() for item in value.split(",") if item.strip()]
        elif isinstance(value, list | tuple):
            items = list(value)
        else:
            raise ValueError(f"{_written(value)} is not a list")
        for item in items:
            if not isinstance(item, str) or not check(item):
                raise ValueError(f"{_written(item)} is not {what}")
        return tuple(str(item) for item in items)

    return Kind(f"a list, each item {what}", parse, ",".join)


def boolean() -> Kind:
    """`true` or `false`."""

    def parse(value: object) -> bool:
        words = {"true": True, "false": False}
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in words:
            return words[value.lower()]
        raise ValueError(f"{_written(value)} is neither")

    return Kind("true or false", parse, lambda value: "true" if value else "false")


def path() -> Kind:
    """A path in the file system."""

    def parse(value: object) -> Path:
        if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
            raise ValueError(f"{_written(value)} is not a path")
        return Path(value)

    return Kind("a path", parse)


def port() -> Kind:
    """A TCP port, or `off` for no listener. Port 0 lets the operating system choose one."""

    def parse(value: object) -> int:
        return _within(_whole(value), 0, 65_535, str)

    return or_off(Kind("a port from 0 to 65535", parse))


def mode() -> Kind:
    """The permissions of a file, in octal."""

    def parse(value: object) -> int:
        if not isinstance(value, str) or not re.fullmatch(r"0?[0-7]{3}", value):
            raise ValueError(f"{_written(value)} is not")
        return int(value, 8)

    return Kind("permissions of a file in quotes such as 0660", parse, lambda mode: f"{mode:04o}")


def cron() -> Kind:
    """The moments that a cron expression names; kept as text."""

    def parse(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError(f"{_written(value)} is not text")
        if value != EVERY_HOUR:
            from holdfast.core.cron import parse_cron

            parse_cron(value)
        return value

    return Kind("a cron expression such as 0 0 * ? * * (seconds first) or 0 * * * *", parse)


def time_zone() -> Kind:
    """A time zone by its name in the time zone database; kept as text."""

    def parse(value: object) -> str:
        if not isinstance(value, str) or not value:
            raise ValueError(f"{_written(value)} is not a name")
        if value == "UTC":
            # Every host knows it, and loading the database would cost each start some time.
            return value
        from zoneinfo import ZoneInfo

        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError) as error:
            known = "known on this machine (is its time zone database, tzdata, installed?)"
            raise ValueError(f"{_written(value)} is not {known}") from error
        return value

    return Kind("a time zone such as UTC or Europe/Berlin", parse)


def or_off(kind: Kind) -> Kind:
    """Something of `kind`, or `off` for nothing."""

    def parse(value: object) -> Any:
        return None if value == "off" or value is None else kind.parse(value)

    return Kind(f"{kind.expects}, or off", parse, lambda value: _or_word(value, "off", kind.show))


def or_automatic(kind: Kind) -> Kind:
    """A number of `kind`, or `auto` (0): whoever loads the settings works it out."""

    def parse(value: object) -> Any:
        return 0 if value == "auto" else kind.parse(value)

    return Kind(
        f"auto, or {kind.expects}", parse, lambda value: _or_word(value or None, "auto", kind.show)
    )


def show_size(number: int) -> str:
    """Bytes in the unit that makes the shortest number of them."""
    exact = [(number // size, unit) for unit, size in _SIZE_UNITS.items() if number % size == 0]
    count, unit = min(exact)
    return f"{count}{unit}" if number and unit != "B" else str(number)


def show_duration(number: int) -> str:
    """Seconds in the largest unit that divides them."""
    for unit in ("d", "h", "m"):
        factor = _DURATION_UNITS[unit]
        if number > 0 and number % factor == 0:
            return f"{number // factor}{unit}"
    return f"{number}s"


def _or_word(value: T | None, word: str, show: Callable[[T], str]) -> str:
    return word if value is None else show(value)


def _written(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _whole(value: object) -> int:
    # TOML's true is a Python int; a flag where a number belongs is a mistake worth naming.
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,20}", value.strip()):
        return int(value)
    raise ValueError(f"{_written(value)} is not a whole number")


def _quantity(written: str, units: dict[str, int]) -> int:
    match = _QUANTITY.fullmatch(written.strip())
    factors = {unit.lower(): factor for unit, factor in units.items()} | {"": 1}
    if match is None or match[2].lower() not in factors:
        raise ValueError(f'"{written}" is not a number with one of the units {", ".join(units)}')
    return int(match[1]) * factors[match[2].lower()]


def _within(number: int, minimum: int, maximum: int, show: Callable[[int], str]) -> int:
    if number < minimum:
        raise ValueError(f"{show(number)} is below the minimum of {show(minimum)}")
    if number > maximum:
        raise ValueError(f"{show(number)} is above the maximum of {show(maximum)}")
    return number
