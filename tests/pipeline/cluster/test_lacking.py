"""An executor whose Python lacks the package says so, in one sentence."""

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from pyspark import cloudpickle

from holdfast.pipeline.source.batch import BatchReader
from holdfast.pipeline.source.columns import read_schema
from holdfast.pipeline.source.options import parse_options
from tests.pipeline.cluster.standalone import EXECUTOR_MB, configured, run
from tests.pipeline.test_running_broker import publish
from tests.process import BrokerProcess

APPLICATION = Path(__file__).with_name("lacking.py")
TOPIC = "zebra/fx/seven/reads"
SENTENCE = (
    "ModuleNotFoundError: holdfast data source: {python} on .* runs a task of this query and has no"
    " module 'holdfast': install the package holdfast with its extra 'pipeline' there, or name a"
    " Python that has it in PYSPARK_PYTHON, for the driver and all executors"
)


@pytest.fixture
def lacking(tmp_path: Path) -> Path:
    """A Python that has all packages of this one but holdfast."""
    home = tmp_path / "lacking"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    packages = next(home.glob("lib/python*/site-packages"))
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if "holdfast" not in each.name and not (packages / each.name).exists():
            (packages / each.name).symlink_to(each)
    return home / "bin" / "python"


def test_a_reader_that_comes_to_a_python_without_the_package_says_what_to_install(
    lacking: Path,
) -> None:
    options = parse_options({"broker": "nowhere:1", "subscribe": "#"})
    reader = BatchReader(options, read_schema(options.columns))
    here = cloudpickle.loads(cloudpickle.dumps(reader))
    assert (type(here), here.options) == (BatchReader, options)
    there = subprocess.run(
        [lacking, "-c", "import sys, pickle; pickle.load(sys.stdin.buffer)"],
        input=cloudpickle.dumps(reader),
        capture_output=True,
        check=False,
    )
    assert there.returncode == 1
    last = there.stderr.decode().splitlines()[-1]
    assert matches(last, lacking)


def matches(line: str, python: Path) -> bool:
    return re.search(SENTENCE.format(python=re.escape(str(python))), line) is not None


@pytest.mark.long
def test_a_query_ends_with_what_to_install_where(lacking: Path, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, http_port=0)
    broker.start()
    publish(broker, "seven", [b"one"], version=5)
    chosen = tmp_path / "python"
    chosen.write_text(f'#!/bin/sh\nexec "${{EXECUTORS_PYTHON:-{sys.executable}}}" "$@"\n')
    chosen.chmod(0o755)
    surroundings = configured(
        tmp_path,
        **{"spark.executorEnv.EXECUTORS_PYTHON": str(lacking), "spark.task.maxFailures": "1"},
    )
    master = f"local-cluster[1,1,{EXECUTOR_MB}]"
    arguments = f"{broker.http_address} {TOPIC} '{tmp_path}/c'"
    submit = f"spark-submit --master {master} '{APPLICATION}' {arguments}"
    code, said = run(submit, tmp_path, surroundings | {"PYSPARK_PYTHON": str(chosen)})
    assert code == 0, said[-4_000:]
    told = [line for line in said.splitlines() if line.startswith("TOLD")]
    assert len(told) == 3, said[-4_000:]
    assert all(matches(line, lacking) for line in told), told
    assert broker.stop() == 0, broker.log()
