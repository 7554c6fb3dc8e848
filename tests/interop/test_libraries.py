"""Every library holds the whole conversation, in each version that it speaks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.driver import Driver
from tests.interop.installation import ROOT
from tests.interop.libraries import LIBRARIES, Library
from tests.interop.scenarios import SCENARIOS, Scenario
from tests.interop.talk import Listener, Talk
from tests.process import BrokerProcess

SPOKEN = {3: "v31", 4: "v311", 5: "v5"}


def conversations() -> Iterator[tuple[Library, Scenario, int, str]]:
    """Library by library, so that only one of them works at a time."""
    for library in LIBRARIES:
        newest = library.versions[-1]
        for scenario in SCENARIOS:
            if scenario.needs in library.lacks:
                continue
            for version in library.versions:
                if version not in scenario.versions:
                    continue
                if version == newest or not scenario.newest_only:
                    yield library, scenario, version, "tcp"
                if scenario.over_websocket and version in library.over_websocket:
                    yield library, scenario, version, "ws"
                    if version == newest:
                        yield library, scenario, version, "http"


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


class Brokers:
    """A broker that nobody ends, on every listener that the libraries use, and one to be killed."""

    def __init__(self, directory: Path) -> None:
        self.lasting = BrokerProcess(directory / "lasting", http_port=0, ws_port=0)
        self.mortal = BrokerProcess(directory / "mortal")
        for broker in (self.lasting, self.mortal):
            broker.log_file.parent.mkdir()
            broker.start()
        self._listeners = {
            "tcp": Listener("tcp", self.lasting.port),
            "ws": Listener("ws", self.lasting.ports["ws"]),
            "http": Listener("ws", self.lasting.http_port),
        }

    def meet(self, name: str, *, kills: bool) -> tuple[BrokerProcess, Listener]:
        """The broker for a scenario, and where it listens."""
        if kills:
            return self.mortal, Listener("tcp", self.mortal.port)
        return self.lasting, self._listeners[name]

    def stop(self) -> None:
        """Ends both, cleanly."""
        for broker in (self.lasting, self.mortal):
            assert broker.stop() == 0, broker.log()


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """The brokers of all conversations."""
    brokers = Brokers(tmp_path_factory.mktemp("brokers"))
    yield brokers
    brokers.stop()


@pytest.mark.parametrize(
    ("library", "scenario", "version", "listener"),
    [
        pytest.param(*row, id="-".join((row[0].name, SPOKEN[row[2]], row[3], row[1].run.__name__)))
        for row in conversations()
    ],
)
def test_a_library_holds_the_conversation(
    library: Library,
    scenario: Scenario,
    version: int,
    listener: str,
    drivers: Drivers,
    brokers: Brokers,
    prefix: str,
) -> None:
    broker, meeting_point = brokers.meet(listener, kills=scenario.kills)
    driver = drivers.of(library)
    with Talk(
        library, driver, broker, version=version, listener=meeting_point, prefix=prefix
    ) as talk:
        scenario.run(talk)
    assert broker.is_running(), broker.log()
