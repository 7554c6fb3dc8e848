"""A query that the broker knows as a consumer: its cursor is where Spark has committed, whatever
becomes of the query, the broker or the checkpoint."""

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import Filter, GreaterThan, LessThan
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.datasource import ReadMaxRows

from holdfast.client.http import HttpClient
from holdfast.core.errors import BrokerRefusedError
from holdfast.pipeline.cursor import (
    Cursor,
    CursorError,
    committed_offset,
    released_after_commit,
)
from holdfast.pipeline.data_source import HoldfastSource
from holdfast.pipeline.source.columns import read_schema
from holdfast.pipeline.source.following import FollowingReader
from holdfast.pipeline.source.options import parse_options
from holdfast.reading.remote import RemoteLog
from tests.interop.device import Device
from tests.pipeline.interposed import Fate, interposed
from tests.process import HOST, BrokerProcess

TOPIC = "zebra/fx/7/reads"
SELECTION = "zebra/fx/+/reads"
NAME = "bronze"
TICKS_MAXIMUM = 6_000
TICK_S = 0.01


@dataclass
class Running:
    """A broker, and a query with a cursor of it."""

    spark: SparkSession
    broker: BrokerProcess
    checkpoint: Path
    taken: list[str] = field(default_factory=list)
    """What the sink has committed."""

    @property
    def address(self) -> str:
        return self.broker.http_address

    @property
    def cursor(self) -> Cursor:
        return Cursor(NAME, self.address)

    def publish(self, *payloads: str, topic: str = TOPIC) -> None:
        device = Device(self.broker.port, "device").connect()
        try:
            device.publish_all(topic, [payload.encode() for payload in payloads], qos=1)
        finally:
            device.close()

    def ask(self, method: str = "get", action: str = "", **body: Any) -> dict[str, Any]:
        client = HttpClient.at(self.address)
        arguments = [body] if method == "post" else []
        found: dict[str, Any] = getattr(client, method)(f"/v1/cursors/{NAME}{action}", *arguments)
        return found

    def is_at(self, place: int) -> bool:
        """True if there is the cursor, and that is its place."""
        found = HttpClient.at(self.address).get("/v1/cursors")["cursors"]
        return [cursor["place"] for cursor in found] == [place]

    def has_taken(self, payload: str) -> bool:
        return self.taken[-1:] == [payload]

    def stream(self, **options: str) -> DataFrame:
        given = {
            "broker": self.address,
            "subscribe": SELECTION,
            "cursor": NAME,
            "startingOffsets": "earliest",
            **options,
        }
        return self.spark.readStream.format("holdfast").options(**given).load()

    def start(
        self,
        sink: Callable[[list[str]], None] | None = None,
        *,
        stays: bool = False,
        checkpoint: Path | None = None,
        **options: str,
    ) -> StreamingQuery:
        take = self.taken.extend if sink is None else sink

        def each(batch: DataFrame, _number: int) -> None:
            rows = batch.orderBy("offset").select("value").collect()
            take([bytes(row["value"]).decode() for row in rows])

        writer = self.stream(**options).writeStream.foreachBatch(each)
        writer = writer.option("checkpointLocation", str(checkpoint or self.checkpoint))
        trigger = {"processingTime": "0 seconds"} if stays else {"availableNow": True}
        return writer.trigger(**trigger).start()

    def run(self, **given: Any) -> None:
        """To the end of what is there."""
        self.start(**given).awaitTermination()


@pytest.fixture
def running(spark: SparkSession, tmp_path: Path) -> Iterator[Running]:
    broker = BrokerProcess(tmp_path, http_port=0, segment_bytes=2 << 20, retention_bytes=4 << 20)
    broker.start()
    yield Running(spark, broker, tmp_path / "checkpoint")
    if broker.is_running():
        assert broker.stop() == 0, broker.log()


def eventually(holds: Callable[[], bool], what: str) -> None:
    tick = threading.Event()
    for _ in range(TICKS_MAXIMUM):
        if holds():
            return
        tick.wait(TICK_S)
    raise AssertionError(f"never: {what}")


