"""A schema of payloads: which topics, which form, which fields, which rules.

Owns: the form of a schema file, version by version.
Never: looks at a payload (`decoding`, `judging`).

Invariants:
1. A schema is a value: the same file gives the same rows, on any machine and on any day.
2. What is misspelt in a file raises `SchemaError`, which names the file and the entry.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from holdfast.core.errors import OperatingError
from holdfast.kernel import is_valid_topic_filter

TYPES: Final[Mapping[str, DataType]] = {
    "string": StringType(),
    "int": IntegerType(),
    "long": LongType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
}
FORMATS: Final = ("json", "avro", "protobuf")
LATE_AFTER_S: Final = 600
"""A device that was offline for ten minutes has something to explain."""
AHEAD_MAXIMUM_S: Final = 300
"""Clocks of devices differ by seconds; by more than minutes they are wrong."""
DUPLICATE_WITHIN_S: Final = 3600
"""As long as a session lives by default: later nobody sends the same report again."""
PAYLOAD_BYTES_MAXIMUM: Final = 1 << 20
"""No report of a device is larger; what is larger is somebody's mistake."""
OWN_COLUMNS: Final = frozenset(
    (
        *("offset", "topic", "receivedAt", "late", "schemaVersion", "schema", "rule", "unparsed"),
        *("kept", "timestamp", "value", "key", "repeats"),
    )
)
"""Names that rows have beside their own fields, on their way."""
REJECTED_TABLE: Final = "rejected"
DUPLICATES_TABLE: Final = "duplicates"


class SchemaError(OperatingError):
    """A schema file is wrong. The message names it."""

    retriable = False


@dataclass(frozen=True, slots=True)
class Field:
    """One column that is made of a payload."""

    name: str
    type: str
    path: str
    """Where it lies in the payload: names with dots between them."""
    required: str = ""
    """The rule that is broken where it is missing; empty if it may be."""
    check: str = ""
    """A condition in SQL over the fields; a row that does not keep it breaks `required`."""
    become: str = ""
    """An expression in SQL that the field becomes."""
    form: str = ""
    """How a time is written: a pattern of Spark's, `epoch_ms`, `epoch_s`; ISO 8601 without one."""


@dataclass(frozen=True, slots=True)
class PayloadSchema:
    """One version of one schema."""

    name: str
    version: int
    topics: str
    format: str
    table: str
    fields: tuple[Field, ...]
    key: tuple[str, ...] = ()
    """Two rows with the same are the same report, sent twice; without one nothing is."""
    time: str = ""
    """The field with the device's own time."""
    rules: Mapping[str, str] = field(default_factory=dict)
    """Conditions in SQL over the fields, by what is said of a row that keeps them."""
    late_after_s: int = LATE_AFTER_S
    ahead_maximum_s: int = AHEAD_MAXIMUM_S
    duplicate_within_s: int = DUPLICATE_WITHIN_S
    payload_bytes_maximum: int = PAYLOAD_BYTES_MAXIMUM
    definition: bytes = b""
    """Avro: the schema as JSON. Protobuf: a set of file descriptors."""
    message: str = ""
    """Protobuf: the full name of the message."""

    def columns(self) -> StructType:
        """The fields as columns of the table."""
        return StructType([StructField(each.name, TYPES[each.type]) for each in self.fields])


def topic_pattern(topic_filter: str) -> str:
    """A regular expression that matches what an MQTT topic filter does."""
    if topic_filter == "#":
        return "^[^$].*"
    parts = topic_filter.split("/")
    tail = parts.pop() if parts[-1] == "#" else None
    levels = ["[^/]*" if part == "+" else re.escape(part) for part in parts]
    dollar = "(?!\\$)" if topic_filter[0] in "+#" else ""
    return f"^{dollar}{'/'.join(levels)}{'' if tail is None else '(/.*)?'}$"


def read_schema_file(path: Path) -> PayloadSchema:
    """The schema in a file. Raises `SchemaError`."""
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise SchemaError(f"the schema {path} cannot be read: {problem}") from problem
    try:
        return _parsed(document, path)
    except (KeyError, TypeError) as problem:
        raise SchemaError(f"the schema {path} has no right entry {problem}") from problem


def _parsed(document: dict[str, Any], path: Path) -> PayloadSchema:
    fields = tuple(
        Field(name=name, **{"path": name, **entry})
        for name, entry in document.pop("fields").items()
    )
    schema = PayloadSchema(
        fields=fields,
        key=tuple(document.pop("key", ())),
        definition=_definition(document, path),
        **document,
    )
    names = {each.name for each in fields}
    problems = [
        f"{each.name} has the type {each.type!r}; there are {', '.join(TYPES)}"
        for each in fields
        if each.type not in TYPES
    ]
    problems += [
        f"{each.name} is a name that the pipeline uses itself"
        for each in fields
        if each.name in OWN_COLUMNS
    ]
    problems += [f"key names {each}, which is no field" for each in schema.key if each not in names]
    times = {each.name for each in fields if each.type == "timestamp"}
    if schema.time and schema.time not in times:
        problems.append(f"time names {schema.time}, which is no field of the type timestamp")
    problems += _in_the_way(fields)
    if type(schema.version) is not int or schema.version < 1:
        problems.append(f"version is {schema.version!r}; it is a whole number from 1 on")
    if schema.format not in FORMATS:
        problems.append(f"format is {schema.format!r}; there are {', '.join(FORMATS)}")
    if not is_valid_topic_filter(schema.topics.encode()):
        problems.append(f"topics is {schema.topics!r}, which is no MQTT topic filter")
    if schema.format == "avro":
        problems += _avro_problems(schema.definition)
    if problems:
        raise SchemaError(f"the schema {path} is wrong: {'; '.join(problems)}")
    return schema


def _avro_problems(definition: bytes) -> list[str]:
    """Whoever publishes decides how deep a record lies within itself, and the library that reads it
    has no bound: it ends its process."""
    import fastavro

    try:
        within = _record_within_itself(fastavro.parse_schema(json.loads(definition)), frozenset())
    except (ValueError, KeyError, fastavro.schema.SchemaParseException) as problem:
        return [f"definition is no schema of Avro: {type(problem).__name__} {problem}"]
    return [f"definition has the record {within} within itself"] if within else []


def _record_within_itself(node: Any, around: frozenset[str]) -> str | None:
    """A record of a parsed Avro schema that holds one of its own kind, at whatever depth."""
    if isinstance(node, str):
        return node if node in around else None
    if isinstance(node, list):
        below, inside = node, around
    elif node["type"] in ("record", "error"):
        inside = around | {node["name"]}
        below = [each["type"] for each in node["fields"]]
    else:
        inside = around
        below = [node[name] for name in ("items", "values") if name in node]
        below += [node["type"]] if isinstance(node["type"], (dict, list)) else []
    return next(filter(None, (_record_within_itself(each, inside) for each in below)), None)


def _in_the_way(fields: Sequence[Field]) -> list[str]:
    """What is wrong with paths of which one ends where another goes on."""
    ends = {each.path: each for each in fields}
    return [
        f"{each.name} lies at {each.path}, and {ends[above].name} is {above} itself"
        for each in fields
        for above in accumulate(each.path.split(".")[:-1], "{}.{}".format)
        if above in ends
    ]


def _definition(document: dict[str, Any], path: Path) -> bytes:
    """The file beside the schema file that Avro or Protobuf need."""
    named = document.pop("definition", None)
    if named is None:
        return b""
    file = path.parent / str(named)
    try:
        return file.read_bytes()
    except OSError as problem:
        raise SchemaError(f"the schema {path} names {named}: {problem}") from problem
