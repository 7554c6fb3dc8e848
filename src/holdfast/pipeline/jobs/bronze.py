"""Bronze: keep every record of some topics in a table, as it is, exactly once.

Owns: the first table of the pipeline, and the query that fills it. From here on messages are rows,
and retention in the log no longer matters.

What is true after a crash between any two steps: Spark repeats the micro-batch, and the table takes
what it lacks, since its version is an offset of the log. A lost checkpoint costs only reading; one
that is ahead of its table is put aside, and the query begins again where the table ends. A table
that is restored or removed under the query ends it, so that the next one does that. A log that has
given offsets again, since it was restored from a copy, is known by the table itself. A query with a
cursor begins at the cursor's place: what the table lacks before that is read first, by a batch.

Flow: log -> micro-batch -> data files on executors -> one commit with the greatest offset.
"""

import json
import logging
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import DateType, StructField, StructType

from holdfast.pipeline.cursor import CURSOR, CursorError
from holdfast.pipeline.load.files import WrittenFiles, write_files, write_one_day
from holdfast.pipeline.load.table import NOTHING, Shape, StoredTable, TableError
from holdfast.pipeline.load.warehouse import Warehouse
from holdfast.pipeline.source.columns import DEFAULT_COLUMNS, read_schema
from holdfast.pipeline.source.following import cursor_of
from holdfast.pipeline.source.log import open_log
from holdfast.pipeline.source.offsets import restored_text
from holdfast.pipeline.source.options import OPTIONS, parse_options
from holdfast.reading.log import ReadableLog, batches

log = logging.getLogger(__name__)

BRONZE = "bronze"
RECORDS = read_schema(DEFAULT_COLUMNS)
STARTS = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
NOT_OF_A_RANGE = {option.name for option in OPTIONS if "batch" not in option.uses} | {CURSOR}
"""Options that a batch of offsets does not have."""
DAY = "day"
DAY_US = 86_400_000_000
SHAPE = Shape(StructType([*RECORDS, StructField(DAY, DateType())]), partition=DAY)

Continued = Callable[[int], None]
"""Told the rows of a micro-batch when they are in the table."""


def log_of(source: Mapping[str, str]) -> ReadableLog:
    """The log itself: a cursor of it is made when the query first starts, and this asks before."""
    return open_log(parse_options({key: source[key] for key in source if key != CURSOR}))


def without_start(source: Mapping[str, str]) -> dict[str, str]:
    """The options but for where to begin, for whoever says that himself."""
    return {name: value for name, value in source.items() if name not in STARTS}


def records_of(spark: SparkSession, source: Mapping[str, str], begin: int, end: int) -> DataFrame:
    """The records of a range of offsets, as a batch, whatever cursor the options name."""
    given = without_start(source)
    options = {name: value for name, value in given.items() if name not in NOT_OF_A_RANGE}
    options |= {"startingOffsets": str(begin), "endingOffsets": str(end)}
    return spark.read.format("holdfast").options(**options).load().select(*RECORDS.names)


def with_day(records: DataFrame) -> DataFrame:
    """The records with their day, UTC, whatever zone the session shows times in."""
    micros = f.unix_micros("timestamp")
    midnight = micros - f.pmod(micros, f.lit(DAY_US))
    return records.withColumn(DAY, f.date_from_unix_date((midnight / DAY_US).cast("int")))


class Appender:
    """Appends micro-batches to the table."""

    def __init__(self, table: StoredTable) -> None:
        self._table = table
        self._reached = table.version()
        """The version that the table had last."""
        self._are_days_mixed = False
        """The last micro-batch had rows of more than one day."""

    def append(self, batch: DataFrame) -> int:
        """Appends those of a batch of RECORDS that the table lacks; returns how many, when they
        are in it. Raises `TableError` if the table holds less than it did."""
        files = self._written(batch)
        before = self._table.opened_if_there()
        version = self._table.version_of(before)
        if version < self._reached:
            files.discard()
            raise TableError(
                f"the table {self._table.path} was restored or removed under the query: it had all"
                f" up to offset {self._reached}; the next run brings in what it lacks"
            )
        if files.rows and min(_offsets(files, "minValues")) <= version:
            # Spark has repeated a micro-batch. As a rule nothing is left out of one: the offset in
            # the condition would be another program each time, which the JVM compiles anew.
            files.discard()
            files = self._written(batch.where(f.col("offset") > version))
        if not files.rows:
            files.discard()
            return 0
        self._reached = max(_offsets(files, "maxValues"))
        self._table.commit(files, SHAPE, self._reached, before)
        return files.rows

    def _written(self, records: DataFrame) -> WrittenFiles:
        if not self._are_days_mixed:
            files = write_one_day(records, self._table.path, DAY, of="timestamp")
            if files is not None:
                return files
        files = write_files(with_day(records), self._table.path, DAY)
        self._are_days_mixed = len({action.partition_values[DAY] for action in files.actions}) > 1
        return files


