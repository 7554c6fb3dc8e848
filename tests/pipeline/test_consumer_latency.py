"""Latency from the log to a consumer: told by the progress that is on record, once, and alike
however it is read."""

import shutil
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from holdfast.core.subscription import IN_FORCE
from holdfast.pipeline.configuration import AnswerEntries, Configuration, LogEntries
from holdfast.pipeline.jobs import acknowledged
from holdfast.pipeline.jobs.acknowledged import ACKNOWLEDGED, Followed, begun_rows, new_rows
from holdfast.pipeline.report.data import report_data
from holdfast.pipeline.report.page import page
from holdfast.pipeline.running import Pipeline
from holdfast.reading.log import UnreadableLogError
from holdfast.reading.progress import COLUMNS, Consumer, NoSuchQueueError, Progress, Reads
from holdfast.reading.remote import RemoteLog
from tests.interop import installation
from tests.interop.device import Device
from tests.interop.driver import Driver
from tests.interop.installation import ROOT
from tests.interop.pulsar.official import Official
from tests.process import BrokerProcess

TOPIC = "prod/7/reads"
GROUP = "$share/bbu/prod/+/reads"
DAY_S = 86_400
ROUNDS = 2
"""Messages behind: one of them lies behind all records, since a turn comes with it."""
READS = (Reads("prod/#", 0, IN_FORCE),)


def rows(pipeline: Pipeline, name: str) -> list[dict[str, Any]]:
    table = pipeline.opened().table(name)
    found = pa.table(DeltaTable(str(table.path)).to_pyarrow_table())
    order = [(each, "ascending") for each in found.column_names if each.endswith(("At", "queue"))]
    return list(found.sort_by(order or [("windowStart", "ascending")]).to_pylist())


def pipeline_of(folder: Path, queues: Sequence[str], **log: Any) -> Pipeline:
    entries = LogEntries(subscribe="prod/#", **log)
    answers = AnswerEntries(queues=tuple(queues), window_s=DAY_S)
    return Pipeline(Configuration(folder=folder, log=entries, answers=answers))


def consumed(broker: BrokerProcess) -> None:
    """Twenty messages at QoS 1 and 2 that a client of its own, and a group, have acknowledged, and
    one behind them that nobody waits for."""
    kept = {"clean_start": True, "SessionExpiryInterval": 3_600}
    alone = Device(broker.port, "alone", **kept).connect()
    member = Device(broker.port, "member", **kept).connect()
    publisher = Device(broker.port, "publisher", clean_start=True).connect()
    alone.subscribe("prod/#", 2)
    alone.subscribe("prod/7/#", 2)
    member.subscribe(GROUP, 1)
    for qos in (1, 2):
        publisher.publish_all(TOPIC, [b"%d" % number for number in range(10)], qos=qos)
    assert len(alone.all_received()) >= 20
    assert len(member.all_received()) == 20
    for device in (alone, member):
        device.disconnect()
    publisher.publish("prod/other", b"behind")
    publisher.publish("prod/other", b"and behind that")
    publisher.close()


