"""All schemas that a pipeline knows: its own folder's, and those that are built in.

Owns: which schema a topic has.

Invariants:
1. A schema of the folder with a built-in one's name takes its place, with all versions.
2. The versions of one schema have the same topics, table and key, and a field has one type.
3. A table is one schema's.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from holdfast.pipeline.payloads.schema import (
    DUPLICATES_TABLE,
    REJECTED_TABLE,
    PayloadSchema,
    SchemaError,
    read_schema_file,
)

BUILT_IN = Path(str(files("holdfast.pipeline.payloads") / "built_in"))


@dataclass(frozen=True, slots=True)
class Versions:
    """One schema with all its versions, the newest first."""

    newest_first: tuple[PayloadSchema, ...]

    @property
    def newest(self) -> PayloadSchema:
        """What new devices send."""
        return self.newest_first[0]


def read_catalog(folder: Path | None) -> tuple[Versions, ...]:
    """The schemas of a folder and the built-in ones, by name. Raises `SchemaError`."""
    own = (
        [] if folder is None else [read_schema_file(path) for path in sorted(folder.glob("*.toml"))]
    )
    taken = {each.name for each in own}
    built_in = [read_schema_file(path) for path in sorted(BUILT_IN.glob("*.toml"))]
    return grouped([*own, *(each for each in built_in if each.name not in taken)])


def grouped(schemas: Iterable[PayloadSchema]) -> tuple[Versions, ...]:
    """Versions of one schema together. Raises `SchemaError` where they contradict each other."""
    by_name: dict[str, list[PayloadSchema]] = {}
    for each in schemas:
        by_name.setdefault(each.name, []).append(each)
    found = []
    for name, versions in sorted(by_name.items()):
        newest_first = tuple(sorted(versions, key=lambda each: -each.version))
        if len({each.version for each in versions}) < len(versions):
            raise SchemaError(f"the schema {name} has a version twice")
        if len({(each.topics, each.table, each.key) for each in versions}) > 1:
            raise SchemaError(f"the versions of schema {name} differ in topics, table or key")
        types: dict[str, str] = {}
        for field in (field for each in newest_first for field in each.fields):
            if types.setdefault(field.name, field.type) != field.type:
                raise SchemaError(
                    f"the versions of schema {name} have the field {field.name} as"
                    f" {types[field.name]} and as {field.type}, and a column of a table has one"
                    " type: give it another name, and say with `path` where it lies"
                )
        found.append(Versions(newest_first))
    _refuse_shared_tables(found)
    return tuple(found)


def _refuse_shared_tables(found: Iterable[Versions]) -> None:
    makers = dict.fromkeys((REJECTED_TABLE, DUPLICATES_TABLE), "the pipeline itself")
    for each in found:
        table, schema = each.newest.table, f"the schema {each.newest.name}"
        if makers.setdefault(table, schema) != schema:
            raise SchemaError(f"{makers[table]} and {schema} have the same table, {table}")
