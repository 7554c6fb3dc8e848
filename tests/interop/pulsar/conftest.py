"""A broker with Pulsar's listener for all tests of a module, and clients that are tidied away."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop import installation
from tests.interop.driver import Driver
from tests.interop.installation import ROOT
from tests.interop.pulsar.official import Official
from tests.interop.seen import Seen
from tests.process import BrokerProcess

MakeClient = Callable[..., Official]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Pulsar's own client, in a process for all tests of a module."""
    log_file = tmp_path_factory.mktemp("pulsar") / "client.log"
    driver = Driver(installation.python("pulsar"), ROOT, log_file)
    yield driver
    driver.stop()


@pytest.fixture(scope="module")
def module_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """A broker that all tests of a module use."""
    yield from _running(tmp_path_factory.mktemp("broker"))


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Seen]:
    """A broker for one test, which may stop, kill and start it."""
    yield from _running(tmp_path)


@pytest.fixture
def client(library: Driver, shared_broker: BrokerProcess) -> Iterator[MakeClient]:
    """Makes clients of the shared broker."""
    yield from _clients(library, shared_broker)


@pytest.fixture
def own_client(library: Driver, own_broker: BrokerProcess) -> Iterator[MakeClient]:
    """Makes clients of the test's own broker."""
    yield from _clients(library, own_broker)


def _running(directory: Path) -> Iterator[Seen]:
    broker = Seen(directory, pulsar_port=0)
    broker.start()
    yield broker
    if broker.is_running():
        assert broker.stop() == 0, broker.log()


def _clients(library: Driver, broker: BrokerProcess) -> Iterator[MakeClient]:
    made: list[Official] = []

    def make(**options: Any) -> Official:
        made.append(Official(library).connect(broker.ports["pulsar"], **options))
        return made[-1]

    yield make
    for each in made:
        each.disconnect()
