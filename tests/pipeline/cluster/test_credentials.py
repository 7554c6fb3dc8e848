"""The page's application on a cluster, at a broker with TLS and credentials."""

import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.builders.certificates import Authority
from tests.interop.device import Device
from tests.interop.test_tls import TlsBroker
from tests.interop.users import Users
from tests.pipeline.cluster import page
from tests.pipeline.cluster.standalone import Standalone, configured, run, running
from tests.pipeline.cluster.test_executors import read
from tests.ports import HeldPort
from tests.process import HOST

PASSWORD = "open-sesame"
LOOKING = """
from urllib.request import urlopen

broker["password"] = open(broker.pop("passwordFile")).read().strip()
everything = spark.read.format("holdfast").options(subscribe="#", **broker).load()
everything.explain("extended")
print(everything.count())
about = f"/api/v1/applications/{spark.sparkContext.applicationId}"
for path in (
    *("/SQL/", "/SQL/execution/?id=0", "/StreamingQuery/", "/environment/", "/jobs/"),
    f"{about}/environment", f"{about}/sql?details=true&planDescription=true",
):
    print(path, urlopen(spark.sparkContext.uiWebUrl + path).read().decode())
spark.stop()
"""
"""What follows the application: it gives the password itself, and looks at what Spark shows."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """A broker with TLS that only users may talk to, with readings of two sensors."""

    running: TlsBroker
    instead: dict[str, object]
    """What stands for this broker on the page, and where it is."""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    authority = Authority(tmp_path / "certificates")
    broker = TlsBroker(tmp_path, authority)
    broker.start()
    device = Device(broker.port, "sensor").connect()
    device.publish_all("sensors/a/temperature", [b"21.5", b"35.0", b"31.0"], qos=1)
    device.publish_all("sensors/b/temperature", [b"40.0", b"19.0"], qos=1)
    device.close()
    users = Users(broker)
    for line in page.commands("holdfast").splitlines():
        _, _, *words = shlex.split(line)
        given = {"stdin": f"{PASSWORD}\n"} if "add" in words else {}
        users(*words, *(["--password-stdin"] if given else []), **given)
    secret = page.write(tmp_path, "spark.password", f"{PASSWORD}\n")
    instead = {
        "broker.example:8443": f"{HOST}:{broker.https_port}",
        "/etc/holdfast/spark.password": secret,
    }
    yield Guarded(broker, instead)
    assert broker.stop() == 0, broker.log()


@pytest.mark.long
def test_the_pages_application_reads_and_writes_with_a_password_that_is_nowhere(
    cluster: Standalone, guarded: Guarded, tmp_path: Path
) -> None:
    application = page.placed(page.file("alarms.py"), guarded.instead)
    page.write(tmp_path, "alarms.py", application + LOOKING)
    events = tmp_path / "events"
    events.mkdir()
    surroundings = configured(tmp_path, **shown(events))
    code, said = run(submitted(cluster, tmp_path), tmp_path, surroundings)
    assert code == 0, said[-4_000:]
    assert alarms(guarded) == ["31.0", "35.0", "40.0"]
    assert "Physical Plan" in said
    assert "/api/v1/applications" in said
    assert PASSWORD not in said
    told = [path for path in (*events.rglob("*"), *cluster.work.rglob("*")) if path.is_file()]
    assert any("MicroBatchScan" in path.read_text() for path in events.iterdir())
    assert not [path for path in told if PASSWORD in path.read_text(errors="replace")]


def shown(events: Path) -> dict[str, str]:
    """Settings with which Spark tells all that it does."""
    return {
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.rolling.enabled": "false",
        "spark.log.level": "INFO",
        "spark.ui.enabled": "true",
    }


def submitted(cluster: Standalone, directory: Path) -> str:
    """The page's commands, with what they name in its place."""
    return page.placed(
        page.commands("export PYSPARK_PYTHON") + page.commands("spark-submit --master"),
        {
            "/opt/holdfast/bin/python": sys.executable,
            "/opt/holdfast/bin": Path(sys.executable).parent,
            "/etc/holdfast/authority.pem": directory / "certificates" / "authority.pem",
            "/data/checkpoints": directory / "checkpoints",
            "spark://master.example:7077": cluster.address,
        },
    )


def alarms(guarded: Guarded) -> list[str]:
    """What the application has written to the log, in order."""
    return sorted(value.decode() for value, _ in read(guarded.running.data_directory, "alarms/hot"))


@pytest.mark.long
def test_the_pages_application_runs_over_spark_connect(guarded: Guarded, tmp_path: Path) -> None:
    page.write(tmp_path, "alarms.py", page.placed(page.file("alarms.py"), guarded.instead))
    events = tmp_path / "events"
    events.mkdir()
    # The server tells its port in no other way than in words of its log.
    held = HeldPort()
    port = held.number
    surroundings = {
        **configured(tmp_path, **shown(events), **{"spark.connect.grpc.binding.port": str(port)}),
        "CHECKPOINT": str(tmp_path / "checkpoint"),
        "SSL_CERT_FILE": str(tmp_path / "certificates" / "authority.pem"),
    }
    server = page.commands("spark-submit --class")
    client = page.placed(page.commands("SPARK_REMOTE="), {"server.example:15002": f"{HOST}:{port}"})
    local = page.placed(server, {"spark://master.example:7077": "local[2]"})
    with running(f"exec {local}", tmp_path, surroundings) as log:
        code, said = run(client, tmp_path, surroundings)
        assert code == 0, said[-4_000:] + log.read_text()[-4_000:]
    assert alarms(guarded) == ["31.0", "35.0", "40.0"]
    told = "".join(path.read_text() for path in events.iterdir())
    assert "passwordFile" in told
    assert PASSWORD not in told + said + log.read_text()


@pytest.mark.long
def test_the_pages_declarative_pipeline_runs(guarded: Guarded, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    for name, instead in (
        ("spark-pipeline.yml", {"/data/pipelines": tmp_path / "pipelines"}),
        ("transformations/temperatures.py", guarded.instead),
    ):
        page.write(tmp_path, name, page.placed(page.file(name), instead))
    surroundings = {
        **configured(tmp_path, **{"spark.sql.warehouse.dir": str(tables)}),
        "SSL_CERT_FILE": str(tmp_path / "certificates" / "authority.pem"),
    }
    code, said = run(page.commands("spark-pipelines"), tmp_path, surroundings)
    assert code == 0, said[-4_000:]
    hottest = pq.read_table(tables / "hottest").to_pylist()
    assert {(row["topic"], row["celsius"]) for row in hottest} == {
        ("sensors/a/temperature", 35.0),
        ("sensors/b/temperature", 40.0),
    }
    assert pq.read_table(tables / "temperatures").num_rows == 5
    assert PASSWORD not in said
