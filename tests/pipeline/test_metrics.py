"""The metrics of all queries of an application, as Prometheus reads them."""

import http.client
import re
import threading
from collections.abc import Callable
from pathlib import Path

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
