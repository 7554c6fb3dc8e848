"""Databases that are locked, full, moved, stopped, forbidden: who waits, and who is called."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.core.errors import ConfigurationError
from holdfast.processors.sink import Committed, RowsRefusedError, SinkAwayError, SinkUnfitError
from holdfast.processors.sinks import open_sink
from holdfast.processors.sinks.sqlite import SqliteSink
from tests.interop.processors.databases import (
    READINGS,
    PostgresDatabase,
    SqliteDatabase,
    identities,
    reading,
)
from tests.postgresql import PostgresServer, postgres_server
from tests.small_disk import small_disk


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rows.db"


@pytest.fixture
def impatient(file: Path) -> Iterator[SqliteSink]:
    """A sink that waits for nobody."""
    with closing(SqliteSink(file, busy_timeout_s=0)) as sink:
        yield sink


def test_a_file_that_another_process_has_locked_takes_rows_later(
    impatient: SqliteSink, file: Path
) -> None:
    impatient.commit(READINGS, [reading(1)])
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for _ in range(2):
            with pytest.raises(SinkAwayError, match="locked"):
                impatient.commit(READINGS, [reading(2)])
            with pytest.raises(SinkAwayError, match="locked"):
                impatient.count_attempts(READINGS, ["log-2"])
    assert impatient.commit(READINGS, [reading(2)]) == Committed(1, 0)


def test_a_schema_is_locked_by_itself(impatient: SqliteSink, file: Path) -> None:
    within = replace(READINGS, name="bbu.readings")
    impatient.commit(within, [reading(1)])
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert impatient.commit(within, [reading(2)]) == Committed(1, 0)


def test_a_full_disk_takes_rows_when_it_has_room(tmp_path: Path) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    with small_disk(place) as disk:
        if not disk.is_its_own:
            pytest.skip("a disk cannot be mounted here")
        database = SqliteDatabase(disk.directory)
        with closing(open_sink(database.url)) as sink:
            sink.commit(READINGS, [reading(0)])
            disk.fill_up()
            rows = [reading(1, row_number=n, sensor="s" * 1_000) for n in range(10_000)]
            for _ in range(2):
                with pytest.raises(SinkAwayError, match="full"):
                    sink.commit(READINGS, rows)
            disk.free()
            assert identities(database) == ["log-0"]
            assert sink.commit(READINGS, rows) == Committed(10_000, 0)


def test_a_file_that_was_moved_gets_no_more_rows(file: Path) -> None:
    with closing(SqliteSink(file)) as sink:
        sink.commit(READINGS, [reading(1)])
        for suffix in ("", "-wal", "-shm"):
            Path(f"{file}{suffix}").rename(file.parent / f"moved.db{suffix}")
        with pytest.raises(SinkAwayError, match="moved or deleted"):
            sink.commit(READINGS, [reading(2)])
        assert sink.commit(READINGS, [reading(2)]) == Committed(1, 0)
    assert identities(SqliteDatabase(file.parent)) == ["log-2"]
    with closing(sqlite3.connect(file.parent / "moved.db")) as moved:
        found = moved.execute("SELECT message_identity FROM readings").fetchall()
    assert found == [("log-1",)]


def test_a_file_of_something_else_is_unfit(file: Path) -> None:
    file.write_text("This is no database. " * 100)
    with closing(SqliteSink(file)) as sink, pytest.raises(SinkUnfitError, match="not a database"):
        sink.open(READINGS)


def test_a_directory_that_is_not_there_is_unfit(tmp_path: Path) -> None:
    sink = SqliteSink(tmp_path / "no" / "rows.db")
    with pytest.raises(SinkUnfitError, match="there is no directory"):
        sink.open(READINGS)


def test_a_table_that_somebody_dropped_is_said_and_made_anew(file: Path) -> None:
    database = SqliteDatabase(file.parent)
    with closing(SqliteSink(file)) as sink:
        sink.commit(READINGS, [reading(1)])
        database.run("DROP TABLE readings")
        with pytest.raises(SinkUnfitError, match="no such table"):
            sink.commit(READINGS, [reading(2)])
        assert sink.commit(READINGS, [reading(2)]) == Committed(1, 0)


def test_a_commit_is_synced_before_it_returns(file: Path) -> None:
    with closing(SqliteSink(file)) as sink:
        sink.open(replace(READINGS, name="bbu.readings"))
        connection = sink._connection
        assert connection is not None
        for name in ("main", "bbu"):
            assert connection.execute(f"PRAGMA {name}.journal_mode").fetchone() == ("wal",)
            full = 2
            assert connection.execute(f"PRAGMA {name}.synchronous").fetchone() == (full,)


# --- PostgreSQL ---------------------------------------------------------------------------------


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


def test_a_server_that_is_away_takes_rows_when_it_is_back(own_server: PostgresServer) -> None:
    with closing(open_sink(own_server.url())) as sink:
        sink.commit(READINGS, [reading(1)])
        own_server.stop()
        for _ in range(2):
            with pytest.raises(SinkAwayError):
                sink.commit(READINGS, [reading(2)])
        with pytest.raises(SinkAwayError):
            sink.count_attempts(READINGS, ["log-2"])
        own_server.start()
        assert sink.commit(READINGS, [reading(1), reading(2)]) == Committed(1, 1)


def test_a_connection_that_an_operator_ends_is_made_anew(
    postgres_database: PostgresDatabase,
) -> None:
    with closing(open_sink(postgres_database.url)) as sink:
        sink.commit(READINGS, [reading(1)])
        postgres_database.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'holdfast' AND datname = current_database()"
        )
        with pytest.raises(SinkAwayError):
            sink.commit(READINGS, [reading(2)])
        assert sink.commit(READINGS, [reading(2)]) == Committed(1, 0)


def test_a_database_that_only_reads_takes_rows_later(postgres_database: PostgresDatabase) -> None:
    name = postgres_database.url.rpartition("/")[2]
    with closing(open_sink(postgres_database.url)) as sink:
        sink.open(READINGS)
    postgres_database.run(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    sink = open_sink(postgres_database.url)
    with pytest.raises(SinkAwayError, match="read-only"):
        sink.commit(READINGS, [reading(1)])


def test_who_may_write_but_make_nothing_writes_to_what_is_there(
    postgres: PostgresServer, postgres_database: PostgresDatabase
) -> None:
    name = postgres_database.url.rpartition("/")[2]
    postgres_database.run(f"CREATE ROLE {name}_writer LOGIN")
    table = replace(READINGS, name="bbu.readings")
    url = postgres.url(name, user=f"{name}_writer")
    with closing(open_sink(url)) as sink, pytest.raises(SinkUnfitError, match="permission denied"):
        sink.open(table)
    with closing(open_sink(postgres_database.url)) as owner:
        owner.open(table)
    postgres_database.run(f"GRANT USAGE ON SCHEMA bbu TO {name}_writer")
    rights = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA bbu"
    postgres_database.run(f"GRANT {rights} TO {name}_writer")
    with closing(open_sink(url)) as sink:
        assert sink.commit(table, [reading(1)]) == Committed(1, 0)
        assert sink.commit(table, [reading(1), reading(2)]) == Committed(1, 1)
        assert sink.count_attempts(table, ["x"]) == {"x": 1}
        postgres_database.run(f"REVOKE INSERT ON bbu.readings FROM {name}_writer")
        with pytest.raises(SinkUnfitError, match="permission denied"):
            sink.commit(table, [reading(3)])


def test_a_database_that_does_not_sync_commits_syncs_these(
    postgres_database: PostgresDatabase,
) -> None:
    name = postgres_database.url.rpartition("/")[2]
    postgres_database.run(f"ALTER DATABASE {name} SET synchronous_commit = off")
    watched = "create table seen as select current_setting('synchronous_commit') as setting"
    with closing(open_sink(postgres_database.url)) as sink:
        sink.open(READINGS)
        postgres_database.run(
            f"CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN {watched}; RETURN NEW; END $$"
        )
        postgres_database.run(
            "CREATE TRIGGER note AFTER INSERT ON readings"
            " FOR EACH STATEMENT EXECUTE FUNCTION note()"
        )
        sink.commit(READINGS, [reading(1)])
    assert postgres_database.run("SELECT setting FROM seen") == [("on",)]


def test_a_refusal_does_not_say_what_is_in_the_row(postgres_database: PostgresDatabase) -> None:
    with closing(open_sink(postgres_database.url)) as sink:
        sink.open(READINGS)
        postgres_database.run("ALTER TABLE readings ADD CONSTRAINT small CHECK (value < 5)")
        with pytest.raises(RowsRefusedError) as refused:
            sink.commit(READINGS, [reading(99, sensor="a secret")])
    assert "small" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_server_that_was_never_there_is_away_and_no_password_is_said() -> None:
    sink = open_sink("postgresql://somebody:secret@127.0.0.1:1/rows")
    with pytest.raises(SinkAwayError) as away:
        sink.open(READINGS)
    assert "127.0.0.1" in str(away.value)
    assert "secret" not in str(away.value)


# --- addresses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "mysql://secret@host/rows",
        "sqlite://rows.db",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:///rows.db?mode=ro",
        "postgresql://u:secret@[host/rows",
        "postgresql://u:secret@host/rows?secret=1",
        "secret",
    ],
)
def test_an_address_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        open_sink(url)
    assert "secret" not in str(refused.value)


def test_an_address_of_sqlite_is_relative_or_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("sqlite:///here.db", f"sqlite:///{tmp_path}/there.db"):
        with closing(open_sink(url)) as sink:
            sink.open(READINGS)
    assert (tmp_path / "here.db").exists()
    assert (tmp_path / "there.db").exists()
