"""The metrics of all queries of an application, as Prometheus reads them."""

import http.client
import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import StreamingQueryException

from holdfast.pipeline.metrics import METRICS, QueryMetrics


def wait_for(holds: Callable[[], bool]) -> None:
    """Listeners hear of a query's end a moment later."""
    for _ in range(2_000):
        if holds():
            return
        threading.Event().wait(0.01)
    raise AssertionError("never")


def values(text: str, query: str) -> dict[str, float]:
    found = re.findall(rf'^holdfast_query_(\w+)\{{query="{query}"\}} (\S+)$', text, re.MULTILINE)
    return {name: float(value) for name, value in found}


def test_numbers_have_all_of_their_digits_and_names_the_escapes_of_prometheus() -> None:
    name, metrics = 'Lager "Süd"\t\\7\n', QueryMetrics()
    progress = SimpleNamespace(
        name=name,
        id="",
        numInputRows=12_345_678,
        batchId=0,
        batchDuration=1_234_567_891,
        processedRowsPerSecond=10.5,
        sources=[SimpleNamespace(latestOffset='{"lagMessages": 1234567, "waitingFor": "it"}')],
    )
    metrics.onQueryProgress(SimpleNamespace(progress=progress))  # type: ignore[arg-type]
    lines = metrics.text().splitlines()
    query = r'{query="Lager \"Süd\"' + "\t" + r'\\7\n"}'
    for said in (
        f"rows_total{query} 12345678",
        f"lag_messages{query} 1234567",
        f"batch_seconds{query} 1234567.891",
        f"rows_per_second{query} 10.5",
        f"waiting{query} 1",
    ):
        assert f"holdfast_query_{said}" in lines


def test_a_query_is_seen_from_its_start_to_its_failure(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    metrics = QueryMetrics()
    spark.streams.addListener(metrics)
    try:
        for name, fails in (("good", False), ("bad", True)):
            stream = spark.readStream.format("holdfast").options(
                dataDir=str(log),
                subscribe="#",
                startingOffsets="earliest",
                maxOffsetsPerTrigger=40,
            )

            def take(batch: DataFrame, batch_id: int, *, fails: bool = fails) -> None:
                batch.count()
                if fails and batch_id == 1:
                    raise RuntimeError("on purpose")

            query = (
                stream.load()
                .writeStream.queryName(name)
                .foreachBatch(take)
                .option("checkpointLocation", str(tmp_path / name))
                .trigger(availableNow=True)
                .start()
            )
            if fails:
                with pytest.raises(StreamingQueryException):
                    query.awaitTermination()
            else:
                query.awaitTermination()
        wait_for(lambda: values(metrics.text(), "bad").get("failures_total") == 1)
        with metrics.served(0) as port:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
            connection.close()
    finally:
        spark.streams.removeListener(metrics)
    good, bad = values(text, "good"), values(text, "bad")
    assert set(good) == {name for name, _, _ in METRICS}
    assert (good["active"], good["failures_total"], good["lost_messages_total"]) == (0, 0, 0)
    assert (good["batches_total"], good["lag_messages"]) == (3, 0)
    assert (bad["active"], bad["failures_total"], bad["batches_total"]) == (0, 1, 1)
    assert (bad["lag_messages"], bad["waiting"]) == (60, 0)
    assert bad["lag_seconds"] > 0
