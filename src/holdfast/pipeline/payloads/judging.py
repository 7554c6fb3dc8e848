"""Judge payloads: parsed, rejected with the rule that was broken, or a report that came before.

Owns: what each row becomes, and that it becomes one thing only.
Never: drops a row; asks a clock or a batch number. What a row becomes follows from the log alone,
so that it is the same in every run and for every size of step.

Flow: records -> decoded by each version -> rule or fields -> repeated or not.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from holdfast.pipeline.payloads.catalog import Versions
from holdfast.pipeline.payloads.decoding import UNPARSED, decoded
from holdfast.pipeline.payloads.schema import TYPES, PayloadSchema, SchemaError, topic_pattern

RECORDS = ("offset", "topic", "timestamp", "value")
"""What is judged of a record."""
ANSI = "spark.sql.ansi.enabled"
NO_SCHEMA = "has a topic that a schema knows"
BEGINNING = "1970-01-01T00:00:00Z"
"""A device whose clock was never set says that it is this day, and no clock says that it is an
earlier one."""
FIRST, LAST = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z"
"""Times of which whoever reads a table with Python can make something."""

REJECTED = StructType(
    [
        StructField("offset", LongType()),
        StructField("topic", StringType()),
        StructField("receivedAt", TimestampType()),
        StructField("value", BinaryType()),
        StructField("schema", StringType()),
        StructField("rule", StringType()),
    ]
)
"""What was no report, with the first rule that it broke."""

DUPLICATES = StructType(
    [
        StructField("offset", LongType()),
        StructField("topic", StringType()),
        StructField("receivedAt", TimestampType()),
        StructField("schema", StringType()),
        StructField("key", StringType()),
        StructField("repeats", LongType()),
    ]
)
"""Reports that came again: their key, and the offset of the one before."""


def own_columns() -> list[StructField]:
    """The columns that every table of parsed rows begins with."""
    return [
        StructField("offset", LongType()),
        StructField("topic", StringType()),
        StructField("receivedAt", TimestampType()),
        StructField("late", BooleanType()),
        StructField("schemaVersion", IntegerType()),
    ]


def parsed_columns(versions: Versions) -> StructType:
    """The columns of a schema's table: those of all its versions."""
    fields = own_columns()
    known = {each.name for each in fields}
    for schema in versions.newest_first:
        for each in schema.columns():
            if each.name not in known:
                fields.append(each)
                known.add(each.name)
    return StructType(fields)


def judged(records: DataFrame, versions: Versions) -> DataFrame:
    """Each record with `rule`, null if it keeps all, and the fields of the newest version that it
    keeps."""
    taken = records.select(*RECORDS)
    for schema in versions.newest_first:
        with _expressions_of(schema, taken.sparkSession):
            taken = _judged_by(taken, schema)
    names = [_name(schema) for schema in versions.newest_first]
    keeps = [f.when(f.col(f"{name}.rule").isNull(), f.lit(name)) for name in names]
    taken = taken.withColumn("kept", f.coalesce(*keeps))
    columns = [
        f.col("offset"),
        f.col("topic"),
        f.col("timestamp").alias("receivedAt"),
        f.col("value"),
        f.lit(versions.newest.name).alias("schema"),
        f.when(f.col("kept").isNull(), f.col(f"{names[0]}.rule")).alias("rule"),
        _of_kept(versions, "late").alias("late"),
        f.regexp_replace("kept", "v", "").cast("int").alias("schemaVersion"),
    ]
    for field in parsed_columns(versions).fields[len(own_columns()) :]:
        columns.append(_of_kept(versions, field.name).cast(field.dataType).alias(field.name))
    return taken.select(*columns)


def repeats(good: DataFrame, before: DataFrame, schema: PayloadSchema) -> DataFrame:
    """Of `judged` rows that broke no rule, the `offset` of each that is a report which came before,
    and `repeats`: the offset of the report with the same key that came last, if that was not long
    ago.

    `before` has `key`, `offset`, `receivedAt` of earlier reports that may still be repeated.
    """
    seen = good.select(
        report_key(schema).alias("key"), "offset", "receivedAt", f.lit(True).alias("isNew")
    )
    chain = before.select("key", "offset", "receivedAt", f.lit(False).alias("isNew")).unionByName(
        seen
    )
    order = Window.partitionBy("key").orderBy("offset")
    last = f.lag(f.struct("offset", "receivedAt")).over(order)
    limit = f.expr(f"INTERVAL {schema.duplicate_within_s} SECONDS")
    marked = chain.withColumn("last", last).where(f.col("last").isNotNull() & f.col("isNew"))
    return marked.where(f.col("receivedAt") <= f.col("last.receivedAt") + limit).select(
        "offset", f.col("last.offset").alias("repeats")
    )


