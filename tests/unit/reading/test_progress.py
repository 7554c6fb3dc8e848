"""When a party was done with messages: by the first record that says so of each."""

from array import array
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from holdfast.reading.progress import done_at_us

PARTY = 7
LOG_BEGIN = 10
RECORDS = [
    # At a time, a range; the third says again what was said before.
    (100, 12, 13),
    (200, 0, 11),
    (300, 0, 13),
    (400, 14, 16),
]


class Log:
    """Tells two records in each answer."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def extent(self) -> SimpleNamespace:
        return SimpleNamespace(begin=LOG_BEGIN)

    def progress(
        self, parties: Sequence[int], begin: int, end: int, number: int, rows_maximum: int
    ) -> tuple[dict[str, Any], int | None]:
        assert (list(parties), begin <= 10, end > 16) == ([PARTY], True, True)
        self.asked.append(number)
        told = RECORDS[number : number + 2]
        columns = {
            name: array("Q", [record[at] for record in told]).tobytes()
            for at, name in enumerate(("at", "begin", "end"))
        }
        rest = number + 2 if number + 2 < len(RECORDS) else None
        return {"rows": len(told), **columns}, rest


def done(*offsets: int, log: Log | None = None) -> dict[int, int]:
    return done_at_us(cast(Any, log or Log()), PARTY, offsets)


def test_the_first_record_that_covers_a_message_has_its_time() -> None:
    assert done(10, 11, 12, 14, 15) == {10: 200, 11: 300, 12: 100, 14: 400, 15: 400}


def test_what_no_record_covers_and_what_lies_before_the_log_has_none() -> None:
    assert done(9, 10, 13, 16) == {10: 200}
    assert done(8, 9) == {}


def test_it_is_read_no_further_than_is_needed() -> None:
    log = Log()
    assert done(10, log=log) == {10: 200}
    assert log.asked == [0]
