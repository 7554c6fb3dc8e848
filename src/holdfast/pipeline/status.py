"""How far each table of a pipeline is, from its files alone.

Owns: what `holdfast pipeline status` shows and the report's table of progress.
Never: starts Spark or asks a broker.
"""

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from holdfast.pipeline.jobs.bronze import BRONZE, checkpoint_offset
from holdfast.pipeline.load.warehouse import Warehouse
from holdfast.pipeline.running import Pipeline


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table."""

    table: str
    reads: str
    rows: int
    files: int
    size_bytes: int
    version: int
    """The greatest offset of the log that it has taken, or -1."""
    commits: int
    behind: int
    """Offsets that its input has and it has not."""


@dataclass(frozen=True, slots=True)
class Status:
    """All of a pipeline."""

    directory: str
    epoch: str
    subscribe: str
    checkpoint: int | None
    """The offset that bronze's query has committed."""
    cursor: str
    tables: tuple[TableStatus, ...]

    def document(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)


def status_of(pipeline: Pipeline) -> Status | None:
    """How far it is; none if it never ran."""
    directory = pipeline.configuration.directory
    origin = Warehouse.recorded(directory)
    if origin is None:
        return None
    warehouse = Warehouse(directory, origin)
    found = [_table(warehouse, name, "log") for name in pipeline.from_log()]
    for job in pipeline.jobs:
        found += [_table(warehouse, name, job.reads) for name in job.makes]
    return Status(
        str(directory),
        origin.epoch,
        origin.subscribe,
        checkpoint_offset(warehouse.checkpoint(BRONZE)),
        pipeline.configuration.cursor,
        tuple(found),
    )


def _table(warehouse: Warehouse, name: str, reads: str) -> TableStatus:
    table = warehouse.table(name)
    version = table.version()
    if not table.exists():
        behind = 0 if reads == "log" else warehouse.table(reads).version() + 1
        return TableStatus(name, reads, 0, 0, 0, version, 0, behind)
    delta = table.opened()
    actions = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    return TableStatus(
        table=name,
        reads=reads,
        rows=sum(each["num_records"] for each in actions),
        files=len(actions),
        size_bytes=sum(each["size_bytes"] for each in actions),
        version=version,
        commits=delta.version(),
        behind=0 if reads == "log" else warehouse.table(reads).version() - version,
    )
