"""Reports out of payloads: a few rows in, each with its fate, by JSON, Avro and Protobuf."""

import io
import json
import re
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from holdfast.pipeline.jobs.silver import reports, silver_job
from holdfast.pipeline.load.table import no_rows
from holdfast.pipeline.payloads.catalog import Versions, grouped, read_catalog
from holdfast.pipeline.payloads.judging import judged, parsed_columns
from holdfast.pipeline.payloads.schema import SchemaError, read_schema_file, topic_pattern
from holdfast.pipeline.source.columns import read_schema

RECEIVED = datetime(2025, 3, 1, 12, 0, 5, tzinfo=UTC)
READS = next(each for each in read_catalog(None) if each.newest.table == "tag_reads")


def report(**changes: Any) -> dict[str, Any]:
    data = {
        "eventNum": 1,
        "format": "epc",
        "idHex": "e280116020001234",
        "antenna": 2,
        "peakRssi": -51,
        "reads": 3,
        "hostName": "FX9600-01",
    }
    return {"type": "SIMPLE", "timestamp": "2025-03-01T12:00:00.250+0000", "data": data} | changes


def without(name: str) -> dict[str, Any]:
    data = {key: value for key, value in report()["data"].items() if key != name}
    return report(data=data)


def having(**changes: Any) -> dict[str, Any]:
    return report(data=report()["data"] | changes)


def records(spark: SparkSession, *payloads: bytes | dict[str, Any]) -> DataFrame:
    rows = [
        (
            "zebra/fx/1/reads",
            payload if isinstance(payload, bytes) else json.dumps(payload).encode(),
            offset,
            RECEIVED,
        )
        for offset, payload in enumerate(payloads)
    ]
    return spark.createDataFrame(rows, read_schema(("topic", "value", "offset", "timestamp")))


class NothingBefore:
    """The first step of all."""

    def __init__(self, spark: SparkSession, taken: int) -> None:
        self._spark = spark
        self.taken = taken

    def rows(self, table: str, **_at_least: object) -> DataFrame:
        """A table without rows."""
        return no_rows(self._spark, silver_job([READS]).makes[table].columns)

    def kept(self, frame: DataFrame) -> DataFrame:
        """Held by Spark."""
        return frame.persist()

    def earliest(self, _column: str) -> datetime | None:
        """Nobody says."""
        return None


def judge(frame: DataFrame, versions: Versions = READS) -> list[Any]:
    return sorted(judged(frame, versions).collect(), key=lambda row: row["offset"])


def test_a_read_is_understood_with_its_time_in_any_form(spark: SparkSession) -> None:
    times = ["2025-03-01T12:00:00Z", "2025-03-01T13:00:00.000+01:00"]
    times += ["2025-03-01T10:00:00.000000-0200"]
    rows = judge(records(spark, report(), *(report(timestamp=each) for each in times)))
    row = rows[0]
    assert row["rule"] is None
    assert (row["hostName"], row["eventNum"], row["antenna"]) == ("FX9600-01", 1, 2)
    assert (row["idHex"], row["peakRssi"], row["reads"]) == ("E280116020001234", -51, 3)
    assert (row["late"], row["schemaVersion"]) == (False, 1)
    assert row["readAt"].timestamp() == datetime(2025, 3, 1, 12, 0, 0, 250_000, UTC).timestamp()
    noon = datetime(2025, 3, 1, 12, tzinfo=UTC).timestamp()
    assert {each["readAt"].timestamp() for each in rows[1:]} == {noon}


