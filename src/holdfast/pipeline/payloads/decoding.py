"""Read payloads into columns: JSON by Spark itself, Avro and Protobuf by their usual libraries.

Owns: one struct column for each schema, with its fields as they are in the payload, and what could
not be read.
Never: judges; a field that is missing is null.

Flow: value -> `decoded` struct of fields and `unparsed` -> `judging`.
"""

import io
import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from holdfast.pipeline.payloads.schema import TYPES, Field, PayloadSchema

UNPARSED = "unparsed"
ONLY = "only"
SEAL = "."
"""No field has this name: a dot stands between the names of a path."""
JSON = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": UNPARSED,
    # Neither is JSON, and Spark takes both unless told.
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
EPOCHS = {"epoch_s": 1, "epoch_ms": 1_000}
ISO = "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXXXX][XX]"
UNREADABLE_CHARACTERS = 200
SCHEMAS_KEPT = 64
"""Schemas that a worker keeps ready; one more is read again."""


def decoded(frame: DataFrame, schema: PayloadSchema, name: str) -> DataFrame:
    """The frame with one more column, a struct of the schema's fields and `unparsed`."""
    if schema.format == "json":
        return _decoded_json(frame, schema, name)
    read = _avro_reader(schema) if schema.format == "avro" else _protobuf_reader(schema)
    raw = StructType(
        [
            *(StructField(each.name, _raw_type(each)) for each in schema.fields),
            StructField(UNPARSED, StringType()),
        ]
    )
    target = StructType([*frame.schema.fields, StructField(name, raw)])
    arrow = to_arrow_schema(target, timezone="UTC")
    paths = [each.path.split(".") for each in schema.fields]

    def read_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            column = _structs(batch["value"], read, paths, arrow.field(name).type)
            yield pa.RecordBatch.from_arrays([*batch.columns, column], schema=arrow)

    made = frame.mapInArrow(read_batches, target)
    return made.withColumn(name, _settled(schema, name))


def _decoded_json(frame: DataFrame, schema: PayloadSchema, name: str) -> DataFrame:
    tree: dict[str, Any] = {}
    for each in schema.fields:
        node = tree
        *above, leaf = each.path.split(".")
        for part in above:
            node = node.setdefault(part, {})
        node[leaf] = _raw_type(each)
    # Spark takes the first value of a text and is silent about what follows it. So the payload is
    # read as the one in the middle of a list, between two seals that are made of its own bytes: a
    # payload that ends the list early, or begins another, would have to hold its own digest.
    only = ArrayType(_struct(tree | {SEAL: StringType()}))
    shape = StructType([StructField(ONLY, only), StructField(UNPARSED, StringType())])
    value = f.col("value").cast("string")
    seal = f.sha2("value", 256)
    sealed = f.concat(f.lit(f'{{"{SEAL}":"'), seal, f.lit('"}'))
    begin, end = f.lit(f'{{"{ONLY}":['), f.lit("]}")
    text = f.concat(begin, sealed, f.lit(","), value, f.lit(","), sealed, end)
    made = frame.withColumn(name, f.from_json(text, shape, JSON))
    found = f.col(f"{name}.{ONLY}")
    before, payload, behind = (f.get(found, f.lit(place)) for place in range(3))
    alone = (f.size(found) == 3) & (before[SEAL] == seal) & (behind[SEAL] == seal)
    fields = [_within(payload, each.path).alias(each.name) for each in schema.fields]
    broken = (
        # Bytes that are no text would be read as if they were.
        f.when(~f.is_valid_utf8(value), "bytes that are no UTF-8")
        .when(f.col(f"{name}.{UNPARSED}").isNotNull(), "no JSON of these types")
        .when(~f.coalesce(alone & payload.isNotNull(), f.lit(False)), "not one JSON object")
    )
    flat = made.withColumn(name, f.struct(*fields, broken.alias(UNPARSED)))
    return flat.withColumn(name, _settled(schema, name))


def _within(column: Column, path: str) -> Column:
    for part in path.split("."):
        column = column[part]
    return column


