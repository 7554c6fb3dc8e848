"""Kill -9 while rows are committed: of the writer, of several at once, and of the database."""

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import pytest

from holdfast.processors.sink import Sink
from tests.interop.processors.databases import READINGS, Database, PostgresDatabase
from tests.interop.processors.writer import ROWS
from tests.postgresql import PostgresServer, postgres_server

ENDLESS = 1_000_000
ROUNDS = 4


@contextmanager
def writer(database: Database, first: int, last: int = ENDLESS) -> Iterator[subprocess.Popen[str]]:
    """A writer of its own process; it is dead when this is left."""
    command = [sys.executable, "-m", "tests.interop.processors.writer", database.url]
    process = subprocess.Popen([*command, str(first), str(last)], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def said(process: subprocess.Popen[str], count: int | None = None) -> list[str]:
    """The next lines of a writer, or all that are left."""
    assert process.stdout is not None
    return [line.strip() for line in islice(process.stdout, count)]


def batches(database: Database) -> dict[int, int]:
    """How many rows of each batch there are."""
    found = database.run("SELECT message_identity, count(*) FROM readings GROUP BY 1")
    return {int(identity.removeprefix("log-")): rows for identity, rows in found}


def test_what_a_killed_writer_has_said_is_there_and_each_batch_is_whole(
    sink: Sink, database: Database
) -> None:
    sink.open(READINGS)
    draw = random.Random(seed := 7)
    first = 0
    for _ in range(ROUNDS):
        with writer(database, first) as process:
            committed = said(process, draw.randint(1, 30))
            process.kill()
            committed += said(process)
        there = batches(database)
        assert set(there.values()) == {ROWS}, seed
        assert [int(each) for each in committed] == list(range(first, first + len(committed)))
        # One more than was said may be there, and comes again as repeats.
        assert sorted(there) in (list(range(max(there) + 1)),)
        assert max(there) - int(committed[-1]) in (0, 1)
        first = int(committed[-1]) + 1


def test_writers_of_the_same_rows_write_each_once(database: Database) -> None:
    # None of them finds a table: who comes first makes it.
    with (
        writer(database, 0, 40) as one,
        writer(database, 0, 40) as other,
        writer(database, 20, 60) as third,
    ):
        for each in (one, other, third):
            said(each)
            assert each.wait() == 0
    assert batches(database) == dict.fromkeys(range(60), ROWS)


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


def test_a_database_that_is_killed_in_a_commit_has_every_row_once(
    own_server: PostgresServer,
) -> None:
    database = PostgresDatabase(own_server.url())
    draw = random.Random(11)
    # It goes on for as long as it is let: on a quick disk it is far ahead of what is read here.
    with writer(database, 0) as process:
        lines = []
        for _ in range(ROUNDS):
            lines += said(process, draw.randint(5, 30))
            own_server.stop("immediate")
            while lines[-1] != "away":
                lines += said(process, 1)
                assert process.poll() is None, "the writer has given up"
            own_server.start()
        lines += said(process, 30)
        process.kill()
        lines += said(process)
    committed = [int(line) for line in lines if line != "away"]
    assert committed == list(range(len(committed)))
    there = batches(database)
    assert sorted(there) == list(range(max(there) + 1))
    assert max(there) - committed[-1] in (0, 1)
    assert set(there.values()) == {ROWS}