def start_query(
    spark: SparkSession,
    warehouse: Warehouse,
    source: Mapping[str, str],
    *,
    continued: Continued = lambda rows: None,
    once: bool = True,
    interval_s: float = 0,
) -> StreamingQuery:
    """Starts the query. `once`: it takes what is there now and ends; `awaitTermination` waits."""
    table = warehouse.table(BRONZE)
    checkpoint = warehouse.checkpoint(BRONZE)
    _refuse_restored(table, source)
    begin = table.version() + 1
    options = dict(source)
    if begin > NOTHING + 1:
        options = without_start(options) | {"startingOffsets": str(begin)}
    elif not any(name in options for name in STARTS):
        options["startingOffsets"] = "earliest"
    is_aside = _put_aside_if_ahead(options, checkpoint, begin)

    appender = Appender(table)
    is_new = begin > NOTHING + 1 and checkpoint_offset(checkpoint) is None
    place = _place_of_cursor(options) if is_aside or is_new else begin
    if place > begin:
        log.warning("offsets %s to %s are read first: the cursor is behind them", begin, place - 1)
        continued(appender.append(records_of(spark, options, begin, place)))

    def take(batch: DataFrame, _batch_id: int) -> None:
        continued(appender.append(batch))

    raw = spark.readStream.format("holdfast").options(**options).load()
    writer = raw.select(*RECORDS.names).writeStream.queryName(BRONZE).foreachBatch(take)
    writer = writer.option("checkpointLocation", str(checkpoint))
    if once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{interval_s} seconds").start()


def _refuse_restored(table: StoredTable, source: Mapping[str, str]) -> None:
    """Raises `TableError` for a log that has less than the table, or another message in the place
    of its newest row, as far as that is still there. A checkpoint knows the same of its own place,
    and may be lost."""
    newest = table.version()
    if newest == NOTHING:
        return
    begin = newest + 1
    reach = log_of(source).reach(parse_options(source).criteria, begin, begin)
    known_us = table.time_us_at(newest, "timestamp")
    if reach.extent.end < begin:
        text = (
            f"it has the message with offset {newest}, and the log ends at {reach.extent.end}: the"
            " log was restored from a copy, and will give offsets again"
        )
    elif known_us is None or reach.before_at_us in (None, known_us):
        return
    else:
        text = restored_text(newest, known_us, reach.before_at_us)
    raise TableError(
        f"the table {table.path} is ahead of its log: {text}. Give the pipeline another directory"
        " for its tables, or bring the old log back"
    )


def _put_aside_if_ahead(options: Mapping[str, str], checkpoint: Path, begin: int) -> bool:
    """A table that was restored or removed lacks records which its checkpoint takes for done. True
    if that is so."""
    reached = checkpoint_offset(checkpoint)
    if reached is None or reached <= begin:
        return False
    parsed = parse_options(options)
    opened = log_of(options)
    low = max(begin, opened.extent().begin)
    # One read may end without a row, behind a lot of other topics' messages.
    lacking = batches(opened, parsed.criteria, low, reached, columns=("offset",))
    if next(lacking, None) is None:
        return False
    log.warning(
        "the checkpoint %s is at offset %s and its table ends at %s: it begins again there",
        checkpoint,
        reached,
        begin - 1,
    )
    shutil.rmtree(checkpoint)
    return True


def _place_of_cursor(options: Mapping[str, str]) -> int:
    """Where the query will begin that has no checkpoint; 0 without a cursor, or where it is still
    to be made."""
    parsed = parse_options(options)
    if parsed.cursor is not None:
        with suppress(CursorError):
            return cursor_of(parsed).place().offset
    return 0


def checkpoint_offset(checkpoint: Path) -> int | None:
    """The offset that the query has committed, as its checkpoint says; none without one."""
    done = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")]
    if not done:
        return None
    lines = (checkpoint / "offsets" / str(max(done))).read_text().splitlines()
    return int(json.loads(lines[-1])["o"])


def _offsets(files: WrittenFiles, end: str) -> list[int]:
    """The least offset of each file, or the greatest."""
    return [int(json.loads(action.stats)[end]["offset"]) for action in files.actions]
