"""`holdfast pipeline` as a user types it: from no file at all to a report."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from holdfast.cli import main
from holdfast.cli.pipeline_frame import frame, status_table
from holdfast.pipeline.configuration import Configuration
from holdfast.pipeline.jobs.stepping import Step
from holdfast.pipeline.running import Pipeline, Progress
from holdfast.pipeline.spark_errors import in_one_line
from holdfast.pipeline.status import Status, TableStatus
from tests.builders.stored import store
from tests.builders.tag_reads import mixed

ENDS_S = 60
VOID = {"meta", "rect", "line", "polyline", "polygon", "circle"}


class Elements(HTMLParser):
    """What a page is made of; every element that begins ends."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def holdfast(folder: Path, *arguments: str) -> str:
    command = Path(sys.executable).parent / "holdfast"
    done = subprocess.run(
        [command, "pipeline", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_from_init_to_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store(tmp_path / "data", mixed(120))
    monkeypatch.chdir(tmp_path)

    def said(*arguments: str) -> str:
        assert main(["pipeline", *arguments]) == 0
        return capsys.readouterr().out

    assert main(["pipeline", "status"]) == 1
    assert "`holdfast pipeline run` makes them" in capsys.readouterr().err
    said("init")
    file = tmp_path / "pipeline.toml"
    assert all(line.startswith(("#", "[")) for line in file.read_text().splitlines() if line)
    assert main(["pipeline", "init"]) == 2
    capsys.readouterr()
    text = file.read_text().replace('# data_dir = ""', 'data_dir = "data"')
    file.write_text(text.replace("# subscribe = ", 'subscribe = "#" # '))
    plan = said("explain")
    assert plan.splitlines()[0].endswith("data: #")
    assert "rows of bronze = reader_events + tag_reads + rejected + duplicates" in plan

    assert holdfast(tmp_path, "run", "--once").startswith("120 messages in 1 batches")
    tables = {each["table"]: each for each in json.loads(said("status", "--json"))["tables"]}
    assert tables["bronze"]["rows"] == 120
    assert {each["behind"] for each in tables.values()} == {0}
    silver = ("tag_reads", "reader_events", "rejected", "duplicates")
    assert sum(tables[name]["rows"] for name in silver) == 120
    assert "tag_reads" in said("status")
    assert "bronze: " in said("maintain")
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    assert holdfast(tmp_path, "backfill", "--rebuild", "presence").startswith("presence: made anew")
    (tmp_path / "elsewhere").rename(tmp_path / "data")
    data = json.loads(said("report", "--json"))
    assert data["totals"]["records"] == 120
    assert data["totals"]["duplicates"] == tables["duplicates"]["rows"]
    _is_whole(said, data)


def _is_whole(said: Any, data: dict[str, Any]) -> None:
    """The page needs nothing beside itself, and shows what the data says."""
    said("report", "--out", "report.html")
    html = Path("report.html").read_text()
    page = Elements()
    page.feed(html)
    assert page.open == []
    assert "http" not in html
    assert not [tag for tag, given in page.seen if "src" in given or tag in {"link", "script"}]
    assert "prefers-color-scheme: dark" in html
    drawn = [given["aria-label"] for tag, given in page.seen if tag == "svg"]
    assert len(drawn) == 3
    assert all(row["rule"] in html for row in data["rejected"])


def test_a_run_is_shown_as_it_goes(tmp_path: Path) -> None:
    pipeline = Pipeline(Configuration(folder=tmp_path))
    progress = Progress(batches=2, rows=1_200, lag=34, versions={"bronze": 1_199})
    progress.took(Step("silver", -1, 999, 1_000, {"tag_reads": 980, "rejected": 20}))
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(frame(pipeline, progress))
    shown = console.export_text()
    assert "1,200 messages in 2 batches and 1 steps, 34 to go" in shown
    assert re.search(r"tag_reads +│ bronze +│ +980 │ +999 ", shown)


def test_a_name_in_square_brackets_is_shown_as_it_is() -> None:
    tables = (TableStatus("own", "[link]", 1, 1, 1, 1, 1, 1),)
    status = Status("[bold]", "epoch", "[north]/#", 1, "[red]", tables)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(status_table(status))
    shown = console.export_text()
    assert "[bold]: [north]/# of the log epoch, cursor [red]" in shown
    assert "[link]" in shown


@pytest.mark.parametrize("begun", ["pipeline.toml", "pipeline/tables/bronze/_delta_log"])
def test_a_run_that_is_interrupted_ends_without_a_word_of_its_own(
    tmp_path: Path, begun: str
) -> None:
    store(tmp_path / "data", mixed(2_000))
    text = '[log]\ndata_dir = "data"\nsubscribe = "#"\n[run]\nrows_per_batch = 100\n'
    (tmp_path / "pipeline.toml").write_text(text)
    command = [Path(sys.executable).parent / "holdfast", "pipeline", "run"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as run:
        assert run.stderr is not None
        # The first thing to be said comes from Java, while Spark starts.
        said = run.stderr.readline()
        while not (tmp_path / begun).exists():
            assert run.poll() is None
            threading.Event().wait(0.1)
        os.killpg(run.pid, signal.SIGINT)
        _, told = run.communicate(timeout=ENDS_S)
    assert run.returncode == 130, told
    # Spark's own threads and workers may still tell that they were stopped in the middle.
    assert not re.search("KeyboardInterrupt|Py4J|reentrant", said + told), told


def test_a_broker_that_is_not_there_is_told_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text('[log]\ndata_dir = "nowhere"\n')
    assert main(["pipeline", "backfill", "--from", "0", "--to", "1", "--config", str(file)]) == 1
    refused = capsys.readouterr().err
    assert "no readable log in" in refused
    assert len(refused.splitlines()) == 1


def test_the_in_one_line_of_what_spark_says() -> None:
    said = """[STREAM_FAILED] Query [id = 1] terminated
  File "worker.py", line 7, in read
holdfast.pipeline.source.offsets.DataLossError: offsets 1 to 2 are gone
\tat org.apache.spark.Some.call(Some.scala:1)
"""
    assert in_one_line(said).endswith("DataLossError: offsets 1 to 2 are gone")
    refused = "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== DataFrame ==\n\njobs.py:105"
    assert in_one_line(refused) == "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012"
    assert in_one_line("No space left on device") == "No space left on device"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[log]\nbrokr = 'x'", "[log] has no entry brokr"),
        ("[logs]", "there is no table [logs]"),
        ("[run]\ncores = 'two'", "run.cores must be such as 2"),
        ("[run]\ncores = 0", "run.cores must be a number greater than 0"),
        ("[run]\ninterval_s = nan", "run.interval_s must be a number greater than 0"),
        ("[run]\ninterval_s = inf", "run.interval_s must be a number greater than 0"),
        ("[run", "cannot be read"),
        ("[jobs]\nmodules = 'hot'", "jobs.modules must be such as [\"name\"], not 'hot'"),
        ("[jobs]\nmodules = [1]", 'jobs.modules must be such as ["name"], not [1]'),
        (
            "[log]\noptions = { minPartitions = 4 }",
            'log.options.minPartitions must be text such as "4"',
        ),
        ("[log]\noptions = { Columns = 'offset' }", "log.options.Columns cannot be given here"),
        ("[log]\noptions = { maxoffsetspertrigger = '5' }", "run.rows_per_batch is what"),
        ("[log]\noptions = { endingOffsets = '5' }", "'endingOffsets' is for batches"),
        ("[log]\noptions = { foo = '5' }", "option 'foo' is unknown"),
        ("[log]\nsubscribe = 'a'\noptions = { subscribePattern = 'b' }", "cannot be combined with"),
        ("[jobs]\nmodules = ['no_such_jobs']", "no_such_jobs cannot be imported"),
    ],
)
def test_a_wrong_configuration_is_refused_in_one_sentence(
    text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(text)
    assert main(["pipeline", "explain", "--config", str(file)]) == 2
    refused = capsys.readouterr().err
    assert problem in refused
    assert len(refused.splitlines()) == 1
