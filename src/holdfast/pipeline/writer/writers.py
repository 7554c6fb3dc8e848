"""What Spark calls to write: in each task, and once in the driver.

Owns: how a task's rows become parts, and which parts are the batch.
Never: touches a row; Arrow batches travel as they are.

Invariants:
1. A task's rows are in the log only if the driver has heard of them: an attempt that fails or
   comes second leaves parts that nobody names.
2. A batch is known by its producer and its number, whoever writes it and in however many parts. Of
   a stream these are the query and Spark's own number, so that a batch that is written again after
   a crash is in the log once.

Flow: Arrow batches -> parts -> the broker; messages of the tasks -> one commit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from holdfast import system
from holdfast.core.limits import STAGED_PART_BYTES_MAXIMUM
from holdfast.pipeline.parcel import Parcel
from holdfast.pipeline.source.forms import OptionError
from holdfast.pipeline.writer.columns import check_columns
from holdfast.pipeline.writer.options import WriterOptions, parse_writer_options
from holdfast.pipeline.writer.staging import StagingBroker, WriteError, staging_broker

PART_BYTES: Final = STAGED_PART_BYTES_MAXIMUM // 4
"""What a task sends at once: enough that the way there costs little beside the rows."""
NAME_BYTES: Final = 16
QUERY: Final = "sql.streaming.queryId"
BATCH: Final = "streaming.sql.batchId"
"""Properties by which a task knows what it works for."""


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task has staged."""

    producer: str
    batch: int
    parts: tuple[str, ...]


class _RowWriter(Parcel):
    """Writes the rows of one task; what batch and stream have in common."""

    def __init__(self, options: WriterOptions) -> None:
        self.options = options

    def broker(self) -> StagingBroker:
        """The broker that the options name."""
        options = self.options
        return staging_broker(options.broker, options.user, options.password, options.timeout_s)

    def staged(
        self, rows: Iterator[pa.RecordBatch], producer: str, batch: int, task: TaskContext
    ) -> Written:
        """Stages all rows of a task."""
        broker, parts = self.broker(), []
        partition = task.partitionId()
        name = f"{partition}-{task.attemptNumber()}-{task.taskAttemptId()}"
        for number, (row, stream) in enumerate(streams(rows, self.options.topic, partition)):
            counted = f", counted from its row {row}" if row else ""
            about = f"rows of partition {partition}{counted}"
            identifier = broker.stage(producer, batch, f"{name}-{number}", stream, about)
            if identifier is not None:
                parts.append(identifier)
        return Written(producer, batch, tuple(parts))

    def committed(self, messages: Sequence[WriterCommitMessage | None], *, is_last: bool) -> None:
        """Commits what the tasks have staged, in the order of their partitions."""
        told = [message for message in messages if isinstance(message, Written)]
        if not told:
            return
        parts = [part for message in told for part in message.parts]
        first = told[0]
        self.broker().commit(first.producer, first.batch, parts, is_last=is_last)


class BatchWriter(_RowWriter, DataSourceArrowWriter):
    """Writes a frame, as one batch of one producer."""

    def __init__(self, options: WriterOptions) -> None:
        super().__init__(options)
        # Made in the driver, once: every task is handed this object.
        self._producer = options.producer or f"write-{system.entropy(NAME_BYTES).hex()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stages the rows of one task."""
        task = TaskContext.get()
        assert task is not None, "Spark writes in a task"
        return self.staged(iterator, self._producer, self.options.batch or 0, task)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All rows are in the log on return."""
        self.committed(messages, is_last=self.options.producer is None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing of the batch is staged any more, unless the broker is away or a task comes late:
        that goes when it is old."""
        self.broker().forget(self._producer, self.options.batch or 0)


class StreamWriter(_RowWriter, DataSourceStreamArrowWriter):
    """Writes each micro-batch, as a batch of the query."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stages the rows of one task."""
        task = TaskContext.get()
        assert task is not None, "Spark writes in a task"
        query, batch = task.getLocalProperty(QUERY), task.getLocalProperty(BATCH)
        if query is None or batch is None:
            raise WriteError(
                "holdfast writer: this version of Spark does not tell a task its query and batch"
                f" ({QUERY}, {BATCH}); write in foreachBatch with options 'producer' and 'batch'"
            )
        return self.staged(iterator, query, int(batch), task)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """All rows of the micro-batch are in the log on return, however often it is written."""
        assert all(not isinstance(it, Written) or it.batch == batchId for it in messages)
        self.committed(messages, is_last=False)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing of the micro-batch is staged any more, as far as a task has told its query. What
        a failed task left goes with the batch that is written again, or when it is old."""
        for message in messages:
            if isinstance(message, Written):
                self.broker().forget(message.producer, batchId)
                return


def batch_writer(
    given: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """For `df.write`."""
    options = parse_writer_options(given)
    if overwrite:
        raise OptionError("mode", "overwrite would remove messages; a log is appended to")
    check_columns(schema, options.topic)
    return BatchWriter(options)


def stream_writer(
    given: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """For `df.writeStream`."""
    options = parse_writer_options(given)
    if overwrite:
        raise OptionError("outputMode", "complete would remove messages; a log is appended to")
    if options.producer is not None:
        raise OptionError("producer", "is for batches; of a stream it is the query")
    check_columns(schema, options.topic)
    return StreamWriter(options)


def streams(
    rows: Iterator[pa.RecordBatch], topic: str | None, partition: int
) -> Iterator[tuple[int, bytes]]:
    """Arrow streams of about PART_BYTES each, with all rows of a partition in their order, and
    which row of it each one begins with."""
    gathered: list[pa.RecordBatch] = []
    size = row = 0
    for batch in rows:
        whole = batch if topic is None else _with_topic(batch, topic)
        for piece in _pieces(whole):
            if gathered and size + piece.nbytes > PART_BYTES:
                yield row, _encoded(gathered, row, partition)
                row += sum(each.num_rows for each in gathered)
                gathered, size = [], 0
            gathered.append(piece)
            size += piece.nbytes
    if gathered:
        yield row, _encoded(gathered, row, partition)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in halves until each fits into a part, or is one row."""
    if batch.nbytes <= PART_BYTES or batch.num_rows <= 1:
        if batch.num_rows:
            yield batch
        return
    half = batch.num_rows // 2
    yield from _pieces(batch.slice(0, half))
    yield from _pieces(batch.slice(half))


def _with_topic(batch: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    return batch.append_column("topic", pa.repeat(pa.scalar(topic), batch.num_rows))


def _encoded(batches: list[pa.RecordBatch], row: int, partition: int) -> bytes:
    """A part, whose first row is the partition's `row`. Raises `WriteError` for one that no broker
    takes, which is one row."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    encoded: bytes = sink.getvalue().to_pybytes()
    if len(encoded) > STAGED_PART_BYTES_MAXIMUM:
        topic = batches[0].column("topic")[0].as_py()
        raise WriteError(
            f"holdfast writer: row {row} of partition {partition}, topic '{topic}': it has"
            f" {len(encoded)} bytes on its way, and a broker takes {STAGED_PART_BYTES_MAXIMUM} at"
            " once; leave it out, or share it out among several messages"
        )
    return encoded
