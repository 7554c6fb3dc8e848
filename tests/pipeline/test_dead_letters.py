"""Rejected rows as messages: each once, as it was, wherever a run was cut."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.core.errors import ConfigurationError
from holdfast.pipeline.configuration import Configuration, JobEntries, LogEntries
from holdfast.pipeline.dead_letters import DeadLetters, DeadLettersError, Written, recorded
from holdfast.pipeline.load.warehouse import Origin, Warehouse
from holdfast.pipeline.running import Pipeline
from tests.interop.device import Device
from tests.process import BrokerProcess

READS = "zebra/fx/7/reads"
LETTERS = "dead-letters/reads"
RULE = "is json with the types of zebra-fx9600-reads version 1"


def pipeline_of(folder: Path, address: str, **log: str) -> Pipeline:
    entries = LogEntries(broker=address, **log)  # type: ignore[arg-type]
    jobs = JobEntries(dead_letter_topic=LETTERS)
    return Pipeline(Configuration(folder=folder, log=entries, jobs=jobs))


def publish(broker: BrokerProcess, *values: bytes) -> None:
    device = Device(broker.port, "seven").connect()
    device.publish_all(READS, list(values), qos=1)
    device.close()


def letters(spark: SparkSession, address: str) -> list[tuple[bytes, dict[str, str]]]:
    """Values and headers, as whoever reads the topic has them."""
    where = {"broker": address, "subscribe": LETTERS}
    found = spark.read.format("holdfast").options(**where).load().orderBy("offset")
    return [(bytes(row["value"]), row["properties"]) for row in found.collect()]


class CutError(Exception):
    """The process ends here."""


@pytest.mark.parametrize(
    "where",
    [
        "before that is on record",
        pytest.param("before the rows are written", marks=pytest.mark.long),
    ],
)
def test_a_rejected_row_is_published_once_wherever_the_run_was_cut(
    spark: SparkSession,
    broker: BrokerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    pipeline = pipeline_of(tmp_path, broker.http_address)
    publish(broker, b"\xff\x00 no JSON", b"nor this")
    keep, kept = DeadLetters._keep, []

    def cut(letters: DeadLetters, written: Written) -> None:
        kept.append(written)
        if len(kept) == 1:
            keep(letters, written)
        if len(kept) == 2 or where == "before the rows are written":
            raise CutError

    monkeypatch.setattr(DeadLetters, "_keep", cut)
    with pytest.raises(CutError):
        pipeline.run(spark, once=True)
    monkeypatch.undo()
    publish(broker, b"a third")
    for _ in range(2):
        pipeline.run(spark, once=True)
    rejected = pipeline.opened().table("rejected")
    at = [row["offset"] for row in rejected.frame(spark, rejected.columns()).collect()]
    assert letters(spark, broker.http_address) == [
        (value, {"offset": str(offset), "topic": READS, "rule": RULE})
        for value, offset in zip(
            [b"\xff\x00 no JSON", b"nor this", b"a third"], sorted(at), strict=True
        )
    ]


def test_a_topic_that_nobody_can_write_to_or_the_pipeline_reads_is_refused(tmp_path: Path) -> None:
    for log, said in (
        ({"subscribe": "dead-letters/+"}, r"reads dead-letters/reads itself \(dead-letters/\+\)"),
        ({"data_dir": "data"}, "needs a running broker"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            pipeline_of(tmp_path, "127.0.0.1:1", **log)
    with pytest.raises(ConfigurationError, match="a topic without wildcards, not 'a/#'"):
        Pipeline(Configuration(folder=tmp_path, jobs=JobEntries(dead_letter_topic="a/#")))


def test_a_record_that_cannot_be_read_is_not_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "dead_letters.json"
    path.write_text('{"producer"')
    with pytest.raises(DeadLettersError, match="every rejected row is written again"):
        recorded(path)


def test_letters_are_sent_as_the_user_who_reads(tmp_path: Path) -> None:
    table = Warehouse(tmp_path, Origin("epoch", "#"))
    of_user = {"broker": "127.0.0.1:1", "user": "job", "passwordFile": "secret", "cursor": "c"}
    letters = DeadLetters(LETTERS, {"subscribe": "#", **of_user}, table)
    assert letters.options == {
        "broker": "127.0.0.1:1",
        "user": "job",
        "passwordFile": "secret",
        "topic": LETTERS,
    }