def test_a_cursor_is_made_where_the_query_starts_and_released_behind_its_commits(
    running: Running,
) -> None:
    running.publish("a", "b", "c")
    with released_after_commit(running.spark, running.cursor, running.checkpoint):
        running.run()
    shown = running.ask()
    assert (shown["place"], shown["waiting"], shown["holder"]) == (3, 0, "")
    assert shown["selection"] == [SELECTION]
    running.publish("d")
    assert running.ask()["waiting"] == 1
    running.run()
    # Spark hands the last batch of a run to nobody: it is released when the next one begins.
    assert running.ask()["place"] == 3
    running.publish("e")
    with released_after_commit(running.spark, running.cursor, running.checkpoint):
        assert running.ask()["place"] == 4
        running.run()
    assert running.ask()["place"] == 5
    assert running.taken == ["a", "b", "c", "d", "e"]


def test_a_stream_releases_its_last_batch_while_nothing_comes(running: Running) -> None:
    with released_after_commit(running.spark, running.cursor, running.checkpoint):
        query = running.start(stays=True)
        try:
            for number, payload in enumerate("abc", start=1):
                running.publish(payload)
                eventually(partial(running.is_at, number), f"released {payload}")
            assert running.ask()["held_as"] == f"Spark query {query.id}"
        finally:
            query.stop()
    assert running.ask()["holder"] == ""


def test_without_help_a_stream_is_a_batch_behind(running: Running) -> None:
    query = running.start(stays=True)
    try:
        for number, payload in enumerate("abc"):
            running.publish(payload)
            eventually(partial(running.has_taken, payload), f"taken {payload}")
            eventually(partial(running.is_at, number), "released")
    finally:
        query.stop()


def test_what_a_sink_has_not_committed_is_kept_and_comes_again(running: Running) -> None:
    running.publish("a")
    running.run()
    running.publish("b")

    def fails(_rows: list[str]) -> None:
        raise OSError("the table is away")

    for _ in range(2):
        with (
            pytest.raises(StreamingQueryException, match="the table is away"),
            released_after_commit(running.spark, running.cursor, running.checkpoint),
        ):
            running.run(sink=fails)
        assert running.ask()["place"] == 1
    running.publish(*(str(bytes(50_000)) for _ in range(60)), topic="other")
    eventually(lambda: RemoteLog(running.address).extent().begin > 1, "segments removed")
    running.run()
    assert running.taken == ["a", "b"]


def test_a_second_query_is_refused_with_the_identity_of_the_first(
    running: Running, tmp_path: Path
) -> None:
    running.publish("a")
    query = running.start(stays=True)
    try:
        eventually(lambda: running.taken == ["a"], "the first batch")
        with pytest.raises(StreamingQueryException, match=f"held by Spark query {query.id}"):
            running.run(checkpoint=tmp_path / "other")
        assert query.isActive
    finally:
        query.stop()


def test_a_removed_cursor_stops_its_query_with_one_clear_sentence(running: Running) -> None:
    running.publish("a")
    query = running.start(stays=True)
    eventually(lambda: running.taken == ["a"], "the first batch")
    running.ask("delete")
    sentence = "cursor 'bronze' at .* is not there: it has been removed"
    with pytest.raises(StreamingQueryException, match=sentence):
        query.awaitTermination(60)
    with pytest.raises(StreamingQueryException, match=sentence):
        running.run()
    running.publish("b")
    running.run(cursor="silver")
    assert running.taken == ["a", "b"]


