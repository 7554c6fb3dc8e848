"""Where settings are written: a file, the environment, the command line; a later one wins.

Owns: the order of the sources, and which names they may use. Never: knows a particular setting; it
is handed the table (`config`).

Invariants:
1. Every table and name of a file, every `HOLDFAST_` variable and every option is known, or loading
   is refused with the name and the place it stands in.
2. One source gives a setting one value.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial

from holdfast.core.errors import ConfigurationError
from holdfast.core.settings import Setting

PREFIX = "HOLDFAST_"
BUILD_VARIABLE = "HOLDFAST_BUILD"
DEPLOYMENT_VARIABLE = "HOLDFAST_DEPLOYMENT"
OF_PROCESSORS = (BUILD_VARIABLE, DEPLOYMENT_VARIABLE)
"""Variables that processors are told something by: no settings of a broker, which may be started
from the same shell."""


@dataclass(frozen=True, slots=True)
class Written:
    """A value as somebody wrote it, and where."""

    value: object
    place: str
    """`holdfast.toml`, `HOLDFAST_MQTT_PORT`, `--mqtt-port`."""
    line: Callable[[], int | None] = lambda: None
    """Finds the line of a file."""

    def where(self) -> str:
        """The place, with the line of a file."""
        return _at(self.place, self.line())


class Sources:
    """The places where the settings of a table may be written."""

    def __init__(self, table: Mapping[str, Setting]) -> None:
        self._table = table
        self._names = {name: name for name in table}
        for name, row in table.items():
            self._names |= dict.fromkeys(row.aliases, name)
        self.bridge_tables: tuple[Mapping[str, object], ...] = ()
        """The tables `[[bridge]]` of the file, which are no settings of the broker."""
        self._tables = dict.fromkeys(name.partition(".")[0] for name in self._names if "." in name)

    def written(
        self,
        file: tuple[str, str] | None,
        environment: Mapping[str, str],
        options: Mapping[str, object],
    ) -> dict[str, Written]:
        """What was written for each setting, by the source that wins. Raises
        `ConfigurationError`."""
        in_file = {} if file is None else self._in_file(*file)
        return in_file | self._in_environment(environment) | self._in_options(options)

    def _in_file(self, name: str, content: str) -> dict[str, Written]:
        try:
            document = tomllib.loads(content)
        except (ValueError, RecursionError) as error:
            # The parser's own error is a ValueError, and so is a number of too many digits.
            raise ConfigurationError(f"{name} is not valid TOML: {error}") from error
        bridges = document.pop("bridge", [])
        if not isinstance(bridges, list):
            place = _at(name, _line_of(content, "bridge"))
            raise ConfigurationError(f"{place}: each bridge is a table [[bridge]] of its own")
        self.bridge_tables = tuple(bridges)
        for table, value in document.items():
            if isinstance(value, dict) is (table in self._tables):
                continue
            place = _at(name, _line_of(content, table))
            if table in self._tables:
                raise ConfigurationError(f"{place}: {table} is a table: write [{table}]")
            if isinstance(value, dict):
                near = _nearest(table, self._tables)
                raise ConfigurationError(f'{place}: unknown table "{table}"{near}')
        found: dict[str, Written] = {}
        for written_name, value in _flatten(document).items():
            line = partial(_line_of, content, written_name)
            full_name = self._names.get(written_name)
            if full_name is None:
                near = _nearest(written_name, self._table)
                raise ConfigurationError(
                    f'{_at(name, line())}: unknown name "{written_name}"{near}'
                )
            if full_name in found:
                second = f'"{written_name}" is a second value of "{full_name}"'
                raise ConfigurationError(f"{_at(name, line())}: {second}")
            place = name if written_name == full_name else f"{name} ({written_name})"
            found[full_name] = Written(value, place, line)
        return found

    def _in_environment(self, environment: Mapping[str, str]) -> dict[str, Written]:
        own = {row.environment_variable: name for name, row in self._table.items()}
        found: dict[str, Written] = {}
        for name, row in self._table.items():
            for alias in row.aliases:
                if alias in environment:
                    found[name] = Written(environment[alias], alias)
        for variable in sorted(environment):
            if not variable.startswith(PREFIX) or variable in OF_PROCESSORS:
                continue
            if variable not in own:
                near = _nearest(variable, own)
                raise ConfigurationError(f'environment: unknown variable "{variable}"{near}')
            found[own[variable]] = Written(environment[variable], variable)
        return found

    def _in_options(self, options: Mapping[str, object]) -> dict[str, Written]:
        return {name: Written(value, self._table[name].option) for name, value in options.items()}


def parse(row: Setting, written: Written) -> object:
    """The value that was meant. Raises `ConfigurationError`."""
    try:
        return row.kind.parse(written.value)
    except ValueError as error:
        sentence = f"{written.where()}: {row.name}: expected {row.kind.expects}, but {error}"
        raise ConfigurationError(sentence) from error


def _nearest(written: str, known: Iterable[str]) -> str:
    """Which one may have been meant, with or without its table."""
    names = list(known)
    without_table = {name.partition(".")[2]: name for name in reversed(names) if "." in name}
    near = get_close_matches(written, [*without_table, *names], n=1)
    return f' (did you mean "{without_table.get(near[0], near[0])}"?)' if near else ""


def _at(place: str, line: int | None) -> str:
    return place if line is None else f"{place}, line {line}"


def _line_of(content: str, name: str) -> int | None:
    """The line of a TOML document on which a table or a name first stands."""
    lines = content.split("\n")
    last = name.rpartition(".")[2]
    for number in (number for number, line in enumerate(lines) if last in line):
        # What is before it is whole, and has no such name; what ends where its value does, has.
        if _is_named(lines[:number], name) is False:
            ends = range(number + 1, len(lines) + 1)
            known = (_is_named(lines[:end], name) for end in ends)
            if next((is_named for is_named in known if is_named is not None), False):
                return number + 1
    return None


def _is_named(lines: list[str], name: str) -> bool | None:
    """Whether a document names this; `None` if it is none, as where a value goes on."""
    try:
        document = tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError:
        return None
    return name in document or name in _flatten(document)


def _flatten(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