def test_each_message_is_told_once_whatever_way_it_is_read(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumed(broker)
    queues = ("alone", "bbu", "nobody")
    pipeline = pipeline_of(tmp_path, queues, broker=broker.http_address)
    pipeline.run(spark, once=True)
    told = rows(pipeline, "consumer_latency")
    assert [(row["queue"], row["environment"], row["messages"]) for row in told] == [
        (GROUP, "prod", 20),
        ("alone", "prod", 20),
    ]
    for row in told:
        assert 0 <= row["p50Ms"] <= row["p95Ms"] <= row["p99Ms"] <= row["longestMs"] < 60_000
    report = report_data(pipeline, datetime(2026, 1, 1, tzinfo=UTC))
    assert [row["messages"] for row in report["consumer_latency"]] == [20, 20]
    assert "From log to alone" in page(report)
    # Again, in steps of any size, with a new process in between; then from the directory alone.
    monkeypatch.setattr(acknowledged, "STEP_OFFSETS", 3)
    for name in (ACKNOWLEDGED, "consumer_latency"):
        shutil.rmtree(pipeline.opened().table(name).path)
    pipeline.run(spark, once=True)
    assert rows(pipeline, "consumer_latency") == told
    assert broker.stop() == 0
    beside = tmp_path / "beside"
    beside.mkdir()
    from_files = pipeline_of(beside, queues, data_dir=str(broker.data_directory))
    from_files.run(spark, once=True)
    assert rows(from_files, "consumer_latency") == told


def test_packs_and_subscriptions_tell_theirs(spark: SparkSession, tmp_path: Path) -> None:
    """An APPLICATION client acknowledges in packs, and Pulsar consumers one by one or up to one."""
    broker = BrokerProcess(
        tmp_path, http_port=0, pulsar_port=0, application_client_identifiers="collector"
    )
    broker.start()
    library = Driver(installation.python("pulsar"), ROOT, tmp_path / "client.log")
    try:
        pulsar = Official(library).connect(broker.ports["pulsar"])
        exclusive = pulsar.consumer("prod%2F7%2Freads", "one")
        shared = pulsar.consumer("prod%2F7%2Freads", "many", kind="Shared")
        collector = Device(broker.port, "collector", clean_start=True, SessionExpiryInterval=3_600)
        collector.connect().subscribe("prod/#", 1)
        publisher = Device(broker.port, "publisher", clean_start=True).connect()
        publisher.publish_all(TOPIC, [b"%d" % number for number in range(20)], qos=1)
        producer = pulsar.producer("prod%2F7%2Freads", batching_enabled=True)
        producer.send_many([b"%d" % number for number in range(20, 50)])
        exclusive.acknowledge_up_to(exclusive.receive_many(50)[-1])
        assert len(shared.take(49)) == 49
        assert len(collector.receive_many(50)) == 50
        for device in (collector, publisher):
            device.disconnect()
        pulsar.disconnect()
        names = [f"subscription/{name}/{TOPIC}" for name in ("one", "many")]
        pipeline = pipeline_of(tmp_path, ("collector", *names), broker=broker.http_address)

        def told_after_one_more() -> dict[str, int]:
            # What is acknowledged is on record a turn or a second later, before the next message.
            behind = Device(broker.port, "behind", clean_start=True).connect()
            behind.publish("prod/other", b"behind")
            behind.close()
            pipeline.run(spark, once=True)
            return {row["queue"]: row["messages"] for row in rows(pipeline, "consumer_latency")}

        # The library says of a batch that it is done once all of its messages are.
        whole = {"collector": 50, names[0]: 50, names[1]: 20}
        found = [told_after_one_more() for _ in range(ROUNDS)]
        assert found[-1] == whole
    finally:
        library.stop()
        broker.stop()


def test_a_queue_that_is_not_there_is_refused_by_its_name(broker: BrokerProcess) -> None:
    log = RemoteLog(broker.http_address)
    with pytest.raises(NoSuchQueueError, match="no queue on record is called 'nobody'"):
        log.progress("nobody", 0, 10, 0)
    with pytest.raises(UnreadableLogError, match="queue is missing"):
        log.progress("", 0, 10, 0)


def part(
    records: Iterable[tuple[int, int, int, int]],
    *,
    created: int = 0,
    lost: tuple[tuple[int, int], ...] = (),
    log_begin: int = 0,
) -> Progress:
    """Records as (next message, time, begin, end)."""
    columns = list(zip(*((7, *each) for each in records), strict=True)) or [()] * len(COLUMNS)
    arrays = {
        name: pa.array(column, kind)
        for (name, kind), column in zip(COLUMNS.items(), columns, strict=True)
    }
    consumer = Consumer(7, "seven", created, READS, lost)
    return Progress((consumer,), pa.RecordBatch.from_pydict(arrays), None, log_begin)


def told(
    progress: Progress, begin: int = 0, followed: dict[str, Followed] | None = None
) -> list[tuple[int | None, int | None, int | None]]:
    """Time in microseconds, or none, and range of each row."""
    known = {} if followed is None else followed
    found = [*begun_rows(progress, known, begin), *new_rows(progress, known)]
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return [
        (
            row["acknowledgedAt"] and (row["acknowledgedAt"] - epoch).microseconds,
            row["begin"],
            row["end"],
        )
        for row in found
    ]


def test_a_mark_tells_what_it_passes_and_no_range_is_told_twice() -> None:
    records = [(5, 10, 0, 3), (6, 20, 4, 5), (8, 30, 0, 7), (9, 40, 0, 7)]
    assert told(part(records)) == [(None, 0, 0), (10, 0, 3), (20, 4, 5), (30, 3, 4), (30, 5, 7)]


def test_what_was_lost_is_passed_over_without_a_time() -> None:
    assert told(part([(9, 10, 0, 8)], lost=((2, 4),))) == [
        (None, 0, 0),
        (None, 2, 4),
        (10, 0, 2),
        (10, 4, 8),
    ]


def test_a_first_mark_is_no_time_where_records_before_it_are_gone() -> None:
    records = [(52, 10, 48, 49), (55, 20, 0, 50), (60, 30, 0, 58)]
    progress = part(records, log_begin=50)
    assert told(progress, 0) == [(10, 48, 49), (None, 0, 48), (None, 49, 50), (30, 50, 58)]
    # It was made when the records that are there had begun.
    assert told(part([(55, 20, 0, 54)], created=51, log_begin=50), 50) == [
        (None, 0, 51),
        (20, 51, 54),
    ]


def test_records_that_went_before_they_were_followed_make_the_next_mark_no_time() -> None:
    followed: dict[str, Followed] = {}
    assert told(part([(5, 10, 0, 3)]), 0, followed)[-1] == (10, 0, 3)
    later = part([(80, 20, 0, 70), (90, 30, 0, 75)], log_begin=60)
    assert told(later, 6, followed) == [(None, None, None), (None, 3, 70), (30, 70, 75)]


def test_a_queue_that_is_named_later_begins_with_its_next_mark() -> None:
    assert told(part([(80, 20, 0, 70), (90, 30, 0, 75)]), 60) == [(None, 0, 70), (30, 70, 75)]
