"""What `holdfast pipeline` shows in a terminal: a run as it goes, its tables, its plan.

Never: asks anything; it draws what it is handed. Names are text: one in square brackets is not
taken for a style.
"""

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from holdfast.pipeline.running import Pipeline, Progress
    from holdfast.pipeline.status import Status


def frame(pipeline: "Pipeline", progress: "Progress") -> Table:
    """A run as it is now."""
    table = Table(title=summary(progress), title_justify="left", title_style="bold")
    if progress.compacting is not None:
        table.caption = Text("compacting {}: {:,} files".format(*progress.compacting))
    for name in ("table", "from", "rows", "offset"):
        table.add_column(name, justify="right" if name in ("rows", "offset") else "left")
    sources = {"bronze": "log"}
    sources |= {name: job.reads for job in pipeline.jobs for name in job.makes}
    for name, reads in sources.items():
        version = progress.versions.get(name)
        rows = progress.rows_out.get(name, 0)
        numbers = f"{rows:,}", "" if version is None else f"{version:,}"
        table.add_row(Text(name), Text(reads), *numbers)
    return table


def summary(progress: "Progress") -> str:
    """A run in one line."""
    steps = sum(progress.steps.values())
    to_go = "" if progress.lag is None else f", {progress.lag:,} to go"
    return f"{progress.rows:,} messages in {progress.batches} batches and {steps} steps{to_go}"


def status_table(status: "Status") -> Table:
    """How far each table is."""
    title = f"{status.directory}: {status.subscribe} of the log {status.epoch}"
    if status.cursor:
        title += f", cursor {status.cursor}"
    table = Table(title=Text(title), title_justify="left")
    for name in ("table", "from", "rows", "files", "bytes", "commits", "offset", "behind"):
        table.add_column(name, justify="left" if name in ("table", "from") else "right")
    for each in status.tables:
        numbers = (
            each.rows,
            each.files,
            each.size_bytes,
            each.commits,
            each.version,
            each.behind,
        )
        names = Text(each.table), Text(each.reads)
        table.add_row(*names, *(f"{number:,}" for number in numbers))
    return table


def plan(pipeline: "Pipeline") -> str:
    """Each job from its source to its tables."""
    source = pipeline.configuration.source()
    where = source.get("broker") or source.get("dataDir")
    lines = [f"log at {where}: {pipeline.configuration.selection}"]
    lines += ["  bronze: every record as it is, appended, version = greatest offset"]
    for versions in pipeline.schemas:
        numbers = ", ".join(str(each.version) for each in versions.newest_first)
        schema = versions.newest
        lines.append(
            f"schema {schema.name} ({schema.format}, version {numbers}):"
            f" {schema.topics} -> {schema.table}"
        )
    for job in pipeline.jobs:
        lines.append(f"{job.name}: {job.about}" if job.about else job.name)
        lines.append(f"  reads {job.reads}, rows beyond its tables' version")
        for name, shape in job.makes.items():
            how = f"upserted by {', '.join(shape.key)}" if shape.key else "appended"
            lines.append(f"  makes {name}: {', '.join(shape.columns.names)}")
            lines.append(f"    {how}, version = offset of {job.reads}")
        if job.accounts:
            lines.append(f"  rows of {job.reads} = " + " + ".join(job.makes))
    return "\n".join(lines)
