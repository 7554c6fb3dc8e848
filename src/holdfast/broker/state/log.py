"""The log as it is seen from outside: where it begins and ends, and questions to it."""

from dataclasses import dataclass

from holdfast.broker.store.questions import EXACT, Inquiry
from holdfast.kernel import Log


@dataclass(frozen=True, slots=True)
class RetainedPart:
    """Some of the retained messages that match."""

    offsets: list[int]
    reached: int
    """Where the next part begins."""


class LogState:
    """Reads of a log, none of which waits for its disk."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def epoch(self) -> str:
        """Which log it is."""
        return self._log.epoch()

    def size_bytes(self) -> int:
        """Of all its files."""
        return self._log.statistics()["bytes"]

    def begin_offset(self) -> int:
        """The first offset that it has."""
        return self._log.begin_offset()

    def end_offset(self) -> int:
        """The offset that the next message gets."""
        return self._log.end_offset()

    def durable_offset(self) -> int:
        """Everything below it is durable."""
        return self._log.durable_offset()

    def stored_at_us(self, offset: int) -> int | None:
        """When a message was stored, if that is known."""
        return self._log.stored_at(offset)

    def offset_at(self, time_us: int) -> int:
        """The first offset appended at or after a time."""
        return self._log.offset_at(time_us)

    def retained(self, topic_filter: str, begin: int, limit: int) -> RetainedPart:
        """Retained messages from an offset on, as far as one look goes."""
        return RetainedPart(*self._log.retained(topic_filter.encode(), begin, limit))

    def inquire(self, effort_maximum: int = EXACT) -> Inquiry:
        """Questions about what lies between two offsets, asked in pieces."""
        return Inquiry(self._log, effort_maximum)
