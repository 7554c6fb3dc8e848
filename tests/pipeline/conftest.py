"""One Spark session a run, a log with something in it, and a broker in a process of its own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.pipeline.session import local_session
from tests.builders.served import served
from tests.builders.stored import Message, store
from tests.process import BrokerProcess
from tests.virtual_machine import quick_start

os.environ.update(quick_start())
QUICK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}
"""Frames of a few rows do not earn back what it costs to compile each plan, nor to plan it again
for each of its stages. As users have it, with both: the command line, clusters and the journey."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    tables = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("tables"))}
    session = local_session("holdfast tests", settings=QUICK | tables)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def messages() -> list[Message]:
    """Reads of four readers, and every tenth on a topic of another kind."""
    return [
        Message(
            topic="other/thing" if number % 10 == 0 else f"zebra/fx/{number % 4}/reads",
            value=f"value {number}".encode(),
            qos=1 + number % 2,
            properties=(("number", str(number)),) if number % 3 == 0 else (),
        )
        for number in range(100)
    ]


@pytest.fixture
def log(tmp_path: Path, messages: list[Message]) -> Path:
    """A data directory that holds `messages`."""
    directory = tmp_path / "data"
    store(directory, messages)
    return directory


@pytest.fixture(params=["dataDir", "broker"])
def source(request: pytest.FixtureRequest, log: Path) -> Iterator[dict[str, str]]:
    """The options that say where to read: each test that takes this runs for both."""
    if request.param == "dataDir":
        yield {"dataDir": str(log)}
    else:
        with served(log) as address:
            yield {"broker": address}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that a test may stop, and start again."""
    running = BrokerProcess(tmp_path, http_port=0)
    running.start()
    yield running
    if running.is_running():
        assert running.stop() == 0, running.log()