def report_key(schema: PayloadSchema) -> Column:
    """What two reports have in common that are the same report."""
    return f.to_json(f.struct(*schema.key))


def topic_condition(schema: PayloadSchema) -> Column:
    """True for records of the schema's topics."""
    return f.col("topic").rlike(topic_pattern(schema.topics))


def _name(schema: PayloadSchema) -> str:
    return f"v{schema.version}"


@contextmanager
def _expressions_of(schema: PayloadSchema, spark: SparkSession) -> Iterator[None]:
    """What is made within fails on no row: what cannot be computed, such as a division by zero, is
    null, so that a check does not hold. Raises `SchemaError` for what no row has a value of."""
    before = str(spark.conf.get(ANSI))
    spark.conf.set(ANSI, "false")
    try:
        yield
    except (AnalysisException, ParseException) as problem:
        said = next(line for line in str(problem).splitlines() if line.strip())
        raise SchemaError(
            f"the schema {schema.name} version {schema.version} has an expression that cannot be"
            f" computed: {said}"
        ) from problem
    finally:
        spark.conf.set(ANSI, before)


def _of_kept(versions: Versions, field: str) -> Column:
    """The field of the version that a row keeps."""
    found = [
        f.when(f.col("kept") == _name(schema), f.col(f"{_name(schema)}.{field}"))
        for schema in versions.newest_first
        if field == "late" or field in schema.columns().names
    ]
    return f.coalesce(*found)


def _judged_by(frame: DataFrame, schema: PayloadSchema) -> DataFrame:
    """The frame with one more column: a struct of the fields, `late`, and the rule that a row
    breaks."""
    name = _name(schema)
    open_fields = decoded(frame, schema, name).select(*frame.columns, f"{name}.*")
    for each in schema.fields:
        if each.become:
            # What cannot be of the field's type is missing, and has to be before it is judged.
            made = f.expr(each.become).cast(TYPES[each.type])
            open_fields = open_fields.withColumn(each.name, made)
    fields = [f.col(each.name) for each in schema.fields]
    struct = f.struct(*fields, _late(schema).alias("late"), _broken_rule(schema).alias("rule"))
    return open_fields.select(*frame.columns, struct.alias(name))


def _late(schema: PayloadSchema) -> Column:
    if not schema.time:
        return f.lit(False)
    after = f.expr(f"INTERVAL {schema.late_after_s} SECONDS")
    return f.col(schema.time) < f.col("timestamp") - after


def _broken_rule(schema: PayloadSchema) -> Column:
    """The first rule that a row breaks, or null."""
    parsable = f"is {schema.format} with the types of {schema.name} version {schema.version}"
    rules = [
        (
            f"has at most {schema.payload_bytes_maximum} bytes",
            f.length("value") > schema.payload_bytes_maximum,
        ),
        (parsable, f.col(UNPARSED).isNotNull()),
    ]
    for each in schema.fields:
        rule = each.required or f"has a right {each.name}"
        if each.required:
            rules.append((rule, f.col(each.name).isNull()))
        if each.check:
            # What may be missing is not checked where it is.
            rules.append((rule, f.col(each.name).isNotNull() & _fails(each.check)))
        if each.type == "timestamp" and each.name != schema.time:
            readable = f.col(each.name).between(_instant(FIRST), _instant(LAST))
            rules.append((rule, ~readable))
    rules += [(rule, _fails(condition)) for rule, condition in schema.rules.items()]
    if schema.time:
        ahead = f.expr(f"INTERVAL {schema.ahead_maximum_s} SECONDS")
        future = f.col(schema.time) > f.col("timestamp") + ahead
        rules.append(("is not from the future", future))
        rules.append(("is not from before 1970", f.col(schema.time) < _instant(BEGINNING)))
    return f.coalesce(*(f.when(problem, f.lit(rule)) for rule, problem in rules))


def _instant(text: str) -> Column:
    return f.lit(text).cast("timestamp")


def _fails(condition: str) -> Column:
    return ~f.coalesce(f.expr(condition), f.lit(False))
