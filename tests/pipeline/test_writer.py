"""Frames written to a running broker: each row is in the log once, whatever breaks."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, MapType, NullType, StringType, StructField, StructType

from holdfast.client.http import HttpClient
from holdfast.pipeline.writer.columns import ColumnError, check_columns
from holdfast.pipeline.writer.options import parse_writer_options
from holdfast.pipeline.writer.staging import WriteError
from holdfast.pipeline.writer.writers import PART_BYTES, BatchWriter, streams
from tests.pipeline.interposed import Fate, interposed
from tests.ports import HeldPort
from tests.process import HOST, BrokerProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    running = BrokerProcess(tmp_path_factory.mktemp("writer"), http_port=0)
    running.start()
    yield running
    assert running.stop() == 0, running.log()


@pytest.fixture
def address(broker: BrokerProcess) -> str:
    return broker.http_address


def written(spark: SparkSession, address: str, topic: str, **options: str) -> DataFrame:
    """What the log has of a topic."""
    given = {"broker": address, "subscribe": topic, **options}
    return spark.read.format("holdfast").options(**given).load()


def numbered(spark: SparkSession, topic: str, count: int, parts: int = 3) -> DataFrame:
    """Rows with the numbers from 0 on as values."""
    rows = spark.range(count).repartition(parts)
    return rows.select(f.lit(topic).alias("topic"), f.col("id").cast("string").alias("value"))


def values(frame: DataFrame) -> Counter[bytes]:
    return Counter(bytes(row["value"]) for row in frame.collect())


def all_once(count: int) -> Counter[bytes]:
    return Counter(b"%d" % number for number in range(count))


def test_a_row_is_stored_with_all_that_its_columns_say(spark: SparkSession, address: str) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    rows: list[tuple[Any, ...]] = [
        ("full/a", b"\xff\x00", b"k", 2, True, {"mine": "1", "content_type": "x"}, at, 3600),
        ("full/b", b"plain", None, None, None, None, None, None),
        ("full/c", None, b"", 0, False, {}, at, 0),
    ]
    schema = (
        "topic string, value binary, key binary, qos int, retain boolean,"
        " properties map<string,string>, eventTime timestamp, expiry long"
    )
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    frame.write.format("holdfast").mode("append").option("broker", address).save()
    columns = "topic,value,key,qos,retain,properties,eventTime,expiresAt,timestamp"
    found = written(spark, address, "full/#", columns=columns).orderBy("topic")
    first, second, third = found.collect()
    assert (bytes(first["value"]), bytes(first["key"])) == (b"\xff\x00", b"k")
    assert (first["qos"], first["retain"]) == (2, True)
    assert first["properties"] == {"mine": "1", "content_type": "x"}
    assert first["eventTime"].astimezone(UTC) == at
    assert (first["expiresAt"] - first["timestamp"]).total_seconds() == 3600
    assert (second["key"], second["qos"], second["retain"]) == (None, 1, False)
    assert (second["properties"], second["eventTime"], second["expiresAt"]) == ({}, None, None)
    assert (bytes(third["value"]), bytes(third["key"]), third["qos"]) == (b"", b"", 0)


def test_headers_keep_their_order_and_repeats(spark: SparkSession, address: str) -> None:
    headers = "array(named_struct('key', 'b', 'value', cast('1' as binary)),"
    headers += " named_struct('key', 'b', 'value', cast('2' as binary)))"
    frame = spark.range(1).select(f.lit("x").alias("value"), f.expr(headers).alias("headers"))
    save = frame.write.format("holdfast").mode("append")
    save.options(broker=address, topic="headers").save()
    raw = HttpClient.at(address).request("GET", "/v1/log/records?filter=headers&columns=properties")
    batch = pa.ipc.open_stream(raw.content).read_next_batch()
    assert batch.column(0).to_pylist() == [[("b", "1"), ("b", "2")]]


def test_a_batch_that_is_written_again_under_its_number_is_in_the_log_once(
    spark: SparkSession, address: str
) -> None:
    for parts in (3, 5):
        save = numbered(spark, "again", 1_000, parts).write.format("holdfast").mode("append")
        save.options(broker=address, producer="nightly", batch="7").save()
    assert values(written(spark, address, "again")) == all_once(1_000)
    for _ in range(2):
        save = numbered(spark, "twice", 10).write.format("holdfast").mode("append")
        save.option("broker", address).save()
    assert sum(values(written(spark, address, "twice")).values()) == 20


class Task:
    """What Spark tells an attempt of a task about itself."""

    def __init__(self, partition: int, attempt: int) -> None:
        self._partition, self._attempt = partition, attempt

    def partitionId(self) -> int:  # noqa: N802
        return self._partition

    def attemptNumber(self) -> int:  # noqa: N802
        return self._attempt

    def taskAttemptId(self) -> int:  # noqa: N802
        return 10 * self._partition + self._attempt


def test_attempts_that_fail_or_come_second_leave_nothing_in_the_log(address: str) -> None:
    writer = BatchWriter(parse_writer_options({"broker": address}))

    def attempt(partition: int, number: int, names: list[str]) -> Any:
        batch = pa.record_batch({"topic": ["attempts"] * len(names), "value": names})
        return writer.staged(iter([batch]), "attempts", 0, Task(partition, number))  # type: ignore[arg-type]

    attempt(0, 0, ["0", "1"])  # It fails behind this row,
    first = attempt(0, 1, ["0", "1", "2"])  # and runs again with all of them.
    attempt(1, 0, ["3", "4"])  # This one is slow, so that
    second = attempt(1, 1, ["4", "3"])  # another, which wins, has them in another order.
    writer.committed([first, None, second], is_last=False)
    writer.committed([first, second], is_last=False)
    raw = HttpClient.at(address).request("GET", "/v1/log/records?filter=attempts&columns=value")
    batch = pa.ipc.open_stream(raw.content).read_next_batch()
    assert batch.column(0).to_pylist() == [b"0", b"1", b"2", b"4", b"3"]


def staged_parts(address: str) -> int:
    """How many parts lie beside the log."""
    text = HttpClient.at(address).request("GET", "/metrics").content.decode()
    (line,) = [each for each in text.splitlines() if each.startswith("holdfast_staged_parts ")]
    return int(float(line.split()[1]))


def test_what_was_staged_of_a_batch_that_fails_makes_room_at_once(
    spark: SparkSession, address: str
) -> None:
    before = staged_parts(address)
    writer = BatchWriter(
        parse_writer_options({"broker": address, "producer": "failing", "batch": "0"})
    )
    batch = pa.record_batch({"topic": ["failing"], "value": ["x"]})
    tasks = [Task(part, 0) for part in range(3)]
    some = [writer.staged(iter([batch]), "failing", 0, each) for each in tasks]  # type: ignore[arg-type]
    other = writer.staged(iter([batch]), "failing", 1, Task(0, 0))  # type: ignore[arg-type]
    assert staged_parts(address) == before + 4
    writer.abort([some[0], None])
    assert staged_parts(address) == before + 1, "of the next batch"
    writer.committed([other], is_last=False)
    writer.abort([])
    assert values(written(spark, address, "failing")) == Counter([b"x"])

    frame = numbered(spark, "failing", 100, 20)
    broken = frame.withColumn("value", f.expr("if(value = 99, raise_error('broken'), value)"))
    with pytest.raises(Exception, match="broken"):
        broken.write.format("holdfast").mode("append").option("broker", address).save()
    # Tasks that run beside the one that fails may come late.
    assert staged_parts(address) <= before + 2


def test_nobody_forgets_a_batch_that_is_decided(address: str) -> None:
    writer = BatchWriter(parse_writer_options({"broker": address}))
    batch = pa.record_batch({"topic": ["decided"] * 2, "value": ["0", "1"]})
    done = writer.staged(iter([batch]), "decided", 5, Task(0, 0))  # type: ignore[arg-type]
    writer.committed([done], is_last=False)
    answer = HttpClient.at(address).request("DELETE", "/v1/staged/decided/5")
    assert (answer.status, answer.content) == (200, b'{"parts":0}')
    raw = HttpClient.at(address).request("GET", "/v1/log/records?filter=decided&columns=value")
    assert pa.ipc.open_stream(raw.content).read_next_batch().num_rows == 2


@pytest.mark.parametrize("fate", ["cut before", "cut after"])
def test_a_stream_that_breaks_around_its_commit_goes_on_from_its_checkpoint(
    spark: SparkSession, address: str, tmp_path: Path, fate: Fate
) -> None:
    source, target = (f"{name}/{fate.replace(' ', '-')}" for name in ("in", "out"))
    numbered(spark, source, 900).write.format("holdfast").mode("append").option(
        "broker", address
    ).save()
    reading = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "300"}

    def run(broker: str, parts: int, patience_s: int) -> None:
        frame = spark.readStream.format("holdfast").options(broker=address, **reading).load()
        rows = frame.select("value").repartition(parts).writeStream.format("holdfast")
        writing = {"broker": broker, "topic": target, "brokerTimeout": f"{patience_s}s"}
        query = rows.options(**writing, checkpointLocation=str(tmp_path / "c")).trigger(
            availableNow=True
        )
        query.start().awaitTermination()

    host, port = address.split(":")
    with interposed(host, int(port)) as between:
        commits = []

        def second_commit(method: str, path: str) -> Fate:
            if method == "POST":
                commits.append(path)
            return fate if method == "POST" and len(commits) >= 2 else "pass"

        between.fate = second_commit
        with pytest.raises(Exception, match="has not taken the rows within 0 s"):
            run(between.address, 3, 0)
        between.fate = lambda _method, _path: "pass"
        run(between.address, 5, 60)
    assert values(written(spark, address, target)) == all_once(900)


def test_what_cannot_be_written_is_refused_by_its_name(spark: SparkSession, address: str) -> None:
    frame = spark.range(1).selectExpr("'a' as topic", "'x' as value")

    def refused(rows: DataFrame, words: str, mode: str = "append", **options: str) -> None:
        given = {"broker": address, **options}
        with pytest.raises(Exception, match=words):
            rows.write.format("holdfast").mode(mode).options(**given).save()

    refused(frame.selectExpr("*", "1 as offset"), "column 'offset' cannot be written")
    refused(frame.selectExpr("topic"), "column 'value' is missing")
    refused(frame.selectExpr("value"), "option 'topic' is missing")
    refused(frame.selectExpr("topic", "value", "'1' as qos"), "column 'qos' must be a whole number")
    refused(frame, "log is appended to", mode="overwrite")
    refused(frame, "option 'subscribe' is unknown to a writer", subscribe="a")
    refused(frame, "option 'producer' goes with 'batch'", producer="p")
    refused(frame.selectExpr("'a/#' as topic", "value"), "row 0, topic 'a/#'")
    refused(frame.selectExpr("topic", "value", "3 as qos"), "qos is 0, 1 or 2")
    unnamed = "array(named_struct('key', cast(null as string), 'value', X'31')) as headers"
    refused(frame.selectExpr("topic", "value", unnamed), "row 0, topic 'a': column 'headers' has")
    refused(frame.selectExpr("cast(null as string) as topic", "value"), "row 0: its topic is null")
    no_text = frame.selectExpr("topic", "cast(X'ff' as string) as value")
    refused(no_text, "row 0, topic 'a': column 'value' holds bytes that are no UTF-8")
    assert values(written(spark, address, "a")) == Counter()


def test_a_user_writes_where_its_rules_allow_it(spark: SparkSession, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, http_port=0)
    broker.start()
    administrator = HttpClient.on(broker.data_directory)
    for name, more in (("job", {}), ("other", {}), ("reader", {"reader": True})):
        administrator.post("/v1/users", {"name": name, "password": "open sesame", **more})
    rules = [{"action": "publish", "topic_filter": "mine/#", "allowed": True}]
    administrator.put("/v1/rules/job", {"rules": rules})
    where = {"broker": broker.http_address, "password": "open sesame", "brokerTimeout": "0s"}

    def write(user: str, topic: str, **options: str) -> None:
        rows = numbered(spark, topic, 10).write.format("holdfast").mode("append")
        rows.options(**{**where, "user": user, **options}).save()

    write("job", "mine/a", producer="p", batch="0")
    with pytest.raises(Exception, match="rules of access do not allow"):
        write("job", "yours/a")
    with pytest.raises(Exception, match="another user's"):
        write("other", "mine/a", producer="p", batch="1")
    with pytest.raises(Exception, match="give options 'user' and 'password'"):
        write("job", "mine/a", password="sesame")
    found = written(spark, where["broker"], "#", user="reader", password="open sesame")
    assert values(found) == all_once(10)
    assert broker.stop() == 0


def test_a_task_sends_what_it_has_in_parts_and_loses_no_row() -> None:
    large = pa.record_batch({"value": [bytes([number]) * (1 << 20) for number in range(20)]})
    small = pa.record_batch({"value": [b"small"] * 3})
    told = list(streams(iter([small, large, large.slice(0, 0), small]), "t", 0))
    firsts, parts = [first for first, _ in told], [part for _, part in told]
    assert len(parts) > 2
    assert all(len(part) < 2 * PART_BYTES for part in parts)
    tables = [pa.ipc.open_stream(part).read_all() for part in parts]
    assert firsts == [0, *accumulate(table.num_rows for table in tables[:-1])]
    found = pa.concat_tables(tables)
    assert found["value"].to_pylist() == [
        *[b"small"] * 3,
        *large["value"].to_pylist(),
        *[b"small"] * 3,
    ]
    assert set(found["topic"].to_pylist()) == {"t"}


def test_a_row_that_is_larger_than_a_part_is_named() -> None:
    rows = pa.record_batch({"topic": ["a", "b/large"], "value": [b"x", bytes(33 << 20)]})
    with pytest.raises(WriteError, match=r"row 1 of partition 7, topic 'b/large': it has 346"):
        list(streams(iter([rows]), None, 7))


def test_a_row_that_the_broker_refuses_is_told_with_its_number_in_its_partition(
    address: str,
) -> None:
    writer = BatchWriter(parse_writer_options({"broker": address}))

    def refused(last: pa.RecordBatch, size: int) -> str:
        before = pa.record_batch({"topic": ["a"] * 9, "value": [bytes(size)] * 9})
        with pytest.raises(WriteError) as told:
            writer.staged(iter([before, before, last]), "refused", 0, Task(3, 0))  # type: ignore[arg-type]
        return str(told.value)

    wild = pa.record_batch({"topic": ["a", "b/+"], "value": [b"x", b"x"]})
    assert "refuses rows of partition 3: row 19, topic 'b/+': a topic to publish" in refused(
        wild, 1
    )
    # A part is full before, and the next one begins with the second batch's rows.
    said = refused(wild, PART_BYTES // 10)
    assert "partition 3, counted from its row 9: row 10, topic 'b/+': a topic to" in said


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("properties", "map<string,int>"),
        ("properties", "map<int,string>"),
        ("headers", "array<struct<key:binary,value:binary>>"),
        ("headers", "array<struct<key:string,value:int>>"),
    ],
)
def test_what_is_no_name_or_no_text_is_refused_by_its_column(column: str, kind: str) -> None:
    fields = [StructField("value", StringType()), StructField(column, DataType.fromDDL(kind))]
    with pytest.raises(ColumnError, match=rf"column '{column}' must be .*, not {kind}"):
        check_columns(StructType(fields), "t")
    empty = StructField("properties", MapType(NullType(), NullType()))
    check_columns(StructType([fields[0], empty]), "t")


def test_patience_ends_with_a_sentence() -> None:
    nobody = HeldPort()
    address = f"{HOST}:{nobody.number}"
    writer = BatchWriter(parse_writer_options({"broker": address, "brokerTimeout": "0s"}))
    with pytest.raises(WriteError, match=f"{address} has not taken the rows within 0 s"):
        writer.broker().commit("p", 0, [], is_last=True)
