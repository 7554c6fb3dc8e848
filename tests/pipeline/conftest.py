"""One Spark session a run, and a log with something in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.pipeline.session import local_session
from tests.builders.stored import Message, store

QUICK = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


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
