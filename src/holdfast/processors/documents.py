"""The files of a configuration: a base, and the one that a deployment lays over it.

Owns: which files there are, and how their text becomes a document: JSON as .NET reads it (with
comments, commas behind the last item and a byte order mark), or TOML. Never: knows what is in them.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.core.errors import ConfigurationError
from holdfast.core.limits import CONFIGURATION_BYTES_MAXIMUM

DEPLOYMENT_VARIABLE: Final = "HOLDFAST_DEPLOYMENT"
DEPLOYMENT_VARIABLES_OF_OTHERS: Final = ("DOTNET_ENVIRONMENT", "ASPNETCORE_ENVIRONMENT")
"""What the products of the decision record are told their deployment by. They are set for whole
machines, so a file for one of them need not be there."""
_DEPLOYMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_STRING: Final = r'"(?:\\.|[^"\\])*"'
_COMMENTS: Final = re.compile(rf"{_STRING}|(//[^\n]*|/\*.*?\*/)", re.DOTALL)
_LAST_COMMAS: Final = re.compile(rf"{_STRING}|(,)(?=\s*[}}\]])", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Document:
    """What a file says."""

    place: str
    """Its name, as an operator knows it."""
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Deployment:
    """Which deployment this is, and whether there has to be a file for it."""

    name: str
    named_by: str
    is_required: bool


def deployment_of(option: str | None, variables: Mapping[str, str]) -> Deployment | None:
    """The deployment that an option or a variable names, in this order: `--deployment`, our
    variable, those of others. None: there is only the base, so that whoever says nothing gets no
    other environment's values. Raises `ConfigurationError`."""
    named = [("--deployment", option), (DEPLOYMENT_VARIABLE, variables.get(DEPLOYMENT_VARIABLE))]
    named += [(name, variables.get(name)) for name in DEPLOYMENT_VARIABLES_OF_OTHERS]
    for named_by, name in named:
        if name is None or not name.strip():
            continue
        if not _DEPLOYMENT.fullmatch(name):
            raise ConfigurationError(f"{named_by}: {name!a} cannot be a part of a file's name")
        return Deployment(name, named_by, named_by not in DEPLOYMENT_VARIABLES_OF_OTHERS)
    return None


def read_documents(base: Path, deployment: Deployment | None) -> tuple[Document, ...]:
    """The base and what lies over it, the later one winning. Raises `ConfigurationError`."""
    documents = [parse_document(str(base), _read(base))]
    if deployment is not None:
        beside = base.with_name(f"{base.stem}.{deployment.name}{base.suffix}")
        if beside.exists():
            documents.append(parse_document(str(beside), _read(beside)))
        elif deployment.is_required:
            raise ConfigurationError(
                f"{beside} is not there, although {deployment.named_by} names {deployment.name}"
            )
    return tuple(documents)


def parse_document(place: str, content: str) -> Document:
    """A document from its text: TOML if `place` ends so, else JSON. Raises
    `ConfigurationError`."""
    is_toml = place.lower().endswith(".toml")
    try:
        found = tomllib.loads(content) if is_toml else _parse_json(content)
    except RecursionError:
        raise ConfigurationError(f"{place} is nested too deep to be a configuration") from None
    except ValueError as error:
        kind = "TOML" if is_toml else "JSON"
        raise ConfigurationError(f"{place} is not valid {kind}: {error}") from error
    if not isinstance(found, dict):
        raise ConfigurationError(f"{place} is not a configuration: it has no sections")
    return Document(place, found)


def _parse_json(content: str) -> Any:
    # What is left out is replaced by blanks, so that a mistake is told with its own line.
    plain = _COMMENTS.sub(_blank, content)
    plain = _LAST_COMMAS.sub(_blank, plain)
    return json.loads(plain, object_pairs_hook=_object, parse_constant=_no_number)


def _blank(found: re.Match[str]) -> str:
    return found[0] if found[1] is None else re.sub(r"[^\n]", " ", found[0])


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key!a} is there twice")
        found[key] = value
    return found


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not a number of JSON")


def _read(file: Path) -> str:
    try:
        with file.open("rb") as source:
            content = source.read(CONFIGURATION_BYTES_MAXIMUM + 1)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror or error}") from error
    if len(content) > CONFIGURATION_BYTES_MAXIMUM:
        raise ConfigurationError(f"{file} is too large to be a configuration file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file} is not text in UTF-8") from error
