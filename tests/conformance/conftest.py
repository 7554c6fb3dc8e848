"""A broker for all tests of a module, in virtual time and in a process of its own, and clients that
are tidied away."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.conformance.brokers import ProcessBroker, VirtualBroker
from tests.conformance.peer import Broker, Peer

NUMBERS = itertools.count(1)

Join = Callable[..., Peer]


@pytest.fixture(scope="session")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessBroker]:
    """One broker on real sockets."""
    broker = ProcessBroker(tmp_path_factory.mktemp("conformance"))
    yield broker
    broker.stop()


@pytest.fixture(scope="module", params=["virtual", "process"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """The broker under test, which many tests use: once in virtual time, once on real sockets."""
    if request.param == "process":
        yield request.getfixturevalue("process")
        return
    broker = VirtualBroker()
    yield broker
    broker.close()


@pytest.fixture
def own_broker() -> Iterator[VirtualBroker]:
    """A broker in virtual time for one test, which may move its clock, stop it and start it."""
    broker = VirtualBroker()
    yield broker
    broker.close()


@pytest.fixture
def name() -> str:
    """A word that no other test uses, for topics and client identifiers."""
    return f"t{next(NUMBERS)}"


@pytest.fixture(params=[5, 4, 3], ids=["v5", "v311", "v31"])
def version(request: pytest.FixtureRequest) -> int:
    """Every protocol version, for what they have in common."""
    return int(request.param)


@pytest.fixture
def peer(broker: Broker) -> Iterator[Join]:
    """Makes connections to the broker, without CONNECT."""
    yield from _peers(broker)


@pytest.fixture
def own_peer(own_broker: VirtualBroker) -> Iterator[Join]:
    """Makes connections to the test's own broker, without CONNECT."""
    yield from _peers(own_broker)


def _peers(broker: Broker) -> Iterator[Join]:
    made: list[Peer] = []

    def make(version: int = 5) -> Peer:
        made.append(Peer(broker, version))
        return made[-1]

    yield make
    for each in made:
        each.close()
