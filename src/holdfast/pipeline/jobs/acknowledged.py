"""When consumers were done with messages: what the log has on record of named queues, as a table.

Owns: which ranges of offsets are new in a record, and the table that they go to.
Never: looks at a message; the answers that are made of the table do.

Invariants:
1. A range of a queue is in the table once, with the time of the first record that has it.
2. A range without a time was passed over: it was lost, or done before the records that the log
   still has.
3. The version is that of bronze: a row lies before a message that bronze has come to.

Flow: log -> ranges of records -> those that are new -> one commit with the offset.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from holdfast.core.layout import VIEW_FILE
from holdfast.kernel import RangeSet
from holdfast.pipeline.jobs.bronze import BRONZE
from holdfast.pipeline.load.files import write_files
from holdfast.pipeline.load.table import Shape, StoredTable
from holdfast.pipeline.load.warehouse import Warehouse
from holdfast.pipeline.payloads.schema import topic_pattern
from holdfast.pipeline.source.log import open_without_waiting
from holdfast.pipeline.source.options import parse_options
from holdfast.reading.directory import LogDirectory
from holdfast.reading.log import BrokerAwayError
from holdfast.reading.progress import (
    Consumer,
    DirectoryProgress,
    NoSuchQueueError,
    Progress,
    ProgressOfQueues,
    parts,
)
from holdfast.reading.recorded import RecordedMoment

log = logging.getLogger(__name__)

ACKNOWLEDGED: Final = "acknowledged"
SHAPE: Final = Shape(
    StructType(
        [
            StructField("offset", LongType()),
            StructField("queue", StringType()),
            StructField("begin", LongType()),
            StructField("end", LongType()),
            StructField("acknowledgedAt", TimestampType()),
            StructField("topics", StringType()),
        ]
    )
)
"""`offset`: the next message behind the record; `topics`: a regular expression of those that the
queue was to deliver."""
STEP_OFFSETS: Final = 100_000
"""Offsets of a step: a queue that acknowledges each message on its own has as many rows of it, and
the driver holds them."""
BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
Row = dict[str, Any]


@dataclass
class Followed:
    """What the table has of one queue."""

    done: RangeSet
    knows_mark: bool = False
    """False: the next record tells a mark, and nobody knows what it was before."""


class AcknowledgedTable:
    """Keeps what these queues were done with, and when."""

    def __init__(self, queues: Iterable[str], source: Mapping[str, str]) -> None:
        self._queues = tuple(queues)
        self._source = dict(source)
        self._followed: dict[str, Followed] | None = None
        self._missed: set[str] = set()

    def follow(self, spark: SparkSession, warehouse: Warehouse) -> bool:
        """Takes a step towards what bronze has; false if there was nothing to do, or the broker is
        away."""
        table = warehouse.table(ACKNOWLEDGED)
        after, known = table.version(), warehouse.table(BRONZE).version()
        if known <= after or not self._queues:
            return False
        upto = min(known, after + STEP_OFFSETS)
        if self._followed is None:
            self._followed = followed(table)
        try:
            rows = list(self._rows(self._followed, after + 1, upto + 1))
        except BrokerAwayError:
            self._followed = None
            return False
        found = pa.Table.from_pylist(rows, to_arrow_schema(SHAPE.columns, timezone="UTC"))
        frame = spark.createDataFrame(found, SHAPE.columns)
        table.commit(write_files(frame.coalesce(1), table.path, None), SHAPE, upto)
        return True

    def _rows(self, followed: dict[str, Followed], begin: int, end: int) -> Iterator[Row]:
        asked = progress_of(self._source)
        for name in self._queues:
            try:
                for number, part in enumerate(parts(asked, name, begin, end)):
                    if not number:
                        yield from begun_rows(part, followed, begin)
                    yield from new_rows(part, followed)
            except NoSuchQueueError as problem:
                if name not in self._missed:
                    log.warning("%s: its latency is told once it is there", problem)
                self._missed.add(name)


def progress_of(source: Mapping[str, str]) -> ProgressOfQueues:
    """Where the options say that progress is to be had."""
    options = parse_options(source)
    found = open_without_waiting(options)
    if isinstance(found, LogDirectory):
        view = Path(str(options.data_dir)) / VIEW_FILE
        return DirectoryProgress(found, lambda: RecordedMoment(view))
    return found


def followed(table: StoredTable) -> dict[str, Followed]:
    """What the table has of each queue."""
    found: dict[str, Followed] = {}
    if not table.exists():
        return found
    names = ["offset", "queue", "begin", "end"]
    rows = DeltaTable(str(table.path)).to_pyarrow_table(columns=names).sort_by("offset")
    for _, queue, begin, end in zip(*rows.to_pydict().values(), strict=True):
        known = found.setdefault(queue, Followed(RangeSet()))
        if begin is None:
            known.knows_mark = False
        else:
            known.knows_mark |= begin == 0
            known.done.insert(begin, end)
    return found


def begun_rows(part: Progress, followed: dict[str, Followed], begin: int) -> Iterator[Row]:
    """Rows that say from where on the queues are known, where that has changed. The records that
    were asked for begin at `begin`."""
    for each in part.consumers:
        row = {"offset": begin, "queue": each.queue, "acknowledgedAt": None, "topics": None}
        created = each.created_at_offset
        known = followed.setdefault(each.queue, Followed(RangeSet()))
        if part.log_begin > max(begin, created):
            # Records went with their segments before they were asked for.
            if known.knows_mark:
                yield row | {"begin": None, "end": None}
            known.knows_mark = False
        elif begin <= created and not known.knows_mark:
            known.knows_mark = True
            known.done.insert(0, created)
            yield row | {"begin": 0, "end": created}


def new_rows(part: Progress, followed: dict[str, Followed]) -> Iterator[Row]:
    """Rows of what the records say first."""
    consumers = {each.party: each for each in part.consumers}
    columns = (part.rows[name].to_pylist() for name in part.rows.schema.names)
    for party, before, at, begin, end in zip(*columns, strict=True):
        consumer = consumers.get(party)
        if consumer is None:
            continue  # It has ended since.
        known = followed[consumer.queue]
        time = BEGINNING + timedelta(microseconds=at) if begin or known.knows_mark else None
        known.knows_mark |= begin == 0
        for low, high in known.done.gaps(begin, end):
            for piece in _pieces(consumer, low, high, time):
                yield {"offset": before, "queue": consumer.queue, **piece}
        known.done.insert(begin, end)


def _pieces(consumer: Consumer, low: int, high: int, time: datetime | None) -> Iterator[Row]:
    """A range as far as the queue was to deliver it, and what of it was passed over."""
    delivered = [] if time is None else RangeSet(consumer.lost).gaps(low, high)
    for begin, end in RangeSet(delivered).gaps(low, high):
        yield {"begin": begin, "end": end, "acknowledgedAt": None, "topics": None}
    for begin, end in delivered:
        for reads in consumer.reads:
            first, last = max(begin, reads.from_offset), min(end, reads.until_offset)
            if first < last:
                pattern = topic_pattern(reads.topic_filter)
                yield {"begin": first, "end": last, "acknowledgedAt": time, "topics": pattern}
