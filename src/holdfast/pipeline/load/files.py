"""Have executors write data files, and find out on the driver what they have written.

Owns: where the files of a commit lie, and what the table's log says of each.
Never: brings a row to the driver; it reads the footers of files.

Flow: DataFrame -> Parquet files below the table -> one `AddAction` each -> commit.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import pyarrow.parquet as pq
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame, SparkSession

from holdfast import system

DATA = "data"
NO_MARKER = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
SETTINGS = {
    # Spark's own choice is a form of timestamps that only Spark and Hive still write.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # So many partitions a task writes side by side; only where it meets more, all of its rows are
    # sorted first, which took a seventh of a micro-batch; and a task's rows are mostly of one day.
    "spark.sql.maxConcurrentOutputFileWriters": "4",
}

FOLDER_IDLE_S = 3_600
"""A folder that nobody has changed for so long is nobody's who is about to write there."""
RANGED = ("NONE", "INT", "TIMESTAMP")
"""What a footer calls numbers and times, which are in microseconds."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_US = (datetime.min.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
LAST_US = (datetime.max.replace(tzinfo=UTC, microsecond=999_000) - EPOCH) // timedelta(
    microseconds=1
)
"""The last millisecond that a range can end with."""


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """Files that lie below a table and that no commit names yet."""

    folder: Path
    actions: tuple[AddAction, ...]
    rows: int

    def discard(self) -> None:
        """Removes them, since nothing will name them."""
        shutil.rmtree(self.folder, ignore_errors=True)


def write_files(frame: DataFrame, table: Path, partition: str | None) -> WrittenFiles:
    """Writes the rows below the table; returns when all files are whole."""
    folder = _new_folder(table)
    try:
        with _settings(frame.sparkSession):
            writer = frame.write.option(NO_MARKER, "false").mode("error")
            (writer if partition is None else writer.partitionBy(partition)).parquet(str(folder))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return _found(folder, table)


def no_files(table: Path) -> WrittenFiles:
    """What has been written of no rows."""
    return WrittenFiles(_new_folder(table), (), 0)


def write_one_day(frame: DataFrame, table: Path, partition: str, *, of: str) -> WrittenFiles | None:
    """Writes rows whose times `of` are of one day below the table, as of that value of the
    partition; returns when all files are whole. `None`, and nothing is left, if a file would hold
    rows of several days. To divide rows by their days takes a ninth of a micro-batch, and nearly
    all of them have one."""
    written = write_files(frame, table, None)
    days = {action.path: _only_day(table / action.path, of) for action in written.actions}
    if None in days.values():
        written.discard()
        return None
    for path, day in days.items():
        target = written.folder / f"{partition}={day}" / Path(path).name
        target.parent.mkdir(exist_ok=True)
        (table / path).rename(target)
    return _found(written.folder, table)


def _only_day(path: Path, column: str) -> date | None:
    """The day, UTC, of all times in a file, if its footer says that they have one."""
    footer = pq.read_metadata(path)
    place = footer.schema.to_arrow_schema().names.index(column)
    found = [
        footer.row_group(group).column(place).statistics for group in range(footer.num_row_groups)
    ]
    if any(each is None or not each.has_min_max or each.null_count for each in found):
        return None
    days = {time.date() for each in found for time in (each.min, each.max)}
    return days.pop() if len(days) == 1 else None


@contextmanager
def _settings(spark: SparkSession) -> Iterator[None]:
    """The session writes with these settings until the block ends."""
    before = {name: spark.conf.get(name) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, was in before.items():
            if was is not None:
                spark.conf.set(name, was)


def moved_files(paths: Iterable[Path], origin: Path, table: Path) -> WrittenFiles:
    """Moves data files of the table at `origin` below another table, which has none of them yet."""
    folder = _new_folder(table)
    for path in paths:
        target = folder / path.relative_to(origin)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
    return _found(folder, table)


def remove_empty_folders(table: Path) -> None:
    """Removes the folders of commits whose files are gone, `FOLDER_IDLE_S` after the last went."""
    old_s = system.now_us() / 1e6 - FOLDER_IDLE_S
    for folder, _, _ in os.walk(table / DATA, topdown=False):
        with suppress(OSError):
            if Path(folder).stat().st_mtime < old_s:
                Path(folder).rmdir()


def _new_folder(table: Path) -> Path:
    return table / DATA / str(UUID(bytes=system.entropy(16), version=4))


def _found(folder: Path, table: Path) -> WrittenFiles:
    actions, total = [], 0
    for path in sorted(folder.rglob("*.parquet")):
        action, rows = _described(path, table)
        if rows:
            actions.append(action)
            total += rows
        else:
            # Spark says its schema in a file even where it has no row.
            path.unlink()
    return WrittenFiles(folder, tuple(actions), total)


def _described(path: Path, table: Path) -> tuple[AddAction, int]:
    footer = pq.read_metadata(path)
    relative = path.relative_to(table)
    values = dict(part.split("=", 1) for part in relative.parts if "=" in part)
    status = path.stat()
    action = AddAction(
        path=str(relative),
        size=status.st_size,
        partition_values={key: unquote(value) for key, value in values.items()},
        modification_time=int(status.st_mtime * 1000),
        data_change=True,
        stats=json.dumps(_statistics(footer)),
    )
    return action, footer.num_rows


def _statistics(footer: pq.FileMetaData) -> dict[str, Any]:
    """Rows, and the range of each column of numbers or times at the top. A range of times of which
    one is outside of Python's years is left out: it has no text that every reader takes."""
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    times: set[str] = set()
    for group in range(footer.num_row_groups):
        row_group = footer.row_group(group)
        for place in range(row_group.num_columns):
            column = row_group.column(place)
            found = column.statistics
            name = column.path_in_schema
            if "." in name or found is None or not found.has_min_max:
                continue
            kind = found.logical_type.type
            if kind == "TIMESTAMP":
                times.add(name)
            if kind in RANGED and type(found.min_raw) is int:
                lows[name] = min(lows.get(name, found.min_raw), found.min_raw)
                highs[name] = max(highs.get(name, found.max_raw), found.max_raw)
    for name in times & lows.keys():
        if lows[name] < FIRST_US or highs[name] > LAST_US:
            del lows[name], highs[name]
        else:
            lows[name], highs[name] = _text(lows[name]), _text(highs[name], up=True)
    return {
        "numRecords": footer.num_rows,
        "minValues": lows,
        "maxValues": highs,
        "nullCount": {},
    }


def _text(time_us: int, *, up: bool = False) -> str:
    """Times are said in milliseconds there, and the range must still hold every row."""
    time_ms = -(-time_us // 1000) if up else time_us // 1000
    told = (EPOCH + timedelta(milliseconds=time_ms)).replace(tzinfo=None)
    return told.isoformat(timespec="milliseconds") + "Z"
