"""What holds for every test: Hypothesis profiles, numbered behaviours that exist, the order, and a
supervisor."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from holdfast import system
from tests.supervisor import Supervisor

TESTS = Path(__file__).parent
ACCEPTANCE = TESTS.parent / "docs" / "acceptance.md"
BEGUN_FIRST = ("journey", "pipeline/cluster", "pipeline", "crash", "operating", "interop", "soak")
"""Folders whose files take minutes, the longest first: a worker that begins one of them last lets
the others wait for it."""

# `fast` while writing, `ci` for each change, `thorough` for a night. A failure prints the blob that
# repeats it.
settings.register_profile("fast", max_examples=30, deadline=None, print_blob=True)
settings.register_profile("ci", max_examples=100, deadline=None, print_blob=True)
settings.register_profile(
    "thorough",
    max_examples=5_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
ENVIRONMENT = system.environment()
settings.load_profile(
    ENVIRONMENT.get("HYPOTHESIS_PROFILE", "ci" if "CI" in ENVIRONMENT else "fast")
)


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    """It is told of each step of the brokers that are started from now on."""
    hearing = Supervisor()
    monkeypatch.setenv("NOTIFY_SOCKET", hearing.address)
    yield hearing
    hearing.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuses marks that name no behaviour, and puts long files first."""
    refuse_unknown_behaviours(items)
    items.sort(key=lambda item: turn(item.path))


def turn(file: Path) -> int:
    """When a file's turn comes: workers begin with the lowest."""
    folder = file.relative_to(TESTS).parent
    for number, first in enumerate(BEGUN_FIRST):
        if folder.is_relative_to(first):
            return number
    return len(BEGUN_FIRST)


def refuse_unknown_behaviours(items: list[pytest.Item]) -> None:
    """A test that names a behaviour which is not in the list would count for nothing."""
    known = set(re.findall(r"^- \*\*(S\d+\.\d+)\*\*", ACCEPTANCE.read_text(), re.MULTILINE))
    for item in items:
        for mark in item.iter_markers("accepts"):
            unknown = [number for number in mark.args if number not in known]
            if unknown or not mark.args:
                raise pytest.UsageError(
                    f"{item.nodeid}: accepts{mark.args}: not in docs/acceptance.md"
                )