def test_a_selection_that_changed_is_refused_with_both(running: Running, tmp_path: Path) -> None:
    running.publish("a")
    running.run()
    both = "keeps zebra/fx/[+]/reads, but the option 'subscribe' has zebra/#"
    with pytest.raises(StreamingQueryException, match=both):
        running.run(subscribe="zebra/#")
    with pytest.raises(StreamingQueryException, match=r"selects zebra/fx/[+]/reads, not zebra/#"):
        running.run(subscribe="zebra/#", checkpoint=tmp_path / "other")
    with pytest.raises(StreamingQueryException, match="the checkpoint was made with 'subscribe"):
        running.run(subscribe="zebra/#", cursor="wider")
    assert running.is_at(0), "no cursor was made for it"
    running.publish("b")
    running.run(subscribe="zebra/#", cursor="wider", failOnSelectionChange="false")
    assert running.taken == ["a", "b"]


def test_a_lost_checkpoint_begins_at_the_cursor_s_place(running: Running) -> None:
    running.publish("a", "b")
    with released_after_commit(running.spark, running.cursor, running.checkpoint):
        running.run()
    shutil.rmtree(running.checkpoint)
    running.publish("c")
    running.run(startingOffsets="latest")
    assert running.taken == ["a", "b", "c"]


def test_a_query_goes_on_as_the_same_holder_after_restarts_of_both_sides(running: Running) -> None:
    running.publish("a")
    running.run()
    holder = running.ask()["holder"]
    assert holder
    running.broker.kill()
    running.broker.start()
    assert running.ask()["holder"] == holder
    running.publish("b")
    running.run()
    assert running.taken == ["a", "b"]
    assert running.ask()["holder"] == holder
    committed = committed_offset(NAME, running.checkpoint)
    assert committed is not None
    assert (committed["o"], committed["holder"]) == (2, holder)


def test_a_checkpoint_without_a_cursor_has_one_from_where_it_stands(running: Running) -> None:
    running.publish("a")
    plain = running.spark.readStream.format("holdfast").options(
        broker=running.address, subscribe=SELECTION, startingOffsets="earliest"
    )
    writer = plain.load().writeStream.format("noop").trigger(availableNow=True)
    writer.option("checkpointLocation", str(running.checkpoint)).start().awaitTermination()
    running.publish("b", "c")
    running.run()
    assert running.taken == ["b", "c"]
    assert running.ask()["place"] >= 1


def test_a_batch_reads_from_the_cursor_s_place_and_leaves_it_there(running: Running) -> None:
    running.publish("a", "b", "c")
    reader = running.spark.read.format("holdfast").options(
        broker=running.address, subscribe=SELECTION, cursor=NAME
    )
    with pytest.raises(Exception, match="is not there"):
        reader.load().collect()
    running.cursor.make([SELECTION], 1)
    for _ in range(2):
        rows = reader.load().orderBy("offset").collect()
        assert [bytes(row["value"]) for row in rows] == [b"b", b"c"]
    assert reader.option("startingOffsets", "latest").load().filter("offset >= 0").columns
    shown = running.ask()
    assert (shown["place"], shown["holder"]) == (1, "")


def test_filters_narrow_what_is_read_from_a_cursor(running: Running) -> None:
    running.publish("a", "b", "c", "d")
    running.cursor.make([SELECTION], 1)
    source = HoldfastSource(
        {"broker": running.address, "subscribe": SELECTION, "cursor": NAME, "pushdown": "true"}
    )
    schema = source.schema()
    found = source.reader(schema)
    filters: list[Filter] = [GreaterThan(("offset",), 1), LessThan(("offset",), 3)]
    assert found.pushFilters(filters) == filters, "Spark applies them again"
    batches = [batch for part in found.partitions() for batch in found.read(part)]
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == [2]
    assert running.ask()["place"] == 1
    running.publish(*(str(bytes(50_000)) for _ in range(60)), topic="other")
    running.broker.wait_logged("segments removed")
    rows = running.spark.read.format("holdfast").options(
        broker=running.address, subscribe=SELECTION, cursor=NAME, pushdown="true"
    )
    # What the log itself has let go is still the cursor's, and found by any filter.
    assert [row["offset"] for row in rows.load().where("offset < 3").collect()] == [1, 2]
    shown = rows.load().where("timestamp > timestamp_seconds(1) and topic like 'zebra/%'")
    assert shown.count() == 3


