"""From an MQTT client, through a broker that is killed, into Spark: the same rows by every way."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from holdfast.client.http import HttpClient
from tests.interop.device import Device
from tests.process import HOST, BrokerProcess, free_port


@pytest.fixture
def http_port() -> int:
    return free_port()


@pytest.fixture
def broker(tmp_path: Path, http_port: int) -> Iterator[BrokerProcess]:
    running = BrokerProcess(tmp_path, http_port=http_port)
    start(running, http_port)
    yield running
    if running.is_running():
        assert running.stop() == 0, running.log()


def start(broker: BrokerProcess, http_port: int) -> None:
    """Returns when it serves MQTT, and HTTP, which it opens last."""
    broker.start()
    for _ in range(1000):
        with contextlib.suppress(OSError), socket.create_connection((HOST, http_port), 1):
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"no HTTP:\n{broker.log()}")


def publish(broker: BrokerProcess, name: str, payloads: list[bytes], *, version: int) -> None:
    """Returns when each message is acknowledged: half of them at QoS 1, half at QoS 2."""
    device = Device(broker.port, name, version=version).connect()
    try:
        device.publish_all(f"zebra/fx/{name}/reads", payloads[::2], qos=1)
        device.publish_all(f"zebra/fx/{name}/reads", payloads[1::2], qos=2)
    finally:
        device.close()


def load(spark: SparkSession, where: dict[str, str]) -> DataFrame:
    return spark.read.format("holdfast").options(subscribe="zebra/fx/+/reads", **where).load()


def taken(spark: SparkSession, where: dict[str, str], checkpoint: Path) -> list[bytes]:
    """The payloads that an available-now run takes."""
    found: list[bytes] = []
    stream = (
        spark.readStream.format("holdfast")
        .options(subscribe="zebra/fx/+/reads", startingOffsets="earliest", **where)
        .load()
    )
    query = (
        stream.writeStream.foreachBatch(
            lambda batch, _: found.extend(bytes(row["value"]) for row in batch.collect())
        )
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return found


def test_what_was_acknowledged_is_in_spark_once_across_a_kill(
    spark: SparkSession, broker: BrokerProcess, http_port: int, tmp_path: Path
) -> None:
    by_broker = {"broker": f"{HOST}:{http_port}"}
    by_directory = {"dataDir": str(broker.data_directory)}
    before = [b"before %d" % number for number in range(200)]
    after = [b"after %d" % number for number in range(100)]

    publish(broker, "seven", before, version=5)
    rows = load(spark, by_broker).collect()
    assert sorted(bytes(row["value"]) for row in rows) == sorted(before)
    assert {(row["topic"], row["qos"]) for row in rows} == {
        ("zebra/fx/seven/reads", 1),
        ("zebra/fx/seven/reads", 2),
    }
    assert sorted(load(spark, by_directory).collect()) == sorted(rows)
    assert sorted(taken(spark, by_broker, tmp_path / "a")) == sorted(before)
    assert sorted(taken(spark, by_directory, tmp_path / "b")) == sorted(before)

    broker.kill()
    assert sorted(load(spark, by_directory).collect()) == sorted(rows)
    start(broker, http_port)
    publish(broker, "eight", after, version=4)
    assert sorted(taken(spark, by_broker, tmp_path / "a")) == sorted(after)
    assert sorted(taken(spark, by_directory, tmp_path / "b")) == sorted(after)


def test_a_reader_reads_with_its_password_which_no_plan_shows(
    tmp_path: Path, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    broker = BrokerProcess(tmp_path, http_port=port)
    start(broker, port)
    publish(broker, "7", [b"one", b"two"], version=5)
    running = HttpClient.on(broker.data_directory)
    for name, reader in (("spark", True), ("gate", False)):
        running.post("/v1/users", {"name": name, "password": "open sesame", "reader": reader})
    where = {"broker": f"{HOST}:{port}"}
    as_reader = {**where, "user": "spark", "password": "open sesame"}
    rows = load(spark, as_reader)
    assert {bytes(row["value"]) for row in rows.collect()} == {b"one", b"two"}
    rows.explain("extended")
    printed = "".join(capfd.readouterr())
    assert "Physical Plan" in printed
    assert "sesame" not in printed
    for wrong in (where, {**as_reader, "user": "gate"}, {**as_reader, "password": "sesame"}):
        with pytest.raises(Exception, match="a user who may read the log") as refused:
            load(spark, wrong).collect()
        assert "sesame" not in str(refused.value)
    assert "sesame" not in broker.log()
    assert broker.stop() == 0