def test_what_is_no_read_has_the_rule_that_it_broke(spark: SparkSession) -> None:
    form = "is json with the types of zebra-fx9600-reads version 1"
    broken: list[tuple[str | None, bytes | dict[str, Any]]] = [
        (form, b'{"type": "SIMPLE", "data": {"eve'),
        ("names its reader", without("hostName")),
        ("has an event number", without("eventNum")),
        ("names a tag in hex", having(idHex="E2G0")),
        ("has a time", report(timestamp="yesterday")),
        ("is not from the future", report(timestamp="2025-03-01T12:06:00Z")),
        ("is not from the future", report(timestamp="+12025-03-01T12:06:00Z")),
        ("is not from before 1970", report(timestamp="-0500-01-01T00:00:00+0000")),
        ("is not from before 1970", report(timestamp="1969-12-31T23:59:59.999Z")),
        ("has at most 1048576 bytes", b"{" + b" " * (1 << 20) + b"}"),
        ("names its reader", b"{}"),
        (form, b"\xff\xfe"),
        (form, having(antenna={"port": 1})),
        (form, having(eventNum="x")),
        (None, report(timestamp="2025-03-01T12:04:00Z")),
        (None, report(timestamp="1970-01-01T00:00:00Z")),
    ]
    rows = judge(records(spark, *(payload for _, payload in broken)))
    assert [row["rule"] for row in rows] == [rule for rule, _ in broken]
    assert [bytes(row["value"])[:9] for row in rows[:1]] == [b'{"type": ']
    for payload in (b"", b"null", b"[]", b"42"):
        [row] = judge(records(spark, payload))
        assert row["rule"] is not None


def test_what_is_not_one_whole_json_object_is_no_read(spark: SparkSession) -> None:
    good = json.dumps(report())
    wrong = [
        *(good + " trailing garbage", good + good, good + "," + good, good + "}", good + "]"),
        *(good + "]]}", good + "]]} trailing", good + "],[", good + "],[1", good + ',"x":1'),
        *(good + "]}", good + "],[]]}", good + "],[]]} trailing", good + '],"unparsed":"x","y":[1'),
        *(f'{good}],"only":[{good}', f'{good}],[]],"only":[[{good}'),
        *(f'{{".":""}},{good},{{".":""}}]}}', f'{good}],"only":[{{".":""}},{good}'),
        *(f"[{good}]", f"[{good}", good[1:], good[:-1], good.replace('"', "'"), "", "null", "42"),
        *(good.replace("-51", "NaN"), good.replace("-51", "-Infinity"), "{}{}", "\ufeff" + good),
        *(good + ", null", "null," + good, "// said\n" + good, good.replace(" 3,", " 03,")),
    ]
    fine = [f"\n {good}\t\r\n", report(more=[[1], {"a": []}], only=[[]], **{".": 1})]
    rows = judge(records(spark, *(each.encode() for each in wrong)))
    form = "is json with the types of zebra-fx9600-reads version 1"
    assert {text: row["rule"] for text, row in zip(wrong, rows, strict=True)} == dict.fromkeys(
        wrong, form
    )
    rows = judge(records(spark, fine[0].encode(), fine[1]))
    assert [row["rule"] for row in rows] == [None, None]


def schema_of(folder: Path, fields: str, *, more: str = "") -> Versions:
    """A schema of JSON with these fields."""
    file = folder / "own.v1.toml"
    begin = 'name = "own"\nversion = 1\ntopics = "#"\nformat = "json"\ntable = "own"\n'
    file.write_text(f"{begin}{more}\n[fields]\n{fields}")
    return grouped([read_schema_file(file)])[0]


def test_a_time_outside_the_years_that_python_knows_is_rejected(
    spark: SparkSession, tmp_path: Path
) -> None:
    versions = schema_of(tmp_path, 'at = { type = "timestamp" }')
    times = ["-0500-01-01T00:00:00Z", "+12025-03-01T00:00:00Z", "0001-01-01T00:00:00Z"]
    frame = records(spark, *({"at": each} for each in [*times, None]))
    rules = judged(frame, versions).orderBy("offset").select("rule").collect()
    assert [row["rule"] for row in rules] == ["has a right at"] * 2 + [None] * 2


