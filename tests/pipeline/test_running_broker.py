"""From an MQTT client, through a broker that is killed, into Spark: the same rows by every way."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadMaxRows

from holdfast import system
from holdfast.client.http import HttpClient
from holdfast.pipeline.source.columns import read_schema
from holdfast.pipeline.source.options import parse_options
from holdfast.pipeline.source.stream import StreamReader
from tests.interop.device import Device
from tests.interop.seen import Seen
from tests.interop.wire import Wire
from tests.process import HOST, BrokerProcess


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
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    by_broker = {"broker": broker.http_address}
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
    broker.start()
    publish(broker, "eight", after, version=4)
    assert sorted(taken(spark, by_broker, tmp_path / "a")) == sorted(after)
    assert sorted(taken(spark, by_directory, tmp_path / "b")) == sorted(after)


def test_a_reader_reads_with_its_password_which_no_plan_shows(
    tmp_path: Path, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    broker = BrokerProcess(tmp_path, http_port=0)
    broker.start()
    publish(broker, "7", [b"one", b"two"], version=5)
    running = HttpClient.on(broker.data_directory)
    for name, reader in (("spark", True), ("gate", False)):
        running.post("/v1/users", {"name": name, "password": "open sesame", "reader": reader})
    where = {"broker": broker.http_address}
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


def test_a_stream_goes_on_after_the_broker_was_killed(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    found: list[bytes] = []
    stream = spark.readStream.format("holdfast").options(
        broker=broker.http_address, subscribe="zebra/#", startingOffsets="earliest"
    )
    query = (
        stream.load()
        .writeStream.foreachBatch(
            lambda batch, _: found.extend(bytes(row["value"]) for row in batch.collect())
        )
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        payloads = [b"%d" % number for number in range(300)]
        for part in (payloads[:100], payloads[100:200], payloads[200:]):
            publish(broker, "seven", part, version=5)
            broker.kill()
            threading.Event().wait(1)
            assert query.isActive
            broker.start()
        query.processAllAvailable()
        assert sorted(found) == sorted(payloads)
    finally:
        query.stop()


def test_what_a_query_waits_for_is_in_its_progress(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    publish(broker, "seven", [b"one"], version=5)
    options = parse_options({"broker": broker.http_address, "subscribe": "#"})
    reader = StreamReader(options, read_schema(options.columns))
    begin = {**reader.initialOffset(), "o": 0}
    end = reader.latestOffset(begin, ReadMaxRows(10))
    assert (end["o"], reader.reportLatestOffset()["lagMessages"]) == (1, 0)
    assert "waitingFor" not in reader.reportLatestOffset()
    broker.kill()
    assert reader.latestOffset(end, ReadMaxRows(10)) == end
    assert "does not answer" in reader.reportLatestOffset()["waitingFor"]
    broker.start()
    assert reader.latestOffset(end, ReadMaxRows(10)) == end
    assert "waitingFor" not in reader.reportLatestOffset()


def test_lag_is_told_by_the_clock_of_the_broker(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(broker, "seven", [b"one", b"two"], version=5)
    options = parse_options({"broker": broker.http_address, "subscribe": "#"})
    hour_us, right_us = 3_600_000_000, system.now_us
    for wrong_us in (-hour_us, hour_us):
        monkeypatch.setattr(system, "now_us", lambda by=wrong_us: right_us() + by)
        reader = StreamReader(options, read_schema(options.columns))
        reader.latestOffset({**reader.initialOffset(), "o": 0}, ReadMaxRows(1))
        assert 0 < reader.reportLatestOffset()["lagSeconds"] < 600


def test_a_connection_that_is_cut_in_a_batch_costs_nothing(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    publish(broker, "seven", [b"x" * 10_000] * 400, version=5)
    with cutting((HOST, broker.http_port), after_bytes=1 << 20) as (address, cuts):
        options = {"broker": address, "subscribe": "#", "columns": "offset,value"}
        rows = spark.read.format("holdfast").options(**options).load()
        assert sorted(row["offset"] for row in rows.collect()) == list(range(400))
        assert cuts() == 1


@contextlib.contextmanager
def cutting(
    target: tuple[str, int], *, after_bytes: int
) -> Iterator[tuple[str, Callable[[], int]]]:
    """A proxy that cuts a connection once, when so much of an answer has passed."""
    cuts: list[int] = []
    listener = socket.create_server((HOST, 0))

    def serve(client: socket.socket) -> None:
        with client, socket.create_connection(target) as server:
            threading.Thread(target=forward, args=[client, server], daemon=True).start()
            passed = 0
            while data := server.recv(65_536):
                passed += len(data)
                if passed > after_bytes and not cuts:
                    cuts.append(passed)
                    # close() says nothing to the peer while a thread waits for its bytes.
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(data)

    def forward(client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65_536):
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=serve, args=[client], daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"{HOST}:{listener.getsockname()[1]}", lambda: len(cuts)
    finally:
        listener.close()


def test_a_named_queue_is_read_as_it_shows_itself(spark: SparkSession, tmp_path: Path) -> None:
    broker = Seen(tmp_path, application_user_names="app")
    broker.start()
    where = {"broker": broker.http_address}
    publish(broker, "before", [b"0"], version=5)
    with Wire(broker.port) as wire, Wire(broker.port) as other:
        wire.connect("one", user_name="app")
        other.connect("two", user_name="app")
        assert wire.subscribe("zebra/fx/a/#") == [1]
        publish(broker, "a", [b"1", b"2"], version=5)
        publish(broker, "b", [b"3"], version=5)
        everything = [b"0", b"1", b"2", b"3"]
        for name, expected in (("app.one", [b"1", b"2"]), ("app.two", []), ("all", everything)):
            queue = spark.read.format("holdfast").options(queue=f"tbmq.msg.{name}", **where)
            # A filter that the broker obeys narrows what the queue shows.
            both = queue.load(), queue.option("pushdown", "true").load().where("offset >= 0")
            for shown in both:
                assert sorted(bytes(row["value"]) for row in shown.collect()) == expected, name
        nobody = spark.read.format("holdfast").options(queue="tbmq.msg.app.no", **where).load()
        with pytest.raises(Exception, match="no queue has the name"):
            nobody.count()
    assert broker.stop() == 0
