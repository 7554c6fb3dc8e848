"""The sink of one's own that docs/sinks.md shows keeps what a sink promises."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import ConfigurationError
from holdfast.processors.sink import Committed, RowsRefusedError, Sink
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


@pytest.fixture
def sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sink]:
    monkeypatch.chdir(tmp_path)
    (shown,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "own_sink.py").write_text(shown)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_sink", raising=False)
    found = open_sink("own_sink:DuckSink")
    found.open(READINGS)
    yield found
    found.close()


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
