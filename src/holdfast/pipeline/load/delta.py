"""Append records of the log to a Delta table, each exactly once.

Owns: the version that a table keeps of the log it is made from: the greatest offset that it holds.
Never: trusts a batch number. Offsets say what is there, so a lost checkpoint or another batch size
changes nothing.

Invariants:
1. Rows and version are one commit of the table: both are there, or neither.
2. The version never moves back; a row at or below it is never written again.
3. One writer per table, and whole batches in offset order. delta-rs does not refuse a version that
   was used before, so the table is looked at first, and a second writer would break 2.

Flow: micro-batch -> rows beyond the version -> one commit.
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class LogTable:
    """A table of one log. Its version is kept under the log's epoch."""

    path: str
    epoch: str

    def version(self) -> int:
        """The greatest offset of this log that the table holds, or -1."""
        if not DeltaTable.is_deltatable(self.path):
            return -1
        found: int | None = DeltaTable(self.path).transaction_version(self._application)
        return -1 if found is None else found

    def append(self, rows: pa.Table) -> int:
        """Appends the rows that are not there yet; returns how many, when they are in the table."""
        fresh = rows.filter(pc.greater(rows["offset"], self.version()))
        if fresh.num_rows == 0:
            return 0
        last = pc.max(fresh["offset"]).as_py()
        properties = CommitProperties(app_transactions=[Transaction(self._application, last)])
        write_deltalake(self.path, fresh, mode="append", commit_properties=properties)
        return int(fresh.num_rows)

    def append_batch(self, batch: DataFrame, _batch_id: int) -> None:
        """For `foreachBatch`. Spark's batch number is not used: the offsets say more."""
        self.append(batch.toArrow())

    @property
    def _application(self) -> str:
        return f"holdfast/{self.epoch}"
