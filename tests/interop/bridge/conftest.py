"""Two brokers, of which the first has a bridge to the second."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.bridge.bridged import BridgedBroker
from tests.interop.device import Device
from tests.process import BrokerProcess

Connect = Callable[..., Device]


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
    made: list[BridgedBroker] = []

    def make(*bridges: dict[str, Any], **settings: object) -> BridgedBroker:
        broker = BridgedBroker(tmp_path / f"local-{len(made)}", bridges, **settings)
        made.append(broker)
        broker.start()
        return broker

    yield make
    for broker in made:
        if broker.is_running():
            broker.kill()


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
