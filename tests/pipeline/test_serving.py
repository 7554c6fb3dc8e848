"""The copy of the answers in SQLite: rows by key, and a reader that does not let go."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from holdfast.pipeline.load import serving
from holdfast.pipeline.load.serving import ServingCopy, ServingError
from holdfast.pipeline.load.table import Shape

COUNTS = Shape(
    StructType().add("reader", "string").add("antenna", "integer").add("n", "long"),
    key=("reader", "antenna"),
)


def counts(*rows: tuple[str | None, int | None, int], gone: bool = False) -> pa.Table:
    readers, antennas, numbers = zip(*rows, strict=True)
    return pa.table(
        {
            "reader": pa.array(readers, pa.string()),
            "antenna": pa.array(antennas, pa.int32()),
            "n": pa.array(numbers, pa.int64()),
            "gone": [gone] * len(rows),
        }
    )


def test_rows_with_a_null_in_their_key_are_replaced_and_removed(tmp_path: Path) -> None:
    copy = ServingCopy(tmp_path / "serving.db")
    copy.upsert("counts", counts(("a", 1, 1), ("a", None, 2), (None, None, 3)), COUNTS, 1)
    copy.upsert("counts", counts(("a", 1, 10), ("a", None, 20), (None, None, 30)), COUNTS, 2)
    copy.upsert("counts", counts((None, None, 30), gone=True), COUNTS, 3)
    with closing(sqlite3.connect(copy.path)) as database:
        found = database.execute("SELECT * FROM counts ORDER BY n").fetchall()
    assert found == [("a", 1, 10), ("a", None, 20)]


def test_a_reader_that_does_not_let_go_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "BUSY_S", 0)
    copy = ServingCopy(tmp_path / "serving.db")
    copy.upsert("counts", counts(*(("a", antenna, 0) for antenna in range(5_000))), COUNTS, 1)
    said = r"answers in .*serving\.db cannot be written: "
    with closing(sqlite3.connect(copy.path)) as database:
        database.execute("BEGIN")
        database.execute("SELECT * FROM counts").fetchone()
        with pytest.raises(ServingError, match=f"{said}database is locked"):
            copy.upsert("counts", counts(("a", 1, 1)), COUNTS, 2)
    assert copy.version("counts") == 1
    copy.path.write_bytes(b"no database" * 1_000)
    with pytest.raises(ServingError, match=f"{said}file is not a database"):
        copy.version("counts")