def _struct(tree: dict[str, Any]) -> StructType:
    return StructType(
        [
            StructField(key, _struct(value) if isinstance(value, dict) else value)
            for key, value in tree.items()
        ]
    )


def _raw_type(field: Field) -> DataType:
    """As a payload has it: a time is text or a number there."""
    if field.type != "timestamp":
        return TYPES[field.type]
    return LongType() if field.form in EPOCHS else StringType()


def _settled(schema: PayloadSchema, name: str) -> Column:
    """The struct with times as instants. What is no time is null where the field is required, which
    is a rule of its own, and has not the type of the field elsewhere."""
    fields, problems = [], [f.col(f"{name}.{UNPARSED}")]
    for each in schema.fields:
        column = f.col(f"{name}.{each.name}")
        if each.type == "timestamp":
            time = _instant(column, each.form)
            if not each.required:
                wrong = column.isNotNull() & time.isNull()
                problems.append(f.when(wrong, f.lit(f"{each.name} is no time")))
            column = time
        fields.append(column.alias(each.name))
    return f.struct(*fields, f.coalesce(*problems).alias(UNPARSED))


def _instant(column: Column, form: str) -> Column:
    if form in EPOCHS:
        # What is no number of microseconds is no time.
        return f.timestamp_micros(f.try_multiply(column, f.lit(1_000_000 // EPOCHS[form])))
    return f.try_to_timestamp(column, f.lit(form or ISO))


def _structs(
    values: pa.Array, read: Callable[[bytes], Any], paths: list[list[str]], kind: pa.StructType
) -> pa.Array:
    columns: list[list[Any]] = [[] for _ in range(kind.num_fields)]
    for value in values:
        try:
            found = read(value.as_py())
            row = [
                _checked(_at(found, path), kind.field(place).type)
                for place, path in enumerate(paths)
            ]
            problem = None
        except Exception as unreadable:  # noqa: BLE001 - whatever a library says of bytes from outside
            row = [None] * len(paths)
            problem = f"{type(unreadable).__name__}: {unreadable}"[:UNREADABLE_CHARACTERS]
        for column, cell in zip(columns, [*row, problem], strict=True):
            column.append(cell)
    arrays = [
        pa.array(column, field.type) for column, field in zip(columns, list(kind), strict=True)
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def _at(found: Any, path: list[str]) -> Any:
    for part in path:
        if found is None:
            return None
        found = found.get(part) if isinstance(found, dict) else _attribute(found, part)
    return found


def _attribute(message: Any, name: str) -> Any:
    """A field of a Protobuf message; null where its presence is known and it is absent."""
    described = message.DESCRIPTOR.fields_by_name[name]
    if described.has_presence and not message.HasField(name):
        return None
    return getattr(message, name)


def _checked(value: Any, kind: pa.DataType) -> Any:
    """The value as Arrow takes it; raises where it is of another type."""
    if value is None:
        return None
    if pa.types.is_timestamp(kind) or not hasattr(value, "isoformat"):
        return pa.scalar(value, kind).as_py()
    return pa.scalar(value.isoformat(), kind).as_py()


def _avro_reader(schema: PayloadSchema) -> Callable[[bytes], Any]:
    definition = schema.definition

    def read(value: bytes) -> Any:
        import fastavro

        stream = io.BytesIO(value)
        found = fastavro.schemaless_reader(stream, _parsed_avro(definition), None)
        if stream.read(1):
            raise ValueError("bytes are left over")
        return found

    return read


@lru_cache(maxsize=SCHEMAS_KEPT)
def _parsed_avro(definition: bytes) -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(definition))


def _protobuf_reader(schema: PayloadSchema) -> Callable[[bytes], Any]:
    descriptors, message = schema.definition, schema.message

    def read(value: bytes) -> Any:
        found = _message_class(descriptors, message)()
        found.ParseFromString(value)
        return found

    return read


@lru_cache(maxsize=SCHEMAS_KEPT)
def _message_class(descriptors: bytes, message: str) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
