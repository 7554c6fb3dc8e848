"""What of the log is read: patterns, headers, bounds of tasks, tables of SQL, and filters of a
query that the broker obeys."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    In,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.streaming.datasource import ReadMaxRows

from holdfast.core.limits import READ_PARTS_MAXIMUM
from holdfast.pipeline.source.batch import BatchReader, FilteredBatchReader
from holdfast.pipeline.source.columns import read_schema
from holdfast.pipeline.source.forms import OptionError
from holdfast.pipeline.source.options import parse_options
from holdfast.pipeline.source.pushdown import Narrowing, narrowed
from holdfast.pipeline.source.ranges import LogRange
from holdfast.pipeline.source.stream import StreamReader
from holdfast.pipeline.tables import MESSAGES, register_views
from holdfast.reading import directory
from holdfast.reading.criteria import Criteria
from tests.builders.stored import START_US, STEP_US, Message, store

PATTERN = "zebra/fx/[12]/.*"


def load(spark: SparkSession, **options: Any) -> DataFrame:
    return spark.read.format("holdfast").options(**options).load()


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row["offset"] for row in frame.select("offset").collect())


def test_a_pattern_chooses_topics_by_their_whole_name(
    spark: SparkSession, source: dict[str, str], messages: list[Message]
) -> None:
    expected = [
        at
        for at, message in enumerate(messages)
        if message.topic in ("zebra/fx/1/reads", "zebra/fx/2/reads")
    ]
    assert offsets(load(spark, subscribePattern=PATTERN, **source)) == expected
    assert offsets(load(spark, subscribePattern="zebra", **source)) == []


def test_a_stream_finds_topics_of_its_pattern_as_they_come(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    found: list[str] = []

    def run() -> None:
        stream = spark.readStream.format("holdfast").options(
            subscribePattern="new/.*", startingOffsets="earliest", dataDir=str(log)
        )
        query = (
            stream.load()
            .writeStream.foreachBatch(
                lambda batch, _: found.extend(row["topic"] for row in batch.collect())
            )
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    store(log, [Message("new/one", b"1"), Message("old", b"2")], at=100)
    run()
    store(log, [Message("new/two", b"3")], at=102)
    run()
    assert found == ["new/one", "new/two"]


def test_headers_are_in_order_with_repeats(spark: SparkSession, tmp_path: Path) -> None:
    properties = (("b", "1"), ("a", "2"), ("b", "3"))
    store(tmp_path / "log", [Message("t", b"x", properties=properties), Message("t", b"y")])
    frame = load(spark, dataDir=str(tmp_path / "log"), subscribe="#", includeHeaders="true")
    first, second = frame.orderBy("offset").collect()
    assert [(each["key"], bytes(each["value"])) for each in first["headers"]] == [
        ("b", b"1"),
        ("a", b"2"),
        ("b", b"3"),
    ]
    assert second["headers"] == []


def test_no_task_has_more_records_than_it_may(spark: SparkSession, source: dict[str, str]) -> None:
    frame = load(spark, subscribe="zebra/#", maxRecordsPerPartition=20, **source)
    counts = [row["count"] for row in frame.groupBy(fn.spark_partition_id()).count().collect()]
    assert sum(counts) == 90
    assert max(counts) <= 20


def test_more_tasks_than_there_may_be_are_refused(tmp_path: Path) -> None:
    store(tmp_path, [Message("t", b"x") for _ in range(READ_PARTS_MAXIMUM + 1)])

    def tasks(**given: str) -> list[LogRange]:
        given = {"dataDir": str(tmp_path), "subscribe": "#", "maxRecordsPerPartition": "1", **given}
        options = parse_options(given)
        return BatchReader(options, read_schema(options.columns)).partitions()

    assert len(tasks(endingOffsets=str(READ_PARTS_MAXIMUM))) == READ_PARTS_MAXIMUM
    assert len(tasks(maxRecordsPerPartition="2")) <= READ_PARTS_MAXIMUM // 2 + 2
    sentence = (
        f"'maxRecordsPerPartition' is 1, and offsets 0 to {READ_PARTS_MAXIMUM} need more tasks"
    )
    with pytest.raises(OptionError, match=sentence):
        tasks()


# --- tables of SQL --------------------------------------------------------------------------------


def test_a_table_and_a_view_are_made_by_sql(spark: SparkSession, log: Path) -> None:
    options = f"OPTIONS (dataDir '{log}', subscribe 'zebra/#', columns 'offset,topic')"
    more = "COMMENT 'reads' TBLPROPERTIES ('team'='labels')"
    spark.sql(f"CREATE TABLE stored USING holdfast {options} {more}")
    try:
        assert spark.table("stored").columns == ["offset", "topic"]
        assert spark.sql("SELECT count(*) AS n FROM stored").collect()[0]["n"] == 90
    finally:
        spark.sql("DROP TABLE stored")
    spark.sql(f"CREATE TEMPORARY VIEW seen USING holdfast {options}")
    assert spark.sql("SELECT max(offset) AS last FROM seen").collect()[0]["last"] == 99


def test_a_table_that_has_kept_no_options_says_how_it_is_made(
    spark: SparkSession, log: Path
) -> None:
    options = f"OPTIONS (dataDir '{log}', subscribe 'zebra/#')"
    spark.sql(f"CREATE TABLE chosen (offset long) USING holdfast {options}")
    try:
        with pytest.raises(AnalysisException, match="make it without them, and choose them with"):
            spark.table("chosen").count()
    finally:
        spark.sql("DROP TABLE chosen")


def test_a_table_does_not_keep_a_password(spark: SparkSession) -> None:
    options = "OPTIONS (broker 'h:1', user 'u', password 'open sesame', subscribe '#')"
    with pytest.raises(Exception, match="use CREATE TEMPORARY VIEW instead"):
        spark.sql(f"CREATE TABLE secret USING holdfast {options}")


def test_views_of_a_broker_are_not_made_of_an_address_with_credentials(
    spark: SparkSession,
) -> None:
    with pytest.raises(OptionError, match="'broker' cannot have '@'") as refused:
        register_views(spark, broker="admin:open-sesame@h:1")
    assert "sesame" not in str(refused.value)


# --- filters of a query ---------------------------------------------------------------------------


def at(offset: int) -> datetime:
    return datetime.fromtimestamp((START_US + offset * STEP_US) / 1e6, UTC)


def conditions() -> st.SearchStrategy[Column]:
    """Predicates of every kind, and their combinations."""
    topics = st.sampled_from(["zebra/fx/1/reads", "zebra/fx/2/reads", "other/thing", "nobody"])
    numbers = st.integers(-2, 105)
    compared = st.sampled_from(["__eq__", "__lt__", "__le__", "__gt__", "__ge__", "__ne__"])

    def comparing(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Column]:
        return st.builds(
            lambda how, value: getattr(fn.col(column), how)(fn.lit(value)), compared, values
        )

    leaves = st.one_of(
        comparing("topic", topics),
        comparing("offset", numbers),
        comparing("qos", st.integers(-1, 3)),
        comparing("timestamp", st.integers(0, 105).map(at)),
        comparing("retain", st.booleans()),
        st.lists(topics, max_size=3).map(lambda each: fn.col("topic").isin(each)),
        st.lists(numbers, max_size=3).map(lambda each: fn.col("offset").isin(each)),
        st.sampled_from(["", "zebra/", "zebra/fx/1", "o"]).map(fn.col("topic").startswith),
        st.just(fn.col("key").isNull()),
        st.just(fn.col("key") == fn.lit(b"k")),
    )
    pairs = st.tuples(leaves, leaves)
    return st.one_of(
        leaves,
        pairs.map(lambda two: two[0] & two[1]),
        pairs.map(lambda two: two[0] | two[1]),
        pairs.map(lambda two: two[0] & ~two[1]),
    )


@pytest.fixture(scope="module")
def module_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("log") / "data"
    topics = ["zebra/fx/1/reads", "zebra/fx/2/reads", "zebra/fx/12/reads", "other/thing"]
    messages = [Message(topics[at % 4], b"%d" % at, qos=1 + at % 3 % 2) for at in range(100)]
    store(found, messages)
    return found


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_filters_that_the_broker_obeys_leave_the_answer_unchanged(
    spark: SparkSession, module_log: Path, data: st.DataObject
) -> None:
    condition = data.draw(conditions())
    source = {"dataDir": str(module_log), "subscribe": "zebra/#", "columns": ALL}
    with_it = load(spark, pushdown="true", **source).where(condition)
    without = load(spark, pushdown="false", **source).where(condition)
    assert offsets(with_it) == offsets(without)


ALL = "offset,topic,qos,timestamp,retain,key"
HANDS_OVER = "spark.sql.python.filterPushdown.enabled"


def test_what_filters_exclude_is_not_read(module_log: Path) -> None:
    given = {"dataDir": str(module_log), "subscribe": "#", "columns": "offset"}
    options = parse_options({**given, "pushdown": "true"})
    reader = FilteredBatchReader(options, read_schema(options.columns))
    filters: list[Filter] = [EqualTo(("topic",), "zebra/fx/1/reads"), GreaterThan(("offset",), 9)]
    assert list(reader.pushFilters(filters)) == filters, "Spark applies them again"
    found = [
        offset
        for part in reader.partitions()
        for batch in reader.read(part)
        for offset in batch["offset"].to_pylist()
    ]
    assert found == list(range(12, 100, 4))


def test_a_frame_that_is_used_twice_answers_rightly(spark: SparkSession, module_log: Path) -> None:
    frame = load(spark, dataDir=str(module_log), subscribe="#", columns="offset,topic")
    other = frame.where("topic = 'other/thing'")
    assert offsets(frame.where("offset < 3")) == [0, 1, 2]
    assert frame.count() == 100
    union = frame.where("offset < 3").union(frame.where("offset >= 97"))
    assert offsets(union) == [0, 1, 2, 97, 98, 99]
    assert other.union(frame).count() == 125
    assert frame.alias("one").join(other.alias("other"), "offset").count() == 25
    assert frame.join(other, "offset", "left_anti").count() == 75
    next_ones = fn.col("next.offset") == fn.col("one.offset") + 1
    pairs = other.alias("one").join(frame.where("topic like 'zebra/%'").alias("next"), next_ones)
    assert pairs.count() == 24, "the last one of all has no next one"


def test_a_view_and_a_table_that_are_named_twice_in_a_query_answer_rightly(
    spark: SparkSession, module_log: Path
) -> None:
    options = f"OPTIONS (dataDir '{module_log}', subscribe '#')"
    spark.sql(f"CREATE TEMPORARY VIEW looked_at USING holdfast {options}")
    spark.sql(f"CREATE TABLE kept USING holdfast {options}")
    register_views(spark, data_dir=str(module_log), tables=[MESSAGES])
    try:
        for name in ("looked_at", "kept", MESSAGES):
            few = f"SELECT count(*) FROM {name} WHERE topic = 'other/thing'"
            early = f"SELECT count(*) FROM {name} WHERE offset < 3"
            everything = f"SELECT count(*) FROM {name}"
            [row] = spark.sql(f"SELECT ({few}), ({early}), ({everything})").collect()
            assert tuple(row) == (25, 3, 100), name
    finally:
        spark.sql("DROP TABLE kept")
        spark.catalog.dropTempView("looked_at")
        spark.catalog.dropTempView(MESSAGES)


def test_a_frame_keeps_the_range_that_it_was_planned_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    store(tmp_path / "data", [Message("t", b"x")] * 3)
    source = {"dataDir": str(tmp_path / "data"), "subscribe": "#"}
    frame = load(spark, **source)
    assert frame.count() == 3
    store(tmp_path / "data", [Message("t", b"x")] * 2, at=3)
    assert frame.count() == 3
    assert load(spark, **source).count() == 5


def test_a_session_that_hands_over_no_filters_takes_a_moment_that_python_lacks(
    spark: SparkSession, module_log: Path
) -> None:
    spark.conf.set(HANDS_OVER, "false")
    try:
        frame = load(spark, dataDir=str(module_log), subscribe="#")
        assert frame.where("timestamp < timestamp'+12000-01-01'").count() == 100
    finally:
        spark.conf.set(HANDS_OVER, "true")


def test_filters_narrow_together() -> None:
    filters: list[Filter] = [
        In(("topic",), ("a", "b", "c")),
        EqualTo(("topic",), "b"),
        StringStartsWith(("topic",), "b"),
        GreaterThan(("offset",), 4),
        LessThanOrEqual(("offset",), 9),
        GreaterThan(("qos",), 0),
        EqualTo(("retain",), True),
        EqualTo(("key",), b"k"),
        GreaterThan(("timestamp",), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        Not(EqualTo(("topic",), "b")),
        EqualTo(("value",), b"x"),
    ]
    found = narrowed(filters)
    assert (found.begin, found.end, found.begin_us, found.end_us) == (5, 10, 1_000_001, None)
    assert found.applied(Criteria(filters=("#",))) == Criteria(
        filters=("#",), topics=("b",), prefix="b", qos=(1, 2), retain=True, keys=(b"k",)
    )
    assert narrowed([]) == Narrowing()
    assert (
        narrowed([EqualTo(("retain",), True), EqualTo(("retain",), False)])
        .applied(Criteria())
        .topics
        == ()
    )


def test_filters_narrow_what_a_queue_shows_and_never_widen_it() -> None:
    shown = Criteria(topics=("a/1", "a/2"), prefix="a", qos=(1, 2), retain=False, keys=(b"k",))
    assert narrowed([GreaterThan(("offset",), 4)]).applied(shown) == shown
    filters: list[Filter] = [
        In(("topic",), ("a/2", "b")),
        StringStartsWith(("topic",), "a/"),
        LessThanOrEqual(("qos",), 1),
        In(("key",), (b"j", b"k")),
    ]
    less = replace(shown, topics=("a/2",), prefix="a/", qos=(1,))
    assert narrowed(filters).applied(shown) == less
    nothing = Criteria(topics=(), qos=(1, 2))
    assert narrowed(filters).applied(nothing).topics == ()
    for contradiction in (StringStartsWith(("topic",), "b"), EqualTo(("retain",), True)):
        assert narrowed([contradiction]).applied(shown).topics == ()


def test_the_progress_of_a_query_tells_where_it_stands(
    spark: SparkSession, source: dict[str, str], tmp_path: Path
) -> None:
    stream = spark.readStream.format("holdfast").options(
        subscribe="#", startingOffsets="earliest", maxOffsetsPerTrigger=40, **source
    )
    query = (
        stream.load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    told = [json.loads(progress.sources[0].latestOffset) for progress in query.recentProgress]
    assert [each["lagMessages"] for each in told][:3] == [60, 20, 0]
    assert {each["lagExact"] for each in told} == {True}
    assert told[0]["lagSeconds"] > 0
    assert told[2]["lagSeconds"] == 0
    assert {each["lostMessages"] for each in told} == {0}


def behind(source: dict[str, str], **options: str) -> dict[str, Any]:
    """What is told of a stream that has read the first ten messages that it selects."""
    parsed = parse_options({**source, "startingOffsets": "earliest", **options})
    reader = StreamReader(parsed, read_schema(parsed.columns))
    reader.latestOffset(reader.initialOffset(), ReadMaxRows(10))
    return reader.reportLatestOffset()


def test_the_lag_of_a_query_is_of_its_topics(source: dict[str, str]) -> None:
    # Every tenth message is of another kind.
    assert behind(source, subscribe="other/thing")["lagMessages"] == 0
    assert behind(source, subscribe="other/thing")["lagSeconds"] == 0
    assert behind(source, subscribe="zebra/fx/+/reads")["lagMessages"] == 80
    assert behind(source, subscribePattern="other/.*")["lagMessages"] == 0
    assert behind(source, subscribe="#")["lagMessages"] == 90
    assert behind(source, subscribe="#")["lagSeconds"] > 0


@pytest.mark.parametrize("maximum", ["BEHIND_ROWS_MAXIMUM", "BEHIND_OFFSETS_MAXIMUM"])
def test_a_lag_that_is_too_long_to_count_is_at_least_so(
    source: dict[str, str], monkeypatch: pytest.MonkeyPatch, maximum: str
) -> None:
    monkeypatch.setattr(directory, maximum, 20)
    told = behind(source, subscribe="other/thing,zebra/fx/+/reads")
    assert (told["lagMessages"], told["lagExact"]) == (20, False)
    told = behind(source, subscribe="zebra/fx/+/reads")
    assert 0 < told["lagMessages"] <= 20
    assert not told["lagExact"]
