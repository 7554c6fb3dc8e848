"""A pipeline as a consumer of the broker: what is in bronze needs to be kept no more."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.client.http import HttpClient
from holdfast.pipeline.configuration import Configuration, LogEntries
from holdfast.pipeline.jobs.bronze import BRONZE, RECORDS
from holdfast.pipeline.running import Pipeline
from tests.interop.device import Device
from tests.process import BrokerProcess

TOPIC = "zebra/fx/7/reads"


def test_the_cursor_of_a_run_is_where_bronze_is_when_it_has_ended(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    device = Device(broker.port, "seven").connect()
    device.publish_all(TOPIC, [b"report %d" % number for number in range(20)], qos=1)
    device.close()
    log = LogEntries(broker=broker.http_address, options={"cursor": "tables"})
    pipeline = Pipeline(Configuration(folder=tmp_path, log=log))
    assert pipeline.run(spark, once=True).rows == 20
    [cursor] = HttpClient.on(broker.data_directory).get("/v1/cursors")["cursors"]
    assert (cursor["name"], cursor["place"], cursor["holder"]) == ("tables", 20, "")
    assert pipeline.opened().table("rejected").version() == 19


@pytest.mark.parametrize(
    "lost",
    [
        "table",
        "checkpoint",
        pytest.param("table and cursor", marks=pytest.mark.long),
        pytest.param("later half", marks=pytest.mark.long),
    ],
)
def test_what_was_lost_of_bronze_is_brought_in_again_before_the_cursor_goes_on(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, lost: str
) -> None:
    device = Device(broker.port, "seven").connect()
    log = LogEntries(broker=broker.http_address, options={"cursor": "tables"})
    pipeline = Pipeline(Configuration(folder=tmp_path, log=log))
    payloads = [b"report %d" % number for number in range(30)]
    device.publish_all(TOPIC, payloads[:10], qos=1)
    assert pipeline.run(spark, once=True).rows == 10
    warehouse = pipeline.opened()
    earlier = shutil.copytree(warehouse.table(BRONZE).path, tmp_path / "earlier")
    device.publish_all(TOPIC, payloads[10:20], qos=1)
    assert pipeline.run(spark, once=True).rows == 10

    device.publish_all(TOPIC, payloads[20:], qos=1)
    if lost != "checkpoint":
        shutil.rmtree(warehouse.table(BRONZE).path)
    if lost in ("checkpoint", "later half"):
        shutil.rmtree(warehouse.checkpoint(BRONZE))
    if lost == "later half":
        shutil.copytree(earlier, warehouse.table(BRONZE).path)
    if lost == "table and cursor":
        HttpClient.on(broker.data_directory).delete("/v1/cursors/tables")
    expected = {"checkpoint": 10, "later half": 20}.get(lost, 30)
    assert pipeline.run(spark, once=True).rows == expected
    rows = pipeline.opened().table(BRONZE).frame(spark, RECORDS).orderBy("offset").collect()
    assert [bytes(row["value"]) for row in rows] == payloads
    [cursor] = HttpClient.on(broker.data_directory).get("/v1/cursors")["cursors"]
    assert (cursor["place"], cursor["holder"]) == (30, "")
    device.close()
