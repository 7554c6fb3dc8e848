"""Reads of Zebra readers in either database, with what is sent again and what is broken."""

from datetime import UTC, datetime

from holdfast.processors.message import Message
from holdfast.processors.processor import RejectedError
from holdfast.processors.sink import Sink
from holdfast.processors.table import IdentifiedRow
from holdfast.processors.zebra import ZebraRfid
from tests.builders.stored import START_US
from tests.builders.tag_reads import mixed
from tests.interop.processors.databases import Database


def test_each_read_is_there_once_and_broken_ones_are_not(sink: Sink, database: Database) -> None:
    zebra = ZebraRfid()
    rows = []
    rejected = 0
    for number, each in enumerate(mixed(300)):
        topic = each.topic.replace("unknown", "reads")
        message = Message(topic, each.value, 2, False, False, (), None, START_US + 3_600_000_000)
        try:
            rows += [IdentifiedRow(f"log-{number}", 0, row) for row in zebra.parse(message)]
        except RejectedError:
            rejected += 1
    assert rejected > 0
    sent = {(row.row["reader"], row.row["event_number"]) for row in rows}
    assert len(rows) > len(sent)
    written = sum(
        sink.commit(zebra.table, rows[start : start + 50]).written
        for start in range(0, len(rows), 50)
    )
    found = database.run("SELECT reader, event_number FROM bbu.tag_read_processings")
    assert sorted(found) == sorted(sent)
    assert written == len(sent)
    (first,) = database.run("SELECT min(event_timestamp_utc) FROM bbu.tag_read_processings")
    earliest = min(row.row["event_timestamp_utc"] for row in rows)
    at = first[0] if isinstance(first[0], datetime) else datetime.fromisoformat(first[0])
    assert at.astimezone(UTC) == earliest
