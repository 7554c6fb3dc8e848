"""The log as a stream, for `spark.readStream`.

Owns: how much a micro-batch takes, and what the query's progress says of the log.

Invariants:
1. Its offset never lies beyond what is durable, and never moves back.
2. What is read is what the offsets in the checkpoint say, or that it has changed was confirmed.
3. While the broker is away nothing new is offered, and the query's progress says what is waited
   for; the query itself goes on.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from holdfast import system
from holdfast.pipeline.source.forms import OptionError
from holdfast.pipeline.source.log import open_log, open_without_waiting
from holdfast.pipeline.source.offsets import (
    SELECTION,
    CheckpointError,
    check_history,
    format_offset,
    format_selection,
    parse_offset,
    selection_change,
)
from holdfast.pipeline.source.options import Options
from holdfast.pipeline.source.patience import Absence, wait_s
from holdfast.pipeline.source.ranges import LogRange, RangeReader, plan_ranges, starting
from holdfast.reading.log import BrokerAwayError, Extent, Reach

OFFSETS_PER_TRIGGER = 500_000
"""A micro-batch that a driver can still take as one Arrow table."""
BYTES_PER_TRIGGER = 128 << 20
"""The same for payloads of megabytes."""
TRIGGER_DELAY_S = 15 * 60.0
"""How long `minOffsetsPerTrigger` may hold back a micro-batch, as in Kafka's source."""
STREAM_PATIENCE_S = float("inf")
"""Nobody waits for a stream's end; what it waits for is in its progress."""

log = logging.getLogger(__name__)


