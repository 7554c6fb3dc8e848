"""The documentation's pipeline of one's own, as it stands there."""

import json
import re
import sys
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from holdfast.pipeline.configuration import read_configuration
from holdfast.pipeline.running import Pipeline
from tests.builders.stored import Message, store
from tests.builders.tag_reads import received_at
from tests.tidy.repository import ROOT

PAGE = ROOT / "docs" / "pipeline" / "README.md"
BLOCK = re.compile(r"^```\w+\n# (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def reading(number: int, celsius: float) -> Message:
    at = received_at(number) - timedelta(seconds=1)
    payload = {
        "device": "d",
        "number": number,
        "celsius": celsius,
        "measuredAt": at.isoformat(timespec="milliseconds"),
    }
    return Message("sensors/d/temperature", json.dumps(payload).encode())


def test_a_schema_a_table_and_a_job_of_ones_own_in_under_thirty_lines(
    spark: SparkSession, tmp_path: Path
) -> None:
    blocks = dict(BLOCK.findall(PAGE.read_text()))
    assert set(blocks) == {"pipeline.toml", "schemas/temperature.v1.toml", "hot.py"}
    lines = [line for text in blocks.values() for line in text.splitlines() if line]
    assert len(lines) < 30
    for name, text in blocks.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    configuration = tmp_path / "pipeline.toml"
    configuration.write_text(configuration.read_text().replace("[log]", '[log]\ndata_dir = "data"'))
    readings = [reading(0, 21.5), reading(1, 35.0), reading(2, 451.0), reading(3, 31.0)]
    store(tmp_path / "data", [*readings, readings[3]])
    try:
        pipeline = Pipeline(read_configuration(configuration))
        pipeline.run(spark, once=True)
    finally:
        sys.path.remove(str(tmp_path.resolve()))
        sys.modules.pop("hot", None)
    warehouse = pipeline.opened()

    def offsets(name: str) -> list[int]:
        table = pa.table(DeltaTable(str(warehouse.table(name).path)).to_pyarrow_table())
        return sorted(table["offset"].to_pylist())

    assert offsets("temperatures") == [0, 1, 3]
    assert offsets("rejected") == [2]
    assert offsets("duplicates") == [4]
    assert offsets("hot") == [1, 3]
