"""One server of PostgreSQL a run, where it is asked for, and a database for each test."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

from holdfast.processors.sink import Sink
from holdfast.processors.sinks import open_sink
from tests.interop.processors.databases import Database, PostgresDatabase, SqliteDatabase
from tests.postgresql import PostgresServer, postgres_server

NUMBERS = count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def postgres_database(postgres: PostgresServer) -> PostgresDatabase:
    name = f"test_{next(NUMBERS)}"
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
    return PostgresDatabase(postgres.url(name))


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """Each test that takes this runs for both."""
    if request.param == "sqlite":
        return SqliteDatabase(tmp_path)
    found = request.getfixturevalue("postgres_database")
    assert isinstance(found, PostgresDatabase)
    return found


@pytest.fixture
def sink(database: Database) -> Iterator[Sink]:
    opened = open_sink(database.url)
    yield opened
    opened.close()
