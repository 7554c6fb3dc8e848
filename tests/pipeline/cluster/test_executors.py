"""Messages read and written by executors in several processes, of which one is killed."""

from collections import Counter
from pathlib import Path

import pytest

from holdfast.core.layout import LOG_DIRECTORY
from holdfast.reading.criteria import Criteria
from holdfast.reading.directory import LogDirectory
from holdfast.reading.log import batches
from tests.pipeline.cluster.standalone import EXECUTOR_MB, EXECUTORS, configured, run
from tests.pipeline.test_running_broker import publish
from tests.process import BrokerProcess

APPLICATION = Path(__file__).with_name("broken_off.py")
COUNT = 2_000


@pytest.mark.long
@pytest.mark.parametrize("kind", ["standalone", "local-cluster"])
def test_an_executor_that_is_killed_in_mid_batch_costs_no_row_and_doubles_none(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    local = f"local-cluster[{EXECUTORS},1,{EXECUTOR_MB}]"
    master = request.getfixturevalue("cluster").address if kind == "standalone" else local
    broker = BrokerProcess(tmp_path, http_port=0)
    broker.start()
    payloads = [b"%d" % number for number in range(COUNT)]
    publish(broker, "seven", payloads, version=5)
    where = f"{broker.http_address} zebra/fx/seven/reads copies '{tmp_path}'"
    submit = f"spark-submit --master {master} '{APPLICATION}' {where}"
    code, said = run(submit, tmp_path, configured(tmp_path))
    assert code == 0, said[-4_000:]
    assert broker.stop() == 0, broker.log()
    killed = (tmp_path / "killed").read_text()
    copies = read(broker.data_directory, "copies")
    assert Counter(value for value, _ in copies) == Counter(payloads)
    executors = {key for _, key in copies}
    assert executors - {killed.encode()}, "one executor is not a cluster"


def read(data_directory: Path, topic: str) -> list[tuple[bytes, bytes | None]]:
    """The values and keys that the log has of a topic."""
    log = LogDirectory(str(data_directory / LOG_DIRECTORY))
    extent = log.extent()
    found = batches(log, Criteria(filters=(topic,)), extent.begin, extent.end)
    return [(row["value"], row["key"]) for batch in found for row in batch.to_pylist()]