class RefusedStreamReader(DataSourceStreamReader):
    """A stream that cannot be, and says why as soon as it is asked for anything."""

    def __init__(self, error: OptionError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Raises `OptionError`."""
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Raises `OptionError`."""
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[LogRange]:
        """Raises `OptionError`: a query that goes on from a checkpoint may ask this first."""
        raise self._error

    def read(self, partition: LogRange) -> Iterator[Any]:  # type: ignore[override]
        """Raises `OptionError`."""
        raise self._error


class StreamReader(RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The log as a stream. Its offset is one number and the log's epoch."""

    patience_s = STREAM_PATIENCE_S

    def __init__(self, options: Options, schema: StructType) -> None:
        if options.broker is not None and not options.fail_on_data_loss:
            # What its tasks miss they cannot tell the driver; the broker can.
            options = replace(options, reader=system.entropy(16).hex())
        super().__init__(options, schema)
        self._selection = format_selection(options.criteria)
        self._beginning: dict[str, Any] | None = None
        self._target: int | None = None
        self._reach: Reach | None = None
        self._lost = 0
        self._taken = 0
        """What the broker said last of what tasks have missed."""
        self._triggered_s: float | None = None
        timeout_s = options.timeout_s
        self._absence = Absence(self.patience_s if timeout_s is None else timeout_s)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query without a checkpoint begins. Spark asks for the end of the first batch and
        again for its ranges; the end of the log has moved by then, and the answer has not."""
        if self._beginning is None:
            self._beginning = {**self.found_beginning(), SELECTION: self._selection}
        return self._beginning

    def found_beginning(self) -> dict[str, Any]:
        """What the options mean now."""
        opened = open_log(self.options, self.patience_s)
        begin = starting(self.options, opened.extent(), opened, default="latest")
        # Of a time it may be the offset of a message that has come since the extent was asked for.
        extent = opened.extent()
        if begin > extent.end:
            begin = self._beyond(begin, extent)
        if not isinstance(self.options.starting_offset, int):
            # A word or a time asks for what is there. A number asks for that very message: if it is
            # gone, that is a loss like any other, told where ranges are planned.
            begin = max(begin, extent.begin)
        return format_offset(extent.epoch, begin)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """How much a micro-batch takes unless the trigger says otherwise."""
        return ReadMaxRows(self.options.offsets_per_trigger or OFFSETS_PER_TRIGGER)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is durable now is all that this query will read."""
        self._target = open_log(self.options, self.patience_s).extent().end

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next micro-batch; `start` itself if there is nothing to read."""
        if not isinstance(limit, ReadMaxRows | ReadAllAvailable):
            raise TypeError(f"holdfast data source: read limit {limit} is not supported")
        self.check_selection(start)
        try:
            reach = self._reached(int(start["o"]), limit)
        except BrokerAwayError as away:
            # To offer nothing keeps the query's progress alive; to wait here would stop it.
            wait_s(self._absence.begin_or_go_on(away))
            return start
        self._absence.end()
        self._note_taken(reach.taken)
        begin = parse_offset(start, reach.extent)
        check_history(start, reach.before_at_us)
        self._reach = reach
        if reach.end <= begin or self._is_too_little(reach):
            # A selection that is new to the checkpoint is a batch by itself, with nothing in it.
            return {**start, SELECTION: self._selection}
        self._triggered_s = system.monotonic_s()
        end = format_offset(reach.extent.epoch, reach.end, reach.last_at_us)
        return {**end, SELECTION: self._selection}

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The durable end, with what the query's progress has to say: its lag behind the end in
        messages and in seconds, what retention took before it was read, what it waits for."""
        waiting_for, reach = self._absence.told(), self._reach
        if reach is None and waiting_for is not None:
            return {"waitingFor": waiting_for}
        if reach is None:
            extent = open_log(self.options, self.patience_s).extent()
            return format_offset(extent.epoch, extent.end)
        told: dict[str, Any] = format_offset(reach.extent.epoch, reach.extent.end)
        told["lagMessages"] = reach.behind
        told["lagExact"] = reach.behind_exact
        is_behind = reach.next_at_us is not None and (reach.behind > 0 or not reach.behind_exact)
        # By the broker's clock: the driver's may be another.
        late_us = reach.now_us - (reach.next_at_us or 0) if is_behind else 0
        told["lagSeconds"] = max(0, late_us) / 1_000_000
        told["lostMessages"] = self._lost
        return told if waiting_for is None else {**told, "waitingFor": waiting_for}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[LogRange]:
        """The ranges of one micro-batch; the same again when it is repeated."""
        self.check_selection(end)
        opened = open_log(self.options, self.patience_s)
        # The end was found with the extent of the log, a moment ago. After a restart Spark repeats
        # a batch without asking for its end.
        if self._reach is None:
            reach = opened.reach(self.options.criteria, int(start["o"]), int(start["o"]))
            check_history(start, reach.before_at_us)
            extent = reach.extent
        else:
            extent = self._reach.extent
        begin, to = parse_offset(start, extent), parse_offset(end, extent)
        ranges = plan_ranges(opened, self.options, extent, begin, to)
        # Under `failOnDataLoss` it has been raised.
        self._lost += max(0, min(extent.begin, to) - begin)
        return ranges

    def check_selection(self, at: Mapping[str, Any]) -> None:
        """Raises `CheckpointError` for an offset of another selection, unless it was said that the
        query shall go on."""
        change = selection_change(at, self._selection)
        if change is None:
            return
        if self.options.fail_on_selection_change:
            raise CheckpointError(
                f"holdfast data source: {change}. Give the query a new checkpoint, or set"
                " failOnSelectionChange to false to go on so"
            )
        log.warning("%s", change)

    def _beyond(self, begin: int, extent: Extent) -> int:
        """Where a query begins that is to begin behind the end of the log. Raises `OptionError`
        unless it was said that what is missing is no failure."""
        if self.options.fail_on_data_loss:
            raise OptionError(
                "startingOffsets",
                f"is {begin}, but the log ends at {extent.end}; latest begins there, and so does"
                " this with failOnDataLoss=false",
            )
        log.warning("the log ends at %d, not yet at %d: beginning there", extent.end, begin)
        return extent.end

    def _note_taken(self, taken: int) -> None:
        """Adds what tasks have missed since. A broker that has started again counts from 0."""
        since = taken - self._taken if taken >= self._taken else taken
        if since:
            log.warning("retention took %d offsets while tasks were reading them", since)
        self._lost += since
        self._taken = taken

    def must_answer(self, limit: ReadLimit) -> bool:
        """True if what is taken now has an end that must be found: a stream that goes on may come
        back."""
        return self._target is not None or isinstance(limit, ReadAllAvailable)

    def _reached(self, begin: int, limit: ReadLimit) -> Reach:
        is_bounded = isinstance(limit, ReadMaxRows)
        # The target is set before a query without a checkpoint has found where it begins: by then
        # the end may lie further on.
        target = None if self._target is None else max(self._target, begin)
        opened = (
            open_log(self.options, self.patience_s)
            if self.must_answer(limit)
            else open_without_waiting(self.options)
        )
        return opened.reach(
            self.options.criteria,
            begin,
            target,
            rows=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            size_bytes=(self.options.bytes_per_trigger or BYTES_PER_TRIGGER)
            if is_bounded
            else None,
        )

    def _is_too_little(self, reach: Reach) -> bool:
        """True while `minOffsetsPerTrigger` holds the next micro-batch back."""
        least = self.options.offsets_to_wait_for
        if least is None or self._target is not None or self._triggered_s is None:
            return False
        delay_s = self.options.trigger_delay_s
        passed_s = system.monotonic_s() - self._triggered_s
        # What a batch may have at most is no reason to wait: what is left behind it counts, too.
        is_less = reach.rows + reach.behind < least
        return is_less and passed_s < (TRIGGER_DELAY_S if delay_s is None else delay_s)