@pytest.mark.parametrize(
    ("required", "rule"),
    [
        ("", "is json with the types of own version 1"),
        (', required = "has a time"', "has a time"),
    ],
)
def test_what_is_no_time_is_rejected_whether_or_not_it_may_be_missing(
    spark: SparkSession, tmp_path: Path, required: str, rule: str
) -> None:
    form = f'type = "timestamp"{required}'
    fields = f'at = {{ {form}, form = "epoch_ms" }}\nuntil = {{ type = "timestamp" }}'
    versions = schema_of(tmp_path, fields)
    times = [9 * 10**18, -(2**63), AT_MS]
    frame = records(spark, *({"at": each} for each in times))
    rules = judged(frame, versions).orderBy("offset").select("rule").collect()
    assert [row["rule"] for row in rules] == [rule, rule, None]
    [row] = judge(records(spark, {"at": AT_MS, "until": "tomorrow"}), versions)
    assert row["rule"] == "is json with the types of own version 1"


def test_an_expression_that_fails_on_a_row_rejects_the_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    rules = '[rules]\n"has a whole share" = "12 % a = 0"\n'
    fields = 'a = { type = "long", required = "has an a", check = "100 / (a - 5) > 0" }\n'
    fields += 'b = { type = "long", required = "has a b", become = "text" }\n'
    fields += 'text = { type = "string" }\n'
    versions = schema_of(tmp_path, fields, more=rules)
    told = [{"a": 6, "text": "7"}, {"a": 5, "text": "7"}, {"a": 6, "text": "x"}]
    rows = judge(records(spark, *told, {"a": 7, "text": "7"}), versions)
    assert [row["rule"] for row in rows] == [None, "has an a", "has a b", "has a whole share"]
    assert rows[0]["b"] == 7
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"


@pytest.mark.parametrize("check", ["nope > 1", "a > > 1"])
def test_an_expression_that_no_row_has_a_value_of_is_refused_by_its_schema(
    spark: SparkSession, tmp_path: Path, check: str
) -> None:
    versions = schema_of(tmp_path, f'a = {{ type = "long", check = "{check}" }}')
    with pytest.raises(SchemaError, match=r"schema own version 1 .*(nope|'>')") as refused:
        judged(records(spark, {"a": 1}), versions)
    assert len(str(refused.value).splitlines()) == 1


def test_a_new_version_adds_a_column_and_both_are_understood(
    spark: SparkSession, tmp_path: Path
) -> None:
    common = 'name = "t"\ntopics = "t/#"\nformat = "json"\ntable = "t"\n[fields]\n'
    one = 'a = { type = "long", required = "has a" }\n'
    two = one + 'b = { type = "double", required = "has b" }\n'
    (tmp_path / "t.v1.toml").write_text("version = 1\n" + common + one)
    (tmp_path / "t.v2.toml").write_text("version = 2\n" + common + two)
    versions = read_catalog(tmp_path)[0]
    assert parsed_columns(versions).names[-2:] == ["a", "b"]
    rows = judge(records(spark, {"a": 1}, {"a": 2, "b": 0.5}, {"b": 1.5}), versions)
    assert [(row["schemaVersion"], row["a"], row["b"]) for row in rows] == [
        (1, 1, None),
        (2, 2, 0.5),
        (None, None, None),
    ]
    assert rows[2]["rule"] == "has a"


AVRO = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "device", "type": "string"},
        {"name": "celsius", "type": ["null", "double"]},
        {"name": "at", "type": "long"},
    ],
}
FIELDS = """
[fields]
device = { type = "string", required = "names its device" }
celsius = { type = "double", check = "celsius < 100" }
at = { type = "timestamp", form = "epoch_ms" }
"""
AT_MS = 1_740_830_400_000


