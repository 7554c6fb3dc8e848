"""Where settings are written: a file, the environment, the command line; a later one wins.

Owns: the order of the sources, and which names they may use. Never: knows a particular setting; it
is handed the table (`config`).

Invariants:
1. Every key that a file, a `HOLDFAST_` variable or an option names is known, or loading is refused
   with the key and the place it stands in.
2. One source gives a setting one value.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from holdfast.core.errors import ConfigurationError
from holdfast.core.settings import Setting

PREFIX = "HOLDFAST_"


@dataclass(frozen=True, slots=True)
class Written:
    """A value as somebody wrote it, and where."""

    value: object
    place: str
    """`holdfast.toml`, `HOLDFAST_HOST`, `--host`."""


class Sources:
    """The places where the settings of a table may be written."""

    def __init__(self, table: Mapping[str, Setting]) -> None:
        self._table = table
        self._names = {key: key for key in table}
        for key, row in table.items():
            self._names |= dict.fromkeys(row.aliases, key)

    def written(
        self,
        file: tuple[str, str] | None,
        environment: Mapping[str, str],
        options: Mapping[str, object],
    ) -> dict[str, Written]:
        """What was written for each key, by the source that wins. Raises `ConfigurationError`."""
        in_file = {} if file is None else self._in_file(*file)
        return in_file | self._in_environment(environment) | self._in_options(options)

    def _in_file(self, name: str, content: str) -> dict[str, Written]:
        try:
            table = tomllib.loads(content)
        except tomllib.TOMLDecodeError as error:
            raise ConfigurationError(f"{name} is not valid TOML: {error}") from error
        found: dict[str, Written] = {}
        for written_key, value in _flatten(table).items():
            key = self._names.get(written_key)
            if key is None:
                nearest = self._nearest(written_key)
                raise ConfigurationError(f'{name}: unknown key "{written_key}"{nearest}')
            if key in found:
                raise ConfigurationError(f'{name}: "{written_key}" is a second value of "{key}"')
            found[key] = Written(value, name if written_key == key else f"{name} ({written_key})")
        return found

    def _in_environment(self, environment: Mapping[str, str]) -> dict[str, Written]:
        own = {row.environment_variable: key for key, row in self._table.items()}
        found: dict[str, Written] = {}
        for key, row in self._table.items():
            for alias in row.aliases:
                if alias in environment:
                    found[key] = Written(environment[alias], alias)
        for variable in sorted(environment):
            if not variable.startswith(PREFIX):
                continue
            if variable not in own:
                nearest = self._nearest(variable.removeprefix(PREFIX).lower())
                raise ConfigurationError(f'environment: unknown variable "{variable}"{nearest}')
            found[own[variable]] = Written(environment[variable], variable)
        return found

    def _in_options(self, options: Mapping[str, object]) -> dict[str, Written]:
        return {key: Written(value, self._table[key].option) for key, value in options.items()}

    def _nearest(self, written_key: str) -> str:
        near = get_close_matches(written_key, list(self._table), n=1)
        return f' (did you mean "{near[0]}"?)' if near else ""


def parse(row: Setting, written: Written) -> object:
    """The value that was meant. Raises `ConfigurationError`."""
    try:
        return row.kind.parse(written.value)
    except ValueError as error:
        sentence = f"{written.place}: {row.key}: expected {row.kind.expects}, but {error}"
        raise ConfigurationError(sentence) from error


def _flatten(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
