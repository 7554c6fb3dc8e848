"""The sink of one's own that docs/sinks.md shows keeps what a sink promises."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import ConfigurationError
from holdfast.processors.sink import Committed, RowsRefusedError, Sink, SinkAwayError
from holdfast.processors.sinks import open_sink
from holdfast.processors.table import Column, ColumnType, IdentifiedRow, Table
from tests.interop.processors.databases import AT
from tests.tidy.repository import ROOT

PAGE = ROOT / "docs" / "sinks.md"
READINGS = Table(
    "readings", (Column("sensor", ColumnType.TEXT), Column("moment", ColumnType.TIMESTAMP))
)


def reading(number: int, **row: Any) -> IdentifiedRow:
    return IdentifiedRow(f"log-{number}", 0, {"sensor": "s", "moment": AT, **row})


LINES_MAXIMUM = 30
"""Of code that somebody writes for a database of his own."""


def shown() -> tuple[str, str]:
    """What the page shows: a sink, and one that also counts attempts in its database."""
    first, second = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return first, second


@pytest.fixture
def own_sinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are modules beside the settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name, source in zip(("own_sink", "counting_sink"), shown(), strict=True):
        (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.fixture(params=["own_sink:DuckSink", "counting_sink:CountingDuckSink"])
def sink(own_sinks: None, request: pytest.FixtureRequest) -> Iterator[Sink]:
    del own_sinks
    found = open_sink(request.param)
    found.open(READINGS)
    yield found
    found.close()


def test_a_sink_of_ones_own_is_thirty_lines() -> None:
    sink, _ = shown()
    assert len([line for line in sink.splitlines() if line.strip()]) <= LINES_MAXIMUM


@pytest.mark.parametrize(
    ("name", "second"), [("own_sink:DuckSink", 1), ("counting_sink:CountingDuckSink", 2)]
)
def test_only_what_is_counted_in_the_database_outlives_the_process(
    own_sinks: None, name: str, second: int
) -> None:
    del own_sinks
    for attempt in (1, second):
        sink = open_sink(name)
        sink.open(READINGS)
        assert sink.count_attempts(READINGS, ["log-1"]) == {"log-1": attempt}
        sink.close()


def test_what_is_counted_in_memory_has_a_bound(
    own_sinks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    del own_sinks
    monkeypatch.setattr("holdfast.processors.sink.ATTEMPTS_REMEMBERED_MAXIMUM", 2)
    sink = open_sink("own_sink:DuckSink")
    for name, counted in (("a", 1), ("b", 1), ("a", 2), ("c", 1), ("b", 2), ("a", 1)):
        assert sink.count_attempts(READINGS, [name]) == {name: counted}


def test_each_row_is_there_once(sink: Sink) -> None:
    sink.open(READINGS)
    assert sink.commit(READINGS, [reading(1), reading(2)]) == Committed(2, 0)
    assert sink.commit(READINGS, [reading(2), reading(3), reading(3)]) == Committed(1, 2)


def test_attempts_are_counted_and_forgotten(sink: Sink) -> None:
    assert sink.count_attempts(READINGS, ["log-1", "log-2"]) == {"log-1": 1, "log-2": 1}
    sink.commit(READINGS, [reading(1)])
    assert sink.count_attempts(READINGS, ["log-1", "log-2"]) == {"log-1": 1, "log-2": 2}
    sink.forget_attempts(READINGS, ["log-2"])
    assert sink.count_attempts(READINGS, ["log-2"]) == {"log-2": 1}


def test_rows_and_what_is_known_of_their_messages_are_one_transaction(
    own_sinks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    del own_sinks
    sink = open_sink("counting_sink:CountingDuckSink")
    sink.open(READINGS)
    assert sink.count_attempts(READINGS, ["log-1"]) == {"log-1": 1}
    with monkeypatch.context() as away:
        away.setattr("counting_sink.FORGET", "DELETE FROM nothing WHERE ? = ?")
        with pytest.raises(SinkAwayError):
            sink.commit(READINGS, [reading(1)])
    sink.open(READINGS)
    assert sink.count_attempts(READINGS, ["log-1"]) == {"log-1": 2}
    assert sink.commit(READINGS, [reading(1)]) == Committed(1, 0)
    assert sink.count_attempts(READINGS, ["log-1"]) == {"log-1": 1}
    sink.close()


def test_rows_that_it_cannot_take_are_refused_with_their_batch(sink: Sink) -> None:
    with pytest.raises(RowsRefusedError):
        sink.commit(READINGS, [reading(1), reading(2, moment="yesterday")])
    assert sink.commit(READINGS, [reading(1)]) == Committed(1, 0)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere_at_all:Own", "there is no sink nowhere_at_all:Own"),
        ("holdfast.processors.sink:Nothing", "there is no sink"),
        ("holdfast.processors.sink:Committed", "is not a class of"),
    ],
)
def test_a_sink_that_is_none_is_refused_by_name(name: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        open_sink(name)
