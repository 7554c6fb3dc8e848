"""A broker that goes away: what is waited for, for how long, and what no time heals."""

import logging
from typing import Any

import pytest

from holdfast.pipeline.source.patience import PAUSE_MAXIMUM_S, Absence, Patience, PatientLog
from holdfast.reading.criteria import EVERYTHING, Criteria
from holdfast.reading.log import (
    BrokerAwayError,
    Chunk,
    Extent,
    LogChangedError,
    Question,
    Reach,
    UnreadableLogError,
)


class Time:
    """Virtual seconds: waiting lets them pass."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []

    def wait(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds


class AbsentLog:
    """A log whose broker is away until a time."""

    def __init__(self, time: Time, back_at_s: float, epochs: tuple[str, str] = ("e", "e")) -> None:
        self._time, self._back_at_s, self._epochs = time, back_at_s, epochs
        self.failure: Exception = BrokerAwayError("the broker at h:1 does not answer")

    def _answer(self) -> None:
        if 1 <= self._time.now_s < self._back_at_s:
            raise self.failure

    def extent(self) -> Extent:
        self._answer()
        return Extent(self._epochs[self._time.now_s >= 1], 0, 100)

    def offset_at(self, time_us: int) -> int:
        self._answer()
        return time_us

    def reach(self, criteria: Criteria, begin: int | None, end: int | None, **limits: Any) -> Reach:
        raise NotImplementedError

    def split(
        self, criteria: Criteria, begin: int, end: int, parts: int, *, rows: int | None = None
    ) -> list[tuple[int, int]]:
        raise NotImplementedError

    def read(self, question: Question) -> Chunk:
        raise NotImplementedError


def patient(inner: AbsentLog, time: Time, patience_s: float) -> PatientLog:
    log = PatientLog(inner, Patience(patience_s, now_s=lambda: time.now_s, wait=time.wait))
    log.extent()
    time.now_s = 1.0
    return log


def test_a_question_is_asked_again_until_the_broker_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    time = Time()
    log = patient(AbsentLog(time, back_at_s=300), time, float("inf"))
    assert log.offset_at(7) == 7
    assert time.now_s >= 300
    assert time.pauses == sorted(time.pauses)
    assert max(time.pauses) == PAUSE_MAXIMUM_S
    assert "the broker at h:1 does not answer; waiting for it since" in caplog.text
    assert caplog.records[-1].message == "the broker is back"


def test_patience_ends_and_says_which_option_allows_more() -> None:
    time = Time()
    log = patient(AbsentLog(time, back_at_s=300), time, 60.0)
    with pytest.raises(BrokerAwayError, match="waited 60 s, as long as option 'brokerTimeout'"):
        log.offset_at(7)
    assert sum(time.pauses) == pytest.approx(60.0)


def test_another_log_is_not_gone_on_with() -> None:
    time = Time()
    log = patient(AbsentLog(time, 10, epochs=("old", "new")), time, float("inf"))
    with pytest.raises(LogChangedError, match="another log: epoch new in place of old"):
        log.offset_at(7)


def test_what_time_does_not_heal_is_not_waited_for() -> None:
    time = Time()
    inner = AbsentLog(time, back_at_s=300)
    inner.failure = UnreadableLogError("refused")
    with pytest.raises(UnreadableLogError, match="refused"):
        patient(inner, time, float("inf")).offset_at(7)
    assert time.pauses == []


def test_an_absence_says_what_is_waited_for_while_it_lasts() -> None:
    time = Time()
    absence = Absence(float("inf"), now_s=lambda: time.now_s)
    assert absence.told() is None
    time.wait(absence.begin_or_go_on(BrokerAwayError("no answer")))
    time.now_s = 12.0
    assert absence.told() == "no answer; waiting for it since 12 s"
    assert absence.end()
    assert absence.told() is None
    assert not absence.end()


def test_everything_means_every_topic() -> None:
    assert str(EVERYTHING) == "#"
    assert str(Criteria(filters=tuple("abcdefg"))) == "a, b, c, d, e and 2 more"
