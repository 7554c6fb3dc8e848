"""What is measured of bridges is kept, and told with its steps."""

from pathlib import Path

import pytest

from bench.bridge import result
from bench.bridge.result import Result
from bench.macro import page
from bench.pipeline.result import Measured

CARRIED = Measured("carried", "messages/s", 500_000.0, "one broker", 1_000_000.0, at_least=0.6)
SPENT = Measured("spent", "ns", 1_260.0, "a delivery", 1_000.0, at_most_times=1.3)


def run(lines: dict[str, list[Measured]], commit: str = "abc") -> Result:
    return Result(
        date="2026-01-02T03:04",
        commit=commit,
        machine={},
        repetitions=3,
        seconds=2.0,
        load_average=0.5,
        lines=lines,
    )


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(result, "DIRECTORY", tmp_path)
    return tmp_path


def test_the_newest_run_reads_back_as_it_was_written() -> None:
    assert result.newest() is None
    whole = run({"qos-1": [CARRIED], "processor": [SPENT]})
    run({"qos-1": [SPENT]}).write()
    whole.write()
    assert result.newest() == whole


def test_a_part_of_the_lines_is_not_taken_for_a_run(directory: Path) -> None:
    run({"qos-1": [CARRIED]}).write(directory / result.PARTIAL.name)
    assert result.newest() is None


def test_lines_that_are_measured_again_take_the_place_of_their_own_and_say_so() -> None:
    again = run({"qos-1": [SPENT]}, "def")
    both = run({"qos-1": [CARRIED], "processor": [SPENT]}).with_lines_of(again)
    assert both.lines == {"qos-1": [SPENT], "processor": [SPENT]}
    assert (both.commit, both.again) == ("abc", {"qos-1": "def"})


def test_the_page_has_each_figure_beside_its_step() -> None:
    assert page._told(page.BRIDGE, result.newest()) == ""
    run({"qos-1": [CARRIED], "processor": [SPENT]}).write()
    told = page._told(page.BRIDGE, result.newest())
    assert "2026-01-02 03:04 UTC at commit abc" in told
    carried = "| carried | 0.50 M messages/s | 1.00 M (one broker) | 0.50 | at least 0.6 | no |"
    spent = "| spent | 1,260 ns | 1,000 (a delivery) | 1.26 | at most 1.3 | yes |"
    assert f"{carried}\n{spent}\n" in told