def test_a_cursor_that_was_moved_on_is_not_moved_back_by_its_query(running: Running) -> None:
    running.publish("a", "b")
    with released_after_commit(running.spark, running.cursor, running.checkpoint):
        running.run(maxOffsetsPerTrigger="1")
    running.publish("c")
    running.ask("post", "/move", place="latest")
    with released_after_commit(running.spark, running.cursor, running.checkpoint):
        running.run()
        with pytest.raises(BrokerRefusedError, match="held by"):
            running.ask("post", "/move", place="earliest")
    assert running.ask()["place"] == 3
    assert running.taken == ["a", "b", "c"]


def reader(running: Running, address: str | None = None, **options: str) -> FollowingReader:
    """What Spark has in a process of its own, at the beginning of a query."""
    given = {"broker": address or running.address, "subscribe": SELECTION, "cursor": NAME}
    parsed = parse_options({**given, "startingOffsets": "earliest", **options})
    return FollowingReader(parsed, read_schema(parsed.columns))


def test_a_query_that_dies_before_its_checkpoint_has_the_word_leaves_no_hold(
    running: Running, tmp_path: Path
) -> None:
    running.publish("a")
    first = reader(running)
    begin = first.initialOffset()
    end = first.latestOffset(begin, ReadMaxRows(10))
    assert running.ask()["holder"] == ""
    running.run()
    assert running.taken == ["a"]
    assert running.ask()["holder"] not in ("", end["holder"])
    # Its checkpoint would have had the word; another query was quicker.
    with pytest.raises(CursorError, match="held by Spark query"):
        first.partitions(begin, end)
    with pytest.raises(CursorError, match="held by Spark query"):
        reader(running).latestOffset(begin, ReadMaxRows(10))


def test_a_query_that_dies_in_its_first_batch_starts_again_at_once(running: Running) -> None:
    running.publish("a")

    def fails(_rows: list[str]) -> None:
        raise OSError("the table is away")

    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="the table is away"):
            running.run(sink=fails)
    holder = running.ask()["holder"]
    assert holder
    running.run()
    assert running.taken == ["a"]
    assert running.ask()["holder"] == holder


def test_a_query_that_dies_before_there_is_a_message_starts_again_at_once(
    running: Running,
) -> None:
    plain = running.spark.readStream.format("holdfast").options(
        broker=running.address, subscribe=SELECTION, startingOffsets="earliest"
    )
    writer = plain.load().writeStream.format("noop").trigger(availableNow=True)
    writer.option("checkpointLocation", str(running.checkpoint)).start().awaitTermination()
    running.run()
    holder = running.ask()["holder"]
    assert holder
    running.run()
    assert running.ask()["holder"] == holder
    running.publish("a")
    running.run()
    assert running.taken == ["a"]


def is_of_cursors(method: str, path: str) -> bool:
    return method != "GET" and path.startswith("/v1/cursors/")


def test_a_new_cursor_is_asked_for_until_the_broker_answers(running: Running) -> None:
    running.publish("a")
    fates: list[Fate] = ["cut before", "cut after", "cut before"]

    def fate(method: str, path: str) -> Fate:
        return fates.pop() if fates and is_of_cursors(method, path) else "pass"

    with interposed(HOST, running.broker.http_port) as between:
        between.fate = fate
        running.run(broker=between.address)
    assert not fates
    assert running.taken == ["a"]


def test_a_checkpoint_without_a_cursor_waits_for_the_broker_with_one(running: Running) -> None:
    running.publish("a")
    begin = {**reader(running).initialOffset(), "o": 0}
    running.ask("delete")
    is_away = True

    def fate(method: str, path: str) -> Fate:
        return "cut before" if is_away and is_of_cursors(method, path) else "pass"

    with interposed(HOST, running.broker.http_port) as between:
        between.fate = fate
        found = reader(running, between.address)
        assert found.latestOffset(begin, ReadMaxRows(10)) == begin
        assert "does not answer" in found.reportLatestOffset()["waitingFor"]
        is_away = False
        end = found.latestOffset(begin, ReadMaxRows(10))
        assert end["o"] == 1
        assert len(found.partitions(begin, end)) == 1
    assert running.ask()["holder"] == end["holder"]


