"""A pipeline as a consumer of the broker: what is in bronze needs to be kept no more."""

from pathlib import Path

from pyspark.sql import SparkSession

from holdfast.client.http import HttpClient
from holdfast.pipeline.configuration import Configuration, LogEntries
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
