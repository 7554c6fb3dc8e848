"""What every sink promises, of each: rows once, all or none, and errors by whose they are."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.processors.sink import Committed, RowsRefusedError, Sink, SinkUnfitError
from holdfast.processors.sinks import open_sink
from holdfast.processors.table import Column, ColumnType, IdentifiedRow, Table
from tests.interop.processors.databases import AT, READINGS, Database, identities, reading


@pytest.mark.accepts("S3.66")
def test_a_row_that_comes_again_is_there_once(sink: Sink, database: Database) -> None:
    assert sink.commit(READINGS, [reading(1), reading(2)]) == Committed(2, 0)
    assert sink.commit(READINGS, [reading(2), reading(3), reading(3)]) == Committed(1, 2)
    assert sink.commit(READINGS, [reading(1), reading(2), reading(3)]) == Committed(0, 3)
    assert sink.commit(READINGS, [reading(4)]) == Committed(1, 0)
    assert identities(database) == ["log-1", "log-2", "log-3", "log-4"]


def test_a_message_has_many_rows(sink: Sink, database: Database) -> None:
    rows = [reading(1, row_number=number) for number in range(3)]
    assert sink.commit(READINGS, rows) == Committed(3, 0)
    assert sink.commit(READINGS, rows) == Committed(0, 3)
    assert len(identities(database)) == 3


def test_a_key_of_the_table_makes_a_row_itself(sink: Sink, database: Database) -> None:
    keyed = replace(READINGS, key=("sensor", "at"))
    assert sink.commit(keyed, [reading(1), reading(2, sensor="t")]) == Committed(2, 0)
    assert sink.commit(keyed, [reading(3), reading(4, sensor="u")]) == Committed(1, 1)
    assert identities(database) == ["log-1", "log-2", "log-4"]


BATCHES = st.lists(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2)), max_size=12), max_size=8
)


@given(batches=BATCHES, keyed=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_any_batches_with_repeats_leave_the_set_of_their_rows(
    sink: Sink, database: Database, batches: list[list[tuple[int, int]]], keyed: bool
) -> None:
    table = replace(READINGS, name="keyed", key=("sensor",)) if keyed else READINGS
    sink.open(table)
    database.run(f"DELETE FROM {table.name}")
    written = 0
    for batch in batches:
        rows = [reading(n, row_number=m, sensor=f"{n} {m}") for n, m in batch]
        committed = sink.commit(table, rows)
        assert committed.written + committed.repeats == len(rows)
        written += committed.written
    expected = {f"{n} {m}" for batch in batches for n, m in batch}
    found = [row[0] for row in database.run(f"SELECT sensor FROM {table.name}")]
    assert sorted(found) == sorted(expected)
    assert written == len(expected)


def test_a_table_in_a_schema_is_there_by_that_name(sink: Sink, database: Database) -> None:
    table = replace(READINGS, name="bbu.readings")
    sink.commit(table, [reading(1)])
    sink.count_attempts(table, ["x"])
    assert identities(database, "bbu.readings") == ["log-1"]
    # What belongs together lies together: a transaction covers one schema.
    assert database.run("SELECT message_identity, attempts FROM bbu.holdfast_attempts") == [
        ("x", 1)
    ]
    assert ("readings", 1) in database.run("SELECT * FROM bbu.holdfast_tables")


def test_a_schema_may_be_called_by_a_word_of_the_databases(sink: Sink) -> None:
    table = replace(READINGS, name="order.group")
    assert sink.commit(table, [reading(1)]) == Committed(1, 0)
    assert sink.commit(table, [reading(1)]) == Committed(0, 1)


EVERYTHING = Table("everything", tuple(Column(f"c_{t.value}", t, False) for t in ColumnType))


def everything(number: int, **values: Any) -> IdentifiedRow:
    return IdentifiedRow(str(number), 0, values)


def test_each_type_of_column_keeps_its_values(sink: Sink, database: Database) -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    full = {
        "c_text": "a'\"\\\t\n{}ä\U0001f600",
        "c_integer": -(2**63),
        "c_real": 3,
        "c_boolean": True,
        "c_bytes": bytes(range(256)),
        "c_timestamp": AT.astimezone(east),
        "c_json": {"a": [1, None, True, "ü\\"]},
    }
    assert sink.commit(EVERYTHING, [everything(1, **full), everything(2)]) == Committed(2, 0)
    columns = "c_text, c_integer, c_real, c_bytes"
    found = database.run(f"SELECT {columns} FROM everything WHERE message_identity = '1'")
    assert found == [(full["c_text"], -(2**63), 3.0, bytes(range(256)))]
    assert database.run("SELECT count(*) FROM everything WHERE c_boolean") == [(1,)]
    if database.url.startswith("sqlite"):
        query = "SELECT c_timestamp, c_json FROM everything LIMIT 1"
        assert database.run(query) == [
            ("2026-03-01T12:30:15.250000Z", '{"a":[1,null,true,"ü\\\\"]}')
        ]
    else:
        query = "SELECT c_timestamp, c_json FROM everything LIMIT 1"
        assert database.run(query) == [(AT, full["c_json"])]
    assert len(database.run("SELECT * FROM everything WHERE c_text IS NULL")) == 1


NESTED: list[Any] = []
for _ in range(100_000):
    NESTED = [NESTED]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"c_text": 1}, "c_text of everything takes text, and a row has int"),
        ({"c_text": "a\0b"}, "c_text"),
        ({"c_text": "\ud800"}, "surrogate"),
        ({"c_integer": 2**63}, "64 bits"),
        ({"c_integer": True}, "bool"),
        ({"c_integer": 1.0}, "float"),
        ({"c_real": float("nan")}, "finite"),
        ({"c_real": 10**400}, "c_real"),
        ({"c_timestamp": datetime(2026, 1, 1)}, "without a zone"),  # noqa: DTZ001
        ({"c_timestamp": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))}, "c_timestamp"),
        ({"c_timestamp": "2026-01-01"}, "takes timestamp"),
        ({"c_json": {"a": float("nan")}}, "c_json"),
        ({"c_json": {"a": "\0\ud800"}}, "surrogate"),
        ({"c_json": NESTED}, "nested too deep"),
        ({"c_other": 1}, "no column 'c_other'"),
    ],
)
def test_a_row_that_cannot_be_written_is_refused_with_its_column(
    sink: Sink, database: Database, values: dict[str, Any], reason: str
) -> None:
    with pytest.raises(RowsRefusedError, match=reason):
        sink.commit(EVERYTHING, [everything(1), everything(2, **values)])
    assert database.run("SELECT count(*) FROM everything") == [(0,)]
    assert sink.commit(EVERYTHING, [everything(1)]) == Committed(1, 0)


def test_columns_that_are_no_texts_are_refused_by_their_names(sink: Sink) -> None:
    with pytest.raises(RowsRefusedError, match="readings has no column 'z'"):
        sink.commit(READINGS, [IdentifiedRow("1", 0, {1: 2, "z": 1})])  # type: ignore[dict-item]


def test_a_row_without_something_that_is_required_is_refused(sink: Sink) -> None:
    for row in ({"sensor": "s", "at": None}, {"sensor": "s"}):
        with pytest.raises(RowsRefusedError, match="at of readings has nothing"):
            sink.commit(READINGS, [IdentifiedRow("1", 0, row)])


def test_a_rule_of_the_users_refuses_all_rows_of_a_batch(sink: Sink, database: Database) -> None:
    sink.open(READINGS)
    database.run("CREATE UNIQUE INDEX own ON readings (value)")
    sink.commit(READINGS, [reading(1)])
    for _ in range(2):
        with pytest.raises(RowsRefusedError):
            sink.commit(READINGS, [reading(2), reading(3, value=1.0)])
        assert identities(database) == ["log-1"]
    assert sink.commit(READINGS, [reading(2)]) == Committed(1, 0)


def test_a_batch_without_rows_writes_nothing(sink: Sink) -> None:
    assert sink.commit(READINGS, []) == Committed(0, 0)


def test_a_row_says_when_it_was_committed(sink: Sink, database: Database) -> None:
    sink.commit(READINGS, [reading(1)])
    sink.commit(READINGS, [reading(2)])
    ordered = database.run("SELECT message_identity FROM readings ORDER BY created_at_utc")
    assert ordered == [("log-1",), ("log-2",)]


# --- attempts -----------------------------------------------------------------------------------


def test_attempts_are_counted_until_a_commit_or_a_word_forgets_them(
    sink: Sink, database: Database
) -> None:
    assert sink.count_attempts(READINGS, ["log-1", "log-2"]) == {"log-1": 1, "log-2": 1}
    other = open_sink(database.url)
    assert other.count_attempts(READINGS, ["log-1", "log-3", "log-1"]) == {"log-1": 2, "log-3": 1}
    other.close()
    sink.commit(READINGS, [reading(1)])
    assert sink.count_attempts(READINGS, ["log-1", "log-2"]) == {"log-1": 1, "log-2": 2}
    sink.forget_attempts(READINGS, ["log-2", "log-9"])
    assert sink.count_attempts(READINGS, ["log-2"]) == {"log-2": 1}
    assert sink.count_attempts(READINGS, []) == {}


def test_what_was_counted_stays_where_the_rows_are_refused(sink: Sink) -> None:
    sink.count_attempts(READINGS, ["log-1"])
    with pytest.raises(RowsRefusedError):
        sink.commit(READINGS, [reading(1, sensor=1)])
    assert sink.count_attempts(READINGS, ["log-1"]) == {"log-1": 2}


def test_a_repeat_forgets_its_attempts_too(sink: Sink) -> None:
    sink.commit(READINGS, [reading(1)])
    sink.count_attempts(READINGS, ["log-1"])
    assert sink.commit(READINGS, [reading(1)]) == Committed(0, 1)
    assert sink.count_attempts(READINGS, ["log-1"]) == {"log-1": 1}


def test_tables_have_attempts_of_their_own(sink: Sink) -> None:
    other = replace(READINGS, name="others")
    sink.count_attempts(READINGS, ["log-1"])
    assert sink.count_attempts(other, ["log-1"]) == {"log-1": 1}
    sink.forget_attempts(other, ["log-1"])
    assert sink.count_attempts(READINGS, ["log-1"]) == {"log-1": 2}


def test_attempts_of_long_ago_are_dropped(sink: Sink, database: Database) -> None:
    sink.count_attempts(READINGS, ["log-1"])
    database.run("UPDATE holdfast_attempts SET last_at_utc = '2020-01-01T00:00:00.000000Z'")
    sink.close()
    sink.open(READINGS)
    assert database.run("SELECT * FROM holdfast_attempts") == []


# --- versions -----------------------------------------------------------------------------------

SECOND = replace(READINGS, columns=(*READINGS.columns, Column("unit", ColumnType.TEXT)), version=2)


def test_a_newer_version_adds_its_columns(sink: Sink, database: Database) -> None:
    sink.commit(READINGS, [reading(1)])
    assert sink.commit(SECOND, [reading(1, unit="K"), reading(2, unit="C")]) == Committed(1, 1)
    assert sink.commit(SECOND, [reading(3, unit="C")]) == Committed(1, 0)
    found = database.run("SELECT message_identity, unit FROM readings ORDER BY 1")
    assert found == [("log-1", None), ("log-2", "C"), ("log-3", "C")]


def test_an_older_version_is_refused(sink: Sink, database: Database) -> None:
    sink.open(SECOND)
    older = open_sink(database.url)
    with pytest.raises(SinkUnfitError, match="version 2, and this program knows version 1"):
        older.open(READINGS)
    older.close()


def test_a_process_of_an_older_version_that_runs_already_goes_on(
    sink: Sink, database: Database
) -> None:
    sink.commit(READINGS, [reading(1)])
    newer = open_sink(database.url)
    newer.commit(SECOND, [reading(2, unit="C")])
    newer.close()
    assert sink.commit(READINGS, [reading(3)]) == Committed(1, 0)


def test_a_newer_layout_of_the_sinks_own_tables_is_refused(sink: Sink, database: Database) -> None:
    sink.open(READINGS)
    database.run("UPDATE holdfast_tables SET version = 2 WHERE table_name = 'holdfast_tables'")
    newer = open_sink(database.url)
    with pytest.raises(SinkUnfitError, match="holdfast_tables is of version 2"):
        newer.open(replace(READINGS, name="others"))
    newer.close()


OWN = (
    "message_identity text not null, row_number {integer} not null, created_at_utc {time} {default}"
)
UNIQUE = ", unique (message_identity, row_number)"


def existing(database: Database, columns: str) -> None:
    """A table that somebody made with this name."""
    sqlite = database.url.startswith("sqlite")
    names = {
        "integer": "integer" if sqlite else "bigint",
        "time": "text" if sqlite else "timestamptz",
        "real": "real" if sqlite else "double precision",
        "default": "" if sqlite else "default now()",
    }
    database.run(f"CREATE TABLE readings ({columns.format(**names)})")


FITTING = "sensor text, at {time}, value {real}, " + OWN


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            "sensor text, at {time}, " + OWN + UNIQUE,
            "no column value",
        ),
        ("sensor text, at {time}, value text, " + OWN, "column value of readings is not of a type"),
        ("sensor text, at {time}, value {real}", "no column message_identity"),
        (FITTING + ", site text not null" + UNIQUE, "column site"),
        (FITTING, "(?i)unique"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_its_column(
    sink: Sink, database: Database, columns: str, said: str
) -> None:
    existing(database, columns)
    for _ in range(2):
        with pytest.raises(SinkUnfitError, match=said):
            sink.open(READINGS)


def test_a_table_that_fits_is_taken_as_it_is(sink: Sink, database: Database) -> None:
    existing(database, FITTING + ", site text" + UNIQUE)
    assert sink.commit(READINGS, [reading(1)]) == Committed(1, 0)
    assert database.run("SELECT site FROM readings") == [(None,)]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (replace(READINGS, name="a.b.c"), "'a.b' cannot be the name"),
        (replace(READINGS, name='x" (y'), "cannot be the name"),
        (replace(READINGS, name="x" * 64), "cannot be the name"),
        (replace(READINGS, name="holdfast_attempts"), "cannot be called"),
        (Table("t", (Column("row_number", ColumnType.INTEGER),)), "the sink adds one"),
        (Table("t", (Column("a", ColumnType.TEXT), Column("A", ColumnType.TEXT))), "one name"),
        (replace(READINGS, key=("value",)), "value in its key"),
        (replace(READINGS, key=("other",)), "other in its key"),
    ],
)
def test_a_table_that_no_database_can_have_is_refused(sink: Sink, table: Table, said: str) -> None:
    with pytest.raises(SinkUnfitError, match=said):
        sink.open(table)


def test_a_sink_that_was_closed_opens_again(sink: Sink) -> None:
    sink.open(READINGS)
    sink.close()
    sink.close()
    assert sink.commit(READINGS, [reading(1)]) == Committed(1, 0)


def test_times_before_others_sort_before_them(sink: Sink, database: Database) -> None:
    moments = [
        AT,
        AT.replace(microsecond=0),
        AT + timedelta(days=400),
        datetime(999, 1, 1, tzinfo=UTC),
    ]
    sink.commit(READINGS, [reading(n, at=at) for n, at in enumerate(moments)])
    found = database.run("SELECT message_identity FROM readings ORDER BY at")
    assert [row[0] for row in found] == ["log-3", "log-1", "log-0", "log-2"]
