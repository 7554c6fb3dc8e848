"""Every library holds the whole conversation, in each version that it speaks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.driver import Driver
from tests.interop.installation import ROOT
from tests.interop.libraries import LIBRARIES, Library
from tests.interop.scenarios import SCENARIOS, Scenario
from tests.interop.talk import Talk
from tests.process import BrokerProcess

SPOKEN = {3: "v31", 4: "v311", 5: "v5"}


def conversations() -> Iterator[tuple[Library, Scenario, int, str]]:
    """Library by library, so that only one of them works at a time."""
    for library in LIBRARIES:
        for scenario in SCENARIOS:
            if scenario.needs in library.lacks:
                continue
            for version in library.versions:
                newest = version == library.versions[-1]
                if version in scenario.versions and (newest or not scenario.newest_only):
                    yield library, scenario, version, "tcp"


class Drivers:
    """The drivers of this run; each starts when it is first asked for."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started: dict[str, Driver] = {}

    def of(self, library: Library) -> Driver:
        """The library's driver, installed and running."""
        started = self._started.get(library.name)
        if started is None or not started.is_running():
            log_file = self._directory / f"{library.name}.log"
            self._started[library.name] = Driver(library.driver(), ROOT, log_file)
        return self._started[library.name]

    def stop(self) -> None:
        """Ends all that were started."""
        for driver in self._started.values():
            driver.stop()


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    """One process for each library."""
    drivers = Drivers(tmp_path_factory.mktemp("drivers"))
    yield drivers
    drivers.stop()


@pytest.fixture(scope="module")
def mortal_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker for the scenarios that kill it."""
    broker = BrokerProcess(tmp_path_factory.mktemp("mortal"))
    broker.start()
    yield broker
    assert broker.stop() == 0, broker.log()


@pytest.mark.parametrize(
    ("library", "scenario", "version", "transport"),
    [
        pytest.param(*row, id="-".join((row[0].name, SPOKEN[row[2]], row[3], row[1].run.__name__)))
        for row in conversations()
    ],
)
def test_a_library_holds_the_conversation(
    library: Library,
    scenario: Scenario,
    version: int,
    transport: str,
    drivers: Drivers,
    prefix: str,
    request: pytest.FixtureRequest,
) -> None:
    broker = request.getfixturevalue("mortal_broker" if scenario.kills else "shared_broker")
    talk = Talk(
        library,
        drivers.of(library),
        broker,
        version=version,
        transport=transport,
        prefix=prefix,
    )
    try:
        scenario.run(talk)
    finally:
        talk.end()
