"""A broker for all tests of a module, one for a test that stops it, and clients that are tidied
away."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.device import Device
from tests.process import BrokerProcess

NUMBERS = itertools.count(1)

MakeDevice = Callable[..., Device]


@pytest.fixture(scope="module")
def module_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that all tests of a module use."""
    yield from _running(tmp_path_factory.mktemp("broker"))


@pytest.fixture
def shared_broker(module_broker: BrokerProcess) -> Iterator[BrokerProcess]:
    """A broker that many tests use; none may stop it."""
    yield module_broker
    if not module_broker.is_running():
        ended = f"the broker ended:\n{module_broker.log()}"
        module_broker.start()
        raise AssertionError(ended)


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker for one test, which may stop, kill and start it."""
    yield from _running(tmp_path)


def _running(directory: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(directory)
    broker.start()
    yield broker
    if broker.is_running():
        assert broker.stop() == 0, broker.log()


@pytest.fixture
def prefix() -> str:
    """A word that no other test uses, for topics and client identifiers."""
    return f"test{next(NUMBERS)}"


@pytest.fixture(params=[5, 4], ids=["v5", "v311"])
def version(request: pytest.FixtureRequest) -> int:
    """Both protocol versions, for what they have in common."""
    return int(request.param)


@pytest.fixture
def device(shared_broker: BrokerProcess) -> Iterator[MakeDevice]:
    """Makes connected devices at the shared broker."""
    yield from _devices(shared_broker)


@pytest.fixture
def own_device(own_broker: BrokerProcess) -> Iterator[MakeDevice]:
    """Makes connected devices at the test's own broker."""
    yield from _devices(own_broker)


def _devices(broker: BrokerProcess) -> Iterator[MakeDevice]:
    made: list[Device] = []

    def make(name: str, **options: Any) -> Device:
        made.append(Device(broker.port, name, **options))
        return made[-1].connect()

    yield make
    for each in made:
        each.close()
