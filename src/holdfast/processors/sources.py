"""Where each key of each processor is written: the base, the deployment's file, the environment.

Owns: the section `Mqtt`, the order of the sources, names with double underscores, `${NAME}`.
Never: knows what a value means (`configuration` does), or reads a file or the environment.

Invariants:
1. A later source wins: base, the deployment's file, environment variables (S3.49, S3.51).
2. Every key within the section is known, or it is a problem with its name and its place.
3. As in .NET, neither keys nor processors are told apart by case.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

from holdfast.processors.documents import Document
from holdfast.processors.keys import BY_FOLDED_NAME, KEYS

SECTION: Final = "Mqtt"
SEPARATOR: Final = "__"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""Of a processor: it stands in topics, in metrics and in names of variables."""
_PLACEHOLDER: Final = re.compile(r"\$(\$\{)|\$\{([^}]*)\}")
"""`$${` is a literal `${`."""


@dataclass(frozen=True, slots=True)
class Written:
    """A value as somebody wrote it, and where."""

    value: Any
    place: str


@dataclass(slots=True)
class Sources:
    """What is written, and what is wrong with it."""

    names: dict[str, str] = field(default_factory=dict)
    """Processors, by their names in lower case; each as it was first written."""
    own: dict[tuple[str, str], Written] = field(default_factory=dict)
    """By processor (in lower case) and key."""
    shared: dict[str, Written] = field(default_factory=dict)
    """Keys that stand in the section itself: they are for every processor that has none of its
    own."""
    problems: list[str] = field(default_factory=list)

    def of(self, processor: str, key: str) -> Written | None:
        """What counts for a processor."""
        return self.own.get((processor.lower(), key), self.shared.get(key))


def read_sources(documents: Sequence[Document], variables: Mapping[str, str]) -> Sources:
    """All that is written."""
    sources = Sources()
    sections = [_section(sources, document) for document in documents]
    for document, section in zip(documents, sections, strict=True):
        _read_section(sources, document.place, section)
    if not any(sections) and not sources.problems:
        places = " and ".join(document.place for document in documents)
        others = [name for each in documents for name in each.content]
        near = _nearest(SECTION, [name for name in others if name.lower() != SECTION.lower()])
        sources.problems.append(f"{places}: there is no section {SECTION} with processors{near}")
    _read_variables(sources, variables)
    return sources


def _section(sources: Sources, document: Document) -> Mapping[str, Any]:
    """The section of one document; other sections are other programs'."""
    found: dict[str, Any] = {}
    for name, value in document.content.items():
        if name.lower().startswith(f"{SECTION.lower()}:"):
            problem = f"{document.place}: {name}: keys are written as an object {SECTION}"
            sources.problems.append(problem)
        elif name.lower() != SECTION.lower():
            continue
        elif not isinstance(value, Mapping):
            sources.problems.append(f"{document.place}: {name}: expected processors by name")
        elif found:
            sources.problems.append(f"{document.place}: {name}: the section is there twice")
        else:
            found = dict(value)
    return found


def _read_section(sources: Sources, place: str, section: Mapping[str, Any]) -> None:
    seen: set[str] = set()
    for name, value in section.items():
        path = f"{place}: {SECTION}.{name}"
        if name.lower() in seen:
            sources.problems.append(f"{path}: it is there twice")
            continue
        seen.add(name.lower())
        if not isinstance(value, Mapping):
            _write_shared(sources, name, Written(value, path))
        elif name.lower() in BY_FOLDED_NAME:
            problem = (
                f"{path}: expected {BY_FOLDED_NAME[name.lower()].kind.expects}, but it has keys"
            )
            sources.problems.append(problem)
        elif not NAME.fullmatch(name) or SEPARATOR in name:
            sources.problems.append(
                f"{path}: a processor's name has letters, digits and single _ . - and at most 64"
            )
        else:
            sources.names.setdefault(name.lower(), name)
            _read_processor(sources, path, name, value)


