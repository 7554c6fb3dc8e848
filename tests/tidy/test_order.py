"""The order of the files: what takes minutes is begun first, so that no worker waits for it."""

from tests.conftest import BEGUN_FIRST, TESTS, turn
from tests.tidy.repository import ROOT


def test_files_that_take_minutes_are_begun_first() -> None:
    files = sorted(TESTS.rglob("test_*.py"), key=turn)
    assert [file.parent for file in files[:3]] == [
        TESTS / "journey",
        *[TESTS / "pipeline" / "cluster"] * 2,
    ]
    assert turn(files[-1]) == len(BEGUN_FIRST)
    assert all((TESTS / folder).is_dir() for folder in BEGUN_FIRST)


def test_workers_take_files_in_their_order() -> None:
    assert "--no-loadscope-reorder" in (ROOT / "Makefile").read_text()
