"""Two brokers, of which the first has a bridge to the second."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.builders.certificates import Authority
from tests.interop.bridge.administered import AdministeredBroker
from tests.interop.bridge.bridged import BridgedBroker
from tests.interop.bridge.secured import SecuredBroker
from tests.interop.device import Device
from tests.process import BrokerProcess

Connect = Callable[..., Device]
MakeBroker = Callable[..., AdministeredBroker]
MakeRemote = Callable[..., SecuredBroker]
AnyBroker = TypeVar("AnyBroker", bound=BrokerProcess)


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[BrokerProcess]:
    """The broker at the other end."""
    (tmp_path / "remote").mkdir()
    broker = BrokerProcess(tmp_path / "remote")
    broker.start()
    yield broker
    if broker.is_running():
        broker.kill()


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Callable[..., BridgedBroker]]:
    """Makes the broker that has bridges."""
    yield from _making(BridgedBroker, tmp_path)


@pytest.fixture
def administered(tmp_path: Path) -> Iterator[MakeBroker]:
    """Makes a broker with these bridges in its configuration."""
    yield from _making(
        lambda path, bridges, **more: AdministeredBroker(path, *bridges, **more), tmp_path
    )


def _making(new: Callable[..., AnyBroker], directory: Path) -> Iterator[Callable[..., AnyBroker]]:
    """Each broker that is made is started, and killed if it runs in the end."""
    made: list[AnyBroker] = []

    def make(*bridges: dict[str, Any], **settings: object) -> AnyBroker:
        broker = new(directory / f"local-{len(made)}", bridges, **settings)
        made.append(broker)
        broker.start()
        return broker

    yield make
    for broker in made:
        if broker.is_running():
            broker.kill()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Signs the certificates of a test."""
    return Authority(tmp_path / "certificates")


@pytest.fixture
def make_remote(tmp_path: Path, authority: Authority) -> Iterator[MakeRemote]:
    """Makes the broker at the other end with every kind of listener."""
    made: list[SecuredBroker] = []

    def make(**settings: object) -> SecuredBroker:
        made.append(SecuredBroker(tmp_path / "remote", authority, **settings))
        made[-1].start()
        return made[-1]

    yield make
    for remote in made:
        if remote.is_running():
            remote.kill()


@pytest.fixture
def client() -> Iterator[Connect]:
    """Connects a client to a broker."""
    made: list[Device] = []

    def connect(broker: BrokerProcess, name: str, **options: Any) -> Device:
        device = Device(broker.port, name, **options).connect()
        made.append(device)
        return device

    yield connect
    for device in made:
        device.close()
