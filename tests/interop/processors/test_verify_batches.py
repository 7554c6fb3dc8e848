"""`holdfast verify batches`: the decision record's analysis of rows whose figures are known."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.cli import main
from holdfast.cli.verify_command import bar
from holdfast.processors.sinks import open_sink
from holdfast.processors.table import IdentifiedRow
from holdfast.processors.zebra import ZebraRfid
from tests.interop.processors.databases import Database, PostgresDatabase

ZEBRA = ZebraRfid.table
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def fill(database: Database, seconds: Sequence[tuple[datetime, Sequence[datetime]]]) -> None:
    """Rows that were committed at these times, of events at those."""
    sink = open_sink(database.url)
    for second, (arrived, events) in enumerate(seconds):
        rows = [
            IdentifiedRow(
                f"{second} {number}",
                0,
                {
                    "event_timestamp_utc": at,
                    "kind": "read",
                    "reader": f"FX-{second}",
                    "event_number": number,
                },
            )
            for number, at in enumerate(events)
        ]
        sink.commit(ZEBRA, rows)
        # A quarter of a second into it, and three quarters.
        for share, odd in ((250_000, 0), (750_000, 1)):
            at = (arrived + timedelta(microseconds=share)).isoformat(timespec="microseconds")
            database.run(
                f"UPDATE bbu.tag_read_processings SET created_at_utc = '{at[:-6]}Z'"
                f" WHERE reader = 'FX-{second}' AND event_number % 2 = {odd}"
            )
    sink.close()


def spread(count: int, over_s: float, start: datetime) -> list[datetime]:
    """So many events, the first at `start`, the last so much later."""
    return [start + timedelta(seconds=over_s * number / (count - 1)) for number in range(count)]


def known(database: Database) -> list[dict[str, Any]]:
    """A processor was away from 12:00 to 12:10, and later all was well. The figures by hand."""
    live = NOON + timedelta(hours=1)
    back = NOON + timedelta(minutes=10, seconds=2)
    fill(
        database,
        [
            (back, spread(40, 599.5, NOON)),
            (back + timedelta(seconds=1), spread(11, 0.5, back)),
            (live, spread(20, 0.75, live)),
            # Ten are not more than ten.
            (live + timedelta(seconds=5), spread(10, 300, NOON)),
        ],
    )
    return [
        row("2026-03-01T13:00:00Z", 20, "13:00:00.000", "13:00:00.750", 0.75),
        row("2026-03-01T12:10:03Z", 11, "12:10:02.000", "12:10:02.500", 0.5),
        row("2026-03-01T12:10:02Z", 40, "12:00:00.000", "12:09:59.500", 599.5),
    ]


def row(time: str, size: int, earliest: str, latest: str, span: float) -> dict[str, Any]:
    return {
        "batch_time": time,
        "batch_size": size,
        "earliest_event": f"2026-03-01T{earliest}Z",
        "latest_event": f"2026-03-01T{latest}Z",
        "event_span_seconds": span,
    }


@pytest.mark.accepts("S3.60")
def test_the_analysis_has_the_figures_that_were_counted_by_hand(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = known(database)
    assert main(["verify", "batches", database.url, "--json"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == expected


def test_it_is_printed_and_drawn(
    database: Database, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    known(database)
    page = tmp_path / "page.html"
    assert main(["verify", "batches", database.url, "--html", str(page)]) == 0
    heading, *lines, verdict = capsys.readouterr().out.splitlines()
    names = "batch_time batch_size earliest_event latest_event event_span_seconds"
    assert heading.split() == names.split()
    assert [line.split()[1] for line in lines] == ["20", "11", "40"]
    assert lines[2].endswith(" 599.5  " + "█" * 30)
    assert lines[0].endswith(" 0.75  ▏")
    said = "1 of 3 seconds brought events that are more than 60 s apart: their 40 rows had waited."
    assert verdict == said
    drawn = page.read_text()
    assert said in drawn
    assert 'style="width:100.0%"' in drawn
    assert drawn.count("<tr>") == 4


RECORDS_OWN = """
SELECT
DATE_TRUNC('second', created_at_utc) as batch_time,
COUNT(*) as batch_size,
MIN(event_timestamp_utc) as earliest_event,
MAX(event_timestamp_utc) as latest_event,
EXTRACT(EPOCH FROM (MAX(event_timestamp_utc) - MIN(event_timestamp_utc))) as event_span_seconds
FROM bbu.tag_read_processings
GROUP BY DATE_TRUNC('second', created_at_utc)
HAVING COUNT(*) > 10
ORDER BY batch_time DESC
LIMIT 20;
"""


@pytest.mark.accepts("S3.60")
def test_the_records_own_query_says_the_same(postgres_database: PostgresDatabase) -> None:
    expected = known(postgres_database)
    with psycopg.connect(postgres_database.url) as connection:
        found = connection.execute(RECORDS_OWN).fetchall()
    said = [
        (datetime.fromisoformat(each["batch_time"]), each["batch_size"], each["event_span_seconds"])
        for each in expected
    ]
    assert [(time, size, float(span)) for time, size, _, _, span in found] == said


def test_it_shows_the_newest_twenty(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    seconds = [NOON + timedelta(seconds=number) for number in range(22)]
    fill(database, [(at, [at] * 1 + spread(11, 1, at)[1:]) for at in seconds])
    assert main(["verify", "batches", database.url, "--json"]) == 0
    found = [json.loads(line)["batch_time"] for line in capsys.readouterr().out.splitlines()]
    assert found == [f"2026-03-01T12:00:{second:02}Z" for second in range(21, 1, -1)]
    options = ["--limit", "2", "--more-than", "11"]
    assert main(["verify", "batches", database.url, *options]) == 0
    assert capsys.readouterr().out == "No second brought more than 11 rows.\n"


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--table", "bbu.others"], 1, "others"),
        (["--event-column", "elsewhere"], 1, "elsewhere"),
        (["--table", 'x"; drop'], 2, "cannot be the name"),
    ],
)
def test_what_is_not_there_is_said_in_a_sentence(
    database: Database,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    code: int,
    said: str,
) -> None:
    fill(database, [])
    sink = open_sink(database.url)
    sink.open(ZEBRA)
    sink.close()
    assert main(["verify", "batches", database.url, *options]) == code
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


def test_a_database_that_is_not_there_is_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", "batches", f"sqlite:///{tmp_path}/none.db"]) == 1
    assert "there is no database" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert main(["verify", "batches", "postgresql://u:secret@127.0.0.1:1/none"]) == 1
    assert "secret" not in capsys.readouterr().err


def test_a_bar_is_as_long_as_its_share() -> None:
    assert bar(0, 8) == ""
    assert bar(8, 8) == "█" * 30
    assert bar(4, 8) == "█" * 15
    assert bar(1, 24) == "█▎"
    assert bar(0.001, 8) == "▏"
