"""Wait for a broker that is away: it is restarted, or a connection was cut.

Owns: how long is waited, with which pauses, and what is said meanwhile.
Never: waits for what time does not heal: another log, refused credentials, data loss.

Invariants:
1. What is asked again is the same question, so that an answer that was cut off leaves no trace.
2. After a wait the log is the same one, or `LogChangedError` is raised.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from holdfast import system
from holdfast.reading.criteria import Criteria
from holdfast.reading.log import (
    BrokerAwayError,
    Chunk,
    Extent,
    LogChangedError,
    Question,
    Reach,
    ReadableLog,
)

PAUSE_S: Final = 0.1
"""The first pause; each is twice the one before, ..."""
PAUSE_MAXIMUM_S: Final = 5.0
"""... and none longer: a broker that is back is found within so much time."""
BATCH_PATIENCE_S: Final = 60.0
"""For batches, where somebody waits for an answer. A stream waits for ever."""

log = logging.getLogger(__name__)
T = TypeVar("T")
Wait = Callable[[float], object]


def wait_s(seconds: float) -> None:
    """Lets so much time pass."""
    threading.Event().wait(seconds)


class Absence:
    """How long a broker has been away, and how much longer that may last."""

    def __init__(
        self, patience_s: float, *, now_s: Callable[[], float] = system.monotonic_s
    ) -> None:
        self._patience_s = patience_s
        self._now_s = now_s
        self._since_s: float | None = None
        self._pause_s = PAUSE_S
        self._reason = ""

    def begin_or_go_on(self, away: BrokerAwayError) -> float:
        """For how long to wait now. Raises if that has gone on for too long."""
        now = self._now_s()
        self._since_s = now if self._since_s is None else self._since_s
        gone_s = now - self._since_s
        if gone_s >= self._patience_s:
            raise BrokerAwayError(
                f"{away}; waited {gone_s:.0f} s, as long as option 'brokerTimeout' allows"
            ) from away
        self._reason = str(away)
        pause, self._pause_s = self._pause_s, min(PAUSE_MAXIMUM_S, self._pause_s * 2)
        log.warning("%s; waiting for it since %.1f s", away, gone_s)
        return min(pause, self._patience_s - gone_s)

    def end(self) -> bool:
        """The broker has answered. True if it had been away."""
        was_away, self._since_s, self._pause_s = self._since_s is not None, None, PAUSE_S
        return was_away

    def told(self) -> str | None:
        """What is waited for, in words; `None` while nothing is."""
        if self._since_s is None:
            return None
        return f"{self._reason}; waiting for it since {self._now_s() - self._since_s:.0f} s"


class Patience:
    """Asks, and asks again while the broker is away."""

    def __init__(
        self,
        patience_s: float,
        *,
        now_s: Callable[[], float] = system.monotonic_s,
        wait: Wait = wait_s,
    ) -> None:
        self._absence = Absence(patience_s, now_s=now_s)
        self._wait = wait

    def is_tried(self) -> bool:
        """True from a question that found the broker away until the next answer."""
        return self._absence.told() is not None

    def ask(self, question: Callable[[], T]) -> T:
        """The answer. Raises `BrokerAwayError` if none has come for too long, and whatever else the
        question raises at once."""
        while True:
            try:
                answer = question()
            except BrokerAwayError as away:
                self._wait(self._absence.begin_or_go_on(away))
                continue
            if self._absence.end():
                log.warning("the broker is back")
            return answer


class PatientLog:
    """A `ReadableLog` that waits while the broker is away."""

    def __init__(self, inner: ReadableLog, patience: Patience) -> None:
        self._inner = inner
        self._patience = patience
        self._epoch: str | None = None

    def extent(self) -> Extent:
        """Which log it is, and what of it can be read now."""
        extent = self._patiently(self._inner.extent)
        self._epoch = extent.epoch
        return extent

    def offset_at(self, time_us: int) -> int:
        """The first offset appended at or after a time."""
        return self._patiently(lambda: self._inner.offset_at(time_us))

    def reach(
        self,
        criteria: Criteria,
        begin: int | None,
        end: int | None,
        *,
        rows: int | None = None,
        size_bytes: int | None = None,
    ) -> Reach:
        """The end of a range with so much in it."""
        return self._patiently(
            lambda: self._inner.reach(criteria, begin, end, rows=rows, size_bytes=size_bytes)
        )

    def split(
        self, criteria: Criteria, begin: int, end: int, parts: int, *, rows: int | None = None
    ) -> list[tuple[int, int]]:
        """Ranges that cover the range."""
        return self._patiently(lambda: self._inner.split(criteria, begin, end, parts, rows=rows))

    def read(self, question: Question) -> Chunk:
        """The matching messages from `begin` on."""
        return self._patiently(lambda: self._inner.read(question))

    def _patiently(self, ask: Callable[[], T]) -> T:
        def of_this_log() -> T:
            if self._epoch is not None and self._patience.is_tried():
                check_same_log(self._epoch, self._inner.extent().epoch)
            return ask()

        return self._patience.ask(of_this_log)


def check_same_log(epoch: str, found: str) -> None:
    """Raises if what was found is not the log of this epoch."""
    if epoch != found:
        raise LogChangedError(
            f"the broker came back with another log: epoch {found} in place of {epoch}"
        )