def test_avro(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "reading.avsc").write_text(json.dumps(AVRO))
    (tmp_path / "reading.v1.toml").write_text(
        'name = "r"\nversion = 1\ntopics = "#"\nformat = "avro"\ntable = "r"\ntime = "at"\n'
        'definition = "reading.avsc"\n' + FIELDS
    )

    def encoded(**values: Any) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), values)
        return stream.getvalue()

    good = encoded(device="d", celsius=21.5, at=AT_MS)
    cold = encoded(device="d", celsius=None, at=AT_MS)
    hot = encoded(device="d", celsius=451.0, at=AT_MS)
    versions = grouped([read_schema_file(tmp_path / "reading.v1.toml")])[0]
    rows = judge(records(spark, good, cold, hot, good + b"x", b"\xff"), versions)
    form = "is avro with the types of r version 1"
    assert [row["rule"] for row in rows] == [None, None, "has a right celsius", form, form]
    assert (rows[0]["device"], rows[0]["celsius"]) == ("d", 21.5)
    assert rows[0]["at"].timestamp() * 1000 == AT_MS
    assert rows[1]["celsius"] is None


def test_protobuf(spark: SparkSession, tmp_path: Path) -> None:
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="reading.proto", package="demo", syntax="proto3")
    described = file.message_type.add(name="Reading")
    kinds = descriptor_pb2.FieldDescriptorProto
    for number, (name, kind) in enumerate(
        [("device", kinds.TYPE_STRING), ("celsius", kinds.TYPE_DOUBLE), ("at", kinds.TYPE_INT64)], 1
    ):
        described.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    (tmp_path / "reading.desc").write_bytes(files.SerializeToString())
    (tmp_path / "reading.v1.toml").write_text(
        'name = "r"\nversion = 1\ntopics = "#"\nformat = "protobuf"\ntable = "r"\n'
        'definition = "reading.desc"\nmessage = "demo.Reading"\n' + FIELDS
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    reading = message_factory.GetMessageClass(pool.FindMessageTypeByName("demo.Reading"))
    good = reading(device="d", celsius=21.5, at=AT_MS).SerializeToString()
    versions = grouped([read_schema_file(tmp_path / "reading.v1.toml")])[0]
    rows = judge(records(spark, good, b"\x0a\xff"), versions)
    assert [row["rule"] for row in rows] == [None, "is protobuf with the types of r version 1"]
    assert (rows[0]["device"], rows[0]["celsius"]) == ("d", 21.5)


@pytest.mark.parametrize(
    ("topic_filter", "matching", "other"),
    [
        ("zebra/fx/+/reads", "zebra/fx/7/reads", "zebra/fx/7/8/reads"),
        ("zebra/#", "zebra", "zebras"),
        ("zebra/#", "zebra/a/b", "other"),
        ("#", "a/b", "$SYS/a"),
        ("+/b", "a/b", "$a/b"),
        ("a.b/c", "a.b/c", "axb/c"),
    ],
)
def test_topics_are_matched_as_mqtt_does(topic_filter: str, matching: str, other: str) -> None:
    pattern = topic_pattern(topic_filter)
    assert re.search(pattern, matching)
    assert not re.search(pattern, other)


def test_a_wrong_schema_file_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    begin = 'name = "b"\nversion = 1\ntopics = "b"\nformat = "json"\ntable = "b"\n'
    for text, problem in (
        (begin + '[fields]\na = { type = "text" }', "a has the type 'text'"),
        (begin + '[fields]\noffset = { type = "long" }', "a name that the pipeline uses itself"),
        (begin + 'key = ["x"]\n[fields]\na = { type = "long" }', "key names x"),
        (begin.replace('"json"', '"xml"') + "[fields]", "format is 'xml'"),
        (begin, "no right entry 'fields'"),
        (
            begin + 'time = "a"\n[fields]\na = { type = "string" }',
            "time names a, which is no field of",
        ),
        (begin.replace("= 1", '= "1"') + "[fields]", "version is '1'; it is a whole number"),
        (
            begin + '[fields]\na = { type = "string" }\nb = { type = "long", path = "a.b.c" }',
            "b lies at a.b.c, and a is a itself",
        ),
        (begin + "color = 1\n[fields]", "color"),
    ):
        file.write_text(text)
        with pytest.raises(SchemaError, match=problem) as refused:
            read_schema_file(file)
        assert str(file) in str(refused.value)


def schema_text(name: str, table: str, kind: str, version: int = 1) -> str:
    return (
        f'name = "{name}"\nversion = {version}\ntopics = "#"\nformat = "json"\ntable = "{table}"\n'
        f'[fields]\na = {{ type = "{kind}" }}'
    )


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        (
            schema_text("x", "t", "long"),
            schema_text("y", "t", "long"),
            "the schema x and the schema y have the same table, t",
        ),
        (
            schema_text("x", "t", "long"),
            schema_text("y", "rejected", "long"),
            "the pipeline itself and the schema y have the same table, rejected",
        ),
        (
            schema_text("x", "t", "long"),
            schema_text("x", "t", "string", version=2),
            "have the field a as string and as long, and a column of a table has one type",
        ),
    ],
)
def test_schemas_that_would_take_each_others_columns_are_refused(
    tmp_path: Path, first: str, second: str, problem: str
) -> None:
    (tmp_path / "first.toml").write_text(first)
    (tmp_path / "second.toml").write_text(second)
    with pytest.raises(SchemaError, match=problem):
        read_catalog(tmp_path)


