"""The copy of the answers in SQLite: rows by key, and a reader that does not let go."""

import math
import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    DateType,
    DecimalType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from holdfast.pipeline.load import serving
from holdfast.pipeline.load.serving import ServingCopy, ServingError
from holdfast.pipeline.load.table import Shape, StoredTable

DAY = date(2026, 1, 31)
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


PARTS = {
    "tags": (ArrayType(StringType()), pa.list_(pa.string()), ["a", None, "\u00fc"]),
    "counts": (MapType(IntegerType(), DateType()), pa.map_(pa.int32(), pa.date32()), [(7, DAY)]),
    "place": (
        StructType().add("x", "double").add("at", "timestamp").add("code", "binary"),
        pa.struct({"x": pa.float64(), "at": pa.timestamp("us", "UTC"), "code": pa.binary()}),
        {"x": math.nan, "at": datetime(2026, 1, 2, tzinfo=UTC), "code": b"AB"},
    ),
    "price": (DecimalType(38, 10), pa.decimal128(38, 10), Decimal("12345678901234567890.5")),
    "nothing": (DecimalType(20, 10), pa.decimal128(20, 10), Decimal(0)),
    "day": (DateType(), pa.date32(), DAY),
    "unknown": (MapType(StringType(), StringType()), pa.map_(pa.string(), pa.string()), None),
}
CELLS = {
    "tags": '["a", null, "\u00fc"]',
    "counts": '{"7": "2026-01-31"}',
    "place": '{"x": "NaN", "at": "2026-01-02 00:00:00+00:00", "code": "AB"}',
    "price": "12345678901234567890.5000000000",
    "nothing": "0.0000000000",
    "day": "2026-01-31",
    "unknown": None,
}


def test_what_sqlite_lacks_is_text_by_a_step_and_when_the_copy_is_made_anew(
    tmp_path: Path,
) -> None:
    kinds = StructType([StructField(name, kind) for name, (kind, _, _) in PARTS.items()])
    shape = Shape(kinds, key=("price", "tags"))
    rows = pa.table({name: pa.array([value], kind) for name, (_, kind, value) in PARTS.items()})
    table, copy = StoredTable(tmp_path / "parts", "epoch"), ServingCopy(tmp_path / "serving.db")

    def cells() -> dict[str, Any]:
        with closing(sqlite3.connect(copy.path)) as database:
            database.row_factory = sqlite3.Row
            [row] = database.execute("SELECT * FROM parts").fetchall()
        return dict(row)

    table.upsert(rows, shape, 1)
    copy.upsert("parts", rows, shape, 1)
    copy.upsert("parts", rows, shape, 2)
    assert cells() == CELLS
    assert copy.follow(table, shape)
    assert cells() == CELLS
    gone = rows.append_column("gone", pa.array([True]))
    copy.upsert("parts", gone, shape, 2)
    with closing(sqlite3.connect(copy.path)) as database:
        assert database.execute("SELECT count(*) FROM parts").fetchone() == (0,)


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
