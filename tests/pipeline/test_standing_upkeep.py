"""A run that goes on for months: its tables stay as quick to open as they were."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyspark.sql.types import StructType

from holdfast.pipeline.load.files import DATA, FOLDER_IDLE_S, moved_files
from holdfast.pipeline.load.table import HISTORY_KEPT, NAMED_BEFORE, Shape, StoredTable
from holdfast.pipeline.load.upkeep import FILES_TO_COMPACT, SWEEP_S, SWEPT, StandingUpkeep
from holdfast.pipeline.load.warehouse import Origin, Warehouse

ROWS = Shape(StructType().add("offset", "long"))


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse.opened(tmp_path / "pipeline", Origin("epoch", "#"))


def grow(table: StoredTable, *offsets: int) -> None:
    """A commit with a file for each of these."""
    origin = table.path.parent / "origin"
    origin.mkdir(parents=True, exist_ok=True)
    for offset in offsets:
        pq.write_table(pa.table({"offset": [offset]}), origin / "part.parquet")
        files = moved_files([origin / "part.parquet"], origin, table.path)
        assert table.commit(files, ROWS, offset)


def grow_old(path: Path, seconds: int) -> None:
    made = path.stat().st_mtime - seconds
    os.utime(path, (made, made))


def offsets(table: StoredTable) -> list[int]:
    read = [pq.read_table(path, columns=["offset"], partitioning=None) for path in table.files({})]
    return sorted(pa.concat_tables(read)["offset"].to_pylist())


def test_many_small_files_become_few_with_the_same_rows(warehouse: Warehouse) -> None:
    table = warehouse.table("t")
    told: list[tuple[str, int]] = []
    upkeep = StandingUpkeep(
        warehouse, ("t", "absent"), 6, lambda name, files: told.append((name, files))
    )
    upkeep.begin()
    grow(table, *range(FILES_TO_COMPACT - 1))
    upkeep.look()
    assert len(table.files({})) == FILES_TO_COMPACT - 1
    assert told == []
    grow(table, FILES_TO_COMPACT - 1)
    upkeep.look()
    assert told == [("t", FILES_TO_COMPACT)]
    assert len(table.files({})) == 1
    assert offsets(table) == list(range(FILES_TO_COMPACT))
    assert table.version() == FILES_TO_COMPACT - 1
    # Steps find their input by what the log of the table says of a file.
    assert table.step_end(3, 10) == 13
    assert table.files({"offset": FILES_TO_COMPACT}) == []
    grow(table, *range(FILES_TO_COMPACT, 2 * FILES_TO_COMPACT))
    upkeep.look()
    assert len(told) == 2
    assert offsets(table) == list(range(2 * FILES_TO_COMPACT))


def test_files_that_cannot_be_put_together_are_left_until_there_are_as_many_more(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.pipeline.load.upkeep.COMPACTED_BYTES", 1)
    monkeypatch.setattr("holdfast.pipeline.load.upkeep.FILES_TO_COMPACT", 4)
    told: list[int] = []
    upkeep = StandingUpkeep(warehouse, ("t",), 6, lambda _, files: told.append(files))
    for offset in range(9):
        grow(warehouse.table("t"), offset)
        upkeep.look()
    assert told == [4, 8]


def test_a_compaction_that_lost_every_race_is_tried_again_at_the_next_look(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(warehouse.table("t"), *range(FILES_TO_COMPACT))
    upkeep = StandingUpkeep(warehouse, ("t",), 6)

    def lose(_table: StoredTable) -> None:
        raise CommitFailedError("somebody else was quicker")

    with monkeypatch.context() as busy:
        busy.setattr("holdfast.pipeline.load.upkeep._compact", lose)
        upkeep.look()
    assert len(warehouse.table("t").files({})) == FILES_TO_COMPACT
    upkeep.look()
    assert len(warehouse.table("t").files({})) == 1


def test_what_nobody_names_goes_after_its_hours_with_its_folders(warehouse: Warehouse) -> None:
    table = warehouse.table("t")
    grow(table, *range(FILES_TO_COMPACT))
    StandingUpkeep(warehouse, ("t",), keep_hours=1).begin()
    [kept] = map(Path, table.files({}))
    data = table.path / DATA
    assert len(list(data.rglob("*.parquet"))) == FILES_TO_COMPACT, "somebody may still read them"

    upkeep = StandingUpkeep(warehouse, ("t",), keep_hours=0)
    upkeep.look()
    assert len(list(data.rglob("*.parquet"))) == FILES_TO_COMPACT, "it was done within the hour"
    grow_old(warehouse.directory / SWEPT, SWEEP_S)
    upkeep.look()
    assert list(data.rglob("*.parquet")) == []
    assert kept.exists()

    folders = list(data.iterdir())
    assert len(folders) == FILES_TO_COMPACT
    for folder in folders[1:]:
        grow_old(folder, FOLDER_IDLE_S)
    grow_old(warehouse.directory / SWEPT, SWEEP_S)
    upkeep.look()
    assert list(data.iterdir()) == folders[:1], "somebody may be about to write there"
    assert offsets(table) == list(range(FILES_TO_COMPACT))


def test_a_table_knows_what_it_named_for_as_long_as_that_is_kept(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said() -> str | None:
        return DeltaTable(str(warehouse.table("t").path)).metadata().configuration.get(NAMED_BEFORE)

    with monkeypatch.context() as before:
        # As it was before: nothing is said, which is a week.
        before.setattr("holdfast.pipeline.load.table.NAMED_BEFORE", "holdfast.nothing")
        grow(warehouse.table("t"), 0)
    assert said() is None
    StandingUpkeep(warehouse, ("t",), keep_hours=30).begin()
    assert said() == "interval 30 hours"
    commits = warehouse.table("t").opened().version()
    StandingUpkeep(warehouse, ("t",), keep_hours=30).begin()
    assert warehouse.table("t").opened().version() == commits
    grow(warehouse.table("t"), 1)
    grow(warehouse.table("new"), 0)
    configuration = warehouse.table("new").opened().metadata().configuration
    assert configuration[NAMED_BEFORE] == HISTORY_KEPT