def test_a_look_at_a_cursor_waits_for_the_broker(running: Running) -> None:
    running.publish("a")
    running.cursor.make([SELECTION], 0)
    fates: list[Fate] = ["cut before", "cut before"]
    with interposed(HOST, running.broker.http_port) as between:
        between.fate = lambda _method, path: fates.pop() if fates else "pass"
        rows = running.spark.read.format("holdfast").options(
            broker=between.address, subscribe=SELECTION, cursor=NAME
        )
        assert rows.load().count() == 1
    assert not fates


def test_no_cursor_is_waited_for_longer_than_for_the_log(running: Running) -> None:
    with interposed(HOST, running.broker.http_port) as between:
        between.fate = lambda method, path: "cut before" if is_of_cursors(method, path) else "pass"
        with pytest.raises(StreamingQueryException, match="as long as option 'brokerTimeout'"):
            running.run(broker=between.address, brokerTimeout="1s")
        asked = [each for each in between.asked if is_of_cursors(*each)]
    assert len(asked) > 2


def test_a_cursor_that_may_not_be_made_is_not_waited_for(running: Running) -> None:
    client = HttpClient.on(running.broker.data_directory)
    for name, is_reader in (("spark", True), ("gate", False)):
        user = {"name": name, "password": "open sesame", "reader": is_reader}
        client.post("/v1/users", user)
    refused = Cursor(NAME, running.address, "gate", "open sesame")
    with pytest.raises(CursorError, match="cursor 'bronze' at"):
        refused.make([SELECTION], 0)
    with pytest.raises(StreamingQueryException, match="a user who may read the log"):
        running.run(user="gate", password="open sesame")
    running.run(user="spark", password="open sesame")


def write_checkpoint(directory: Path, committed: int | None, *offsets: dict[str, Any]) -> None:
    """As Spark writes one, with the next batch planned."""
    for folder in ("commits", "offsets"):
        (directory / folder).mkdir(parents=True)
    for batch in range(len(offsets)):
        lines = ["v1", '{"batchWatermarkMs":0}', json.dumps(offsets[batch])]
        (directory / "offsets" / str(batch)).write_text("\n".join(lines))
        (directory / "offsets" / f".{batch}.crc").touch()
        if committed is not None and batch <= committed:
            (directory / "commits" / str(batch)).write_text("v1\n{}")


def test_what_a_checkpoint_has_committed_is_of_its_newest_commit(tmp_path: Path) -> None:
    offsets = [{"v": 1, "o": place, "cursor": NAME, "holder": "q"} for place in (3, 7, 11)]
    write_checkpoint(tmp_path / "planned", 1, *offsets)
    assert committed_offset(NAME, tmp_path / "planned") == offsets[1]
    assert committed_offset("silver", tmp_path / "planned") is None
    write_checkpoint(tmp_path / "first", None, *offsets[:1])
    assert committed_offset(NAME, tmp_path / "first") is None
    assert committed_offset(NAME, tmp_path / "absent") is None
    with pytest.raises(ValueError, match="on a disk of this host"):
        committed_offset(NAME, Path("hdfs://cluster/checkpoint"))


def test_a_broker_that_goes_away_leaves_a_query_with_its_cursor_running(running: Running) -> None:
    running.publish("a")
    query = running.start(stays=True)
    try:
        eventually(partial(running.has_taken, "a"), "the first batch")
        holder = running.ask()["holder"]
        running.broker.kill()
        running.broker.start()
        running.publish("b")
        eventually(partial(running.has_taken, "b"), "the second batch")
        assert query.isActive
        assert running.ask()["holder"] == holder
    finally:
        query.stop()
    assert running.taken == ["a", "b"]