LINKED = {
    "type": "record",
    "name": "a.Node",
    "fields": [{"name": "next", "type": ["null", "Node"]}],
}
THROUGH_ANOTHER = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {
            "name": "leaf",
            "type": {
                "type": "record",
                "name": "Leaf",
                "fields": [{"name": "trees", "type": {"type": "array", "items": "Tree"}}],
            },
        }
    ],
}
TWICE = {
    "type": "record",
    "name": "Line",
    "fields": [
        {
            "name": "from",
            "type": {
                "type": "record",
                "name": "Point",
                "fields": [{"name": "x", "type": {"type": "map", "values": "double"}}],
            },
        },
        {"name": "to", "type": "Point"},
    ],
}


@pytest.mark.parametrize(
    ("definition", "problem"),
    [
        (json.dumps(LINKED), "definition has the record a.Node within itself"),
        (json.dumps(THROUGH_ANOTHER), "definition has the record Tree within itself"),
        ('{"type": "record"}', "definition is no schema of Avro"),
        ('{"type": "record", "name": "x", "fields": [{"name": "a", "type": "b"}]}', "no schema of"),
        ("", "definition is no schema of Avro"),
        (json.dumps(TWICE), None),
    ],
)
def test_an_avro_schema_that_payloads_may_nest_without_end_is_refused(
    tmp_path: Path, definition: str, problem: str | None
) -> None:
    (tmp_path / "own.avsc").write_text(definition)
    text = schema_text("x", "t", "long").replace('"json"', '"avro"\ndefinition = "own.avsc"')
    (tmp_path / "own.toml").write_text(text)
    refused = nullcontext() if problem is None else pytest.raises(SchemaError, match=problem)
    with refused:
        read_schema_file(tmp_path / "own.toml")


def test_a_payload_is_parsed_once_for_all_tables(spark: SparkSession) -> None:
    looks = spark.sparkContext.accumulator(0)

    @f.udf(returnType="binary", useArrow=False)
    def looked_at(value: bytes) -> bytes:
        looks.add(1)
        return value

    given = records(spark, report(), report(), having(eventNum=2), b"none")
    past = NothingBefore(spark, taken=4)
    made: dict[str, Any] = dict(
        reports(given.withColumn("value", looked_at("value")), past, [READS])
    )
    rows = {name: [row["offset"] for row in frame.collect()] for name, frame in made.items()}
    assert {name: sorted(offsets) for name, offsets in rows.items()} == {
        "tag_reads": [0, 2],
        "duplicates": [1],
        "rejected": [3],
    }
    assert looks.value == 4
