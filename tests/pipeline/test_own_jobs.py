"""The documentation's pipeline of one's own, as it stands there."""

import json
import re
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from holdfast.cli import main
from holdfast.pipeline.configuration import (
    Configuration,
    JobEntries,
    LogEntries,
    read_configuration,
)
from holdfast.pipeline.jobs.bronze import start_query
from holdfast.pipeline.jobs.job import Job
from holdfast.pipeline.jobs.own import JobError, own_jobs
from holdfast.pipeline.jobs.stepping import AccountingError, made_again, step
from holdfast.pipeline.load.warehouse import Warehouse
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


HEAD = """\
import sys
from pyspark.sql import functions as f
from pyspark.sql.types import StructType
from holdfast.pipeline.jobs.job import Job
from holdfast.pipeline.load.table import Shape

def made(fresh, past):
"""
TAIL = """
JOBS = [Job("hot", "bronze", {"hot": Shape(StructType().add("offset", "long"))}, made)]
"""
FAILING = {
    "raises": ("    raise ValueError('none of it')", "FILE, line 8: ValueError: none of it"),
    "says_nothing": ("    assert fresh is None", "FILE, line 8: AssertionError: it says no more"),
    "calls_json": (
        "    import json\n    return json.loads('{')",
        "FILE, line 9: JSONDecodeError: Expecting property name",
    ),
    "names_no_column": (
        "    return {'hot': fresh.select('ofset')}",
        "FILE, line 8: AnalysisException: [UNRESOLVED_COLUMN",
    ),
    "names_no_table": (
        "    return {'hot': past.rows('warm')}",
        "FILE, line 8: TableNotFoundError: ",
    ),
    "fails_on_a_row": (
        "    def length(value):\n"
        "        return len(value) // 0\n"
        "    return {'hot': fresh.select(f.udf(length, 'long')('value').alias('offset'))}",
        "FILE, line 9: ZeroDivisionError: integer division or modulo by zero",
    ),
    "divides": (
        "    return {'hot': fresh.select((f.col('offset') % 0).alias('offset'))}",
        "FILE, line 8: ArithmeticException: [REMAINDER_BY_ZERO]",
    ),
}


@pytest.fixture(scope="module")
def with_bronze(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Configuration, Warehouse]:
    """A pipeline whose bronze has something in it, and that names no job yet."""
    folder = tmp_path_factory.mktemp("own")
    store(folder / "data", [reading(0, 21.5), reading(1, 35.0)])
    configuration = Configuration(folder=folder, log=LogEntries(data_dir="data", subscribe="#"))
    warehouse = Pipeline(configuration).opened()
    start_query(spark, warehouse, configuration.source()).awaitTermination()
    return configuration, warehouse


def own(configuration: Configuration, name: str, text: str) -> list[Job]:
    """The jobs of a module of this text."""
    (configuration.folder / f"{name}.py").write_text(text)
    try:
        return own_jobs(replace(configuration, jobs=JobEntries(modules=(name,))))
    finally:
        sys.path.remove(str(configuration.folder.resolve()))
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", FAILING)
def test_what_stops_a_job_of_ones_own_is_told_with_its_line(
    spark: SparkSession, with_bronze: tuple[Configuration, Warehouse], name: str
) -> None:
    configuration, warehouse = with_bronze
    body, said = FAILING[name]
    [job] = own(configuration, name, HEAD + body + TAIL)
    expected = f"job hot of FILE: {said}".replace("FILE", str(configuration.folder / f"{name}.py"))
    with pytest.raises(JobError) as by_step:
        step(spark, warehouse, job)
    assert str(by_step.value).startswith(expected)
    assert "\n" not in str(by_step.value)
    assert by_step.value.__cause__ is not None
    with (
        pytest.raises(JobError) as by_range,
        made_again(spark, warehouse, job, -1, 1) as frames,
    ):
        frames["hot"].collect()
    assert str(by_range.value) == str(by_step.value)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("    return None", "makes hot, and made NoneType in place of its tables"),
        ("    return {'warm': fresh}", "makes hot, and made warm"),
        ("    return {'hot': 7}", "made int in place of a frame for the table hot"),
    ],
)
def test_a_job_that_makes_no_frames_is_told_so(
    spark: SparkSession, with_bronze: tuple[Configuration, Warehouse], body: str, said: str
) -> None:
    configuration, warehouse = with_bronze
    [job] = own(configuration, "other", HEAD + body + TAIL)
    with pytest.raises(AccountingError, match=f"^job hot (says that it )?{said}$"):
        step(spark, warehouse, job)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("JOBS = [Jobb()]", "FILE, line 1: NameError: name 'Jobb' is not defined"),
        ("\nimport no_such_thing", "FILE, line 2: ModuleNotFoundError: No module named 'no_such"),
        ("\ndef made(:", "FILE, line 2: SyntaxError: invalid syntax"),
        ("from holdfast.pipeline.jobs.job import Jobs", "FILE, line 1: ImportError: cannot import"),
        (
            (HEAD + "    return {}" + TAIL).replace('"offset", "long"', '"took", "variant"'),
            "job hot would make the table hot with took (variant), which a Delta",
        ),
        ("JOBS = 7", "broken has no list JOBS of jobs, which FILE must have"),
    ],
)
def test_a_module_that_cannot_be_used_is_told_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    file, module = tmp_path / "pipeline.toml", tmp_path / "broken.py"
    file.write_text('[jobs]\nmodules = ["broken"]\n')
    module.write_text(text)

    def told(*more: str) -> str:
        try:
            assert main(["pipeline", "explain", "--config", str(file), *more]) == 2
        finally:
            sys.path.remove(str(tmp_path.resolve()))
            sys.modules.pop("broken", None)
        return capsys.readouterr().err

    short = told()
    assert said.replace("FILE", str(module)) in short
    assert len(short.splitlines()) == 1
    long = told("--verbose")
    assert long.startswith("Traceback")
    assert long.endswith(short)