def _read_processor(sources: Sources, path: str, name: str, keys: Mapping[str, Any]) -> None:
    seen: set[str] = set()
    for key, value in keys.items():
        if key.lower() in seen:
            sources.problems.append(f"{path}.{key}: it is there twice")
            continue
        seen.add(key.lower())
        _write_own(sources, name, key, Written(value, f"{path}.{key}"))


def _write_own(sources: Sources, name: str, key: str, written: Written) -> None:
    row = BY_FOLDED_NAME.get(key.lower())
    if row is None:
        sources.problems.append(f"{written.place}: unknown key{_nearest(key, KEYS)}")
    else:
        sources.own[name.lower(), row.name] = written


def _write_shared(sources: Sources, key: str, written: Written) -> None:
    row = BY_FOLDED_NAME.get(key.lower())
    if row is None:
        near = _nearest(key, [*KEYS, *sources.names.values()])
        sources.problems.append(f"{written.place}: unknown key{near}")
    else:
        sources.shared[row.name] = written


def _read_variables(sources: Sources, variables: Mapping[str, str]) -> None:
    seen: dict[str, str] = {}
    lists: dict[tuple[str, ...], dict[str, Written]] = {}
    for variable in sorted(variables):
        first, *path = variable.split(SEPARATOR)
        if first.lower() != SECTION.lower() or not path:
            continue
        place = f"environment variable {variable}"
        other = seen.setdefault(variable.lower(), variable)
        if other != variable:
            sources.problems.append(f"{place}: {other} is the same")
        elif path[-1].isdecimal() and len(path) > 1:
            parts = lists.setdefault(tuple(part.lower() for part in path[:-1]), {})
            parts[path[-1]] = Written(variables[variable], place)
        else:
            _write_variable(sources, path, Written(variables[variable], place))
    for list_path, parts in lists.items():
        _write_list(sources, list_path, parts)


def _write_list(sources: Sources, path: tuple[str, ...], parts: Mapping[str, Written]) -> None:
    """A list that is written item by item, as `…__0` and `…__1`: it replaces the whole list, since
    half of one and half of another is nobody's."""
    expected = [str(number) for number in range(len(parts))]
    places = ", ".join(part.place.removeprefix("environment variable ") for part in parts.values())
    place = f"environment variable {places}"
    if set(parts) != set(expected):
        sources.problems.append(f"{place}: the items of a list are numbered from 0")
    else:
        items = [parts[number].value for number in expected]
        _write_variable(sources, list(path), Written(items, place))


def _write_variable(sources: Sources, path: Sequence[str], written: Written) -> None:
    if len(path) == 1:
        _write_shared(sources, path[0], written)
    elif path[0].lower() not in sources.names:
        near = _nearest(path[0], sources.names.values())
        sources.problems.append(f"{written.place}: there is no processor {path[0]}{near}")
    else:
        _write_own(sources, path[0], SEPARATOR.join(path[1:]), written)


class MissingVariableError(Exception):
    """A `${NAME}` that the environment does not have."""


def filled(written: Written, variables: Mapping[str, str]) -> Written:
    """The value with each `${NAME}` replaced from the environment, and its place with their names.
    What comes in is not looked at again. Raises `MissingVariableError`."""
    used: list[str] = []

    def fill(found: re.Match[str]) -> str:
        if found[1]:
            return found[1]
        if found[2] not in variables:
            raise MissingVariableError(
                f"{written.place}: ${{{found[2]}}}: there is no such environment variable"
            )
        used.append(f"${{{found[2]}}}")
        return variables[found[2]]

    def fill_in(value: Any) -> Any:
        return _PLACEHOLDER.sub(fill, value) if isinstance(value, str) else value

    if isinstance(written.value, list):
        value: Any = [fill_in(item) for item in written.value]
    else:
        value = fill_in(written.value)
    names = ", ".join(dict.fromkeys(used))
    return Written(value, f"{written.place} with {names}" if names else written.place)


def _nearest(written: str, known: Iterable[str]) -> str:
    """Which one may have been meant."""
    by_folded = {name.lower(): name for name in known}
    near = get_close_matches(written.lower(), by_folded, n=1)
    return f' (did you mean "{by_folded[near[0]]}"?)' if near else ""
