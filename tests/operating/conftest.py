"""Brokers that a test operates."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.process import BrokerProcess

MakeBroker = Callable[..., BrokerProcess]


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[MakeBroker]:
    """Starts brokers, each in a directory of its own, and ends what is left of them."""
    made: list[BrokerProcess] = []

    def make(
        *arguments: str,
        data_directory: Path | None = None,
        program: list[str] | None = None,
        **settings: object,
    ) -> BrokerProcess:
        directory = tmp_path / f"broker-{len(made)}"
        directory.mkdir()
        made.append(BrokerProcess(directory, *arguments, **settings))
        if data_directory is not None:
            made[-1].data_directory = data_directory
        if program is not None:
            made[-1].program = program
        made[-1].start()
        return made[-1]

    yield make
    for broker in made:
        if broker.is_running():
            broker.kill()
