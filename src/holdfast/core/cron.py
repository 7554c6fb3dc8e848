"""Moments that a cron expression names: read from text, and the next one after another.

Owns: how Quartz's syntax with six fields, seconds first, is said in croniter's words; the plain one
with five it knows itself. Never: reads a clock; whoever asks says which time it is, and in which
zone the fields are meant.

Where a zone sets its clocks forward, what falls into the gap is due when the clock jumps; where it
sets them back, what is named by the hour that comes twice is due twice.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Final

from croniter import CroniterBadDateError, CroniterError, croniter

_FIELDS: Final = (
    "second, from 0 to 59",
    "minute, from 0 to 59",
    "hour, from 0 to 23",
    "day of the month, from 1 to 31",
    "month, from 1 to 12",
)
_PLAIN_WEEK: Final = "day of the week, from 0 to 7"
_QUARTZ_WEEK: Final = "day of the week, from 1 to 7"
_ANY_DAY: Final = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Cron:
    """The moments that one expression names."""

    expression: str
    """In croniter's syntax, seconds first."""

    def next_us(self, after_us: int, zone: tzinfo) -> int:
        """The first of them after a time, both in microseconds since the epoch."""
        after = datetime.fromtimestamp(after_us // 1_000_000, zone)
        # A day that both fields narrow down, is any that either names, unless one is a step over
        # all: that is plain cron's rule, which croniter calls a bug.
        cron = croniter(self.expression, after, second_at_beginning=True, implement_cron_bug=True)
        return int(cron.get_next(datetime).timestamp()) * 1_000_000


def parse_cron(text: str) -> Cron:
    """The expression that a text holds; `ValueError` says what is wrong with it."""
    fields = text.upper().split()
    if len(fields) == 6:
        if fields[3] not in ("*", "?") and fields[5] not in ("*", "?"):
            raise ValueError("of day of the month and day of the week one has to be ?")
        names = (*_FIELDS, _QUARTZ_WEEK)
        read = [*fields[:5], _plain_week(fields[5])]
    elif len(fields) == 5:
        fields = ["0", *fields]
        names, read = (*_FIELDS, _PLAIN_WEEK), fields
    else:
        raise ValueError(f'"{text}" has {len(fields)} fields, not six (seconds first) or five')
    for place, name in enumerate(names):
        for said, item in zip(fields[place].split(","), read[place].split(","), strict=True):
            if not _is_read(item, place):
                raise ValueError(f'"{said}" is no {name}')
    cron = Cron(" ".join(read).replace("?", "*"))
    try:
        cron.next_us(int(_ANY_DAY.timestamp()) * 1_000_000, UTC)
    except CroniterBadDateError:
        raise ValueError("it names no day that ever comes") from None
    return cron


def _plain_week(field: str) -> str:
    """Days of a week that Quartz counts from 1, counted from 0; the last one of a month, which
    Quartz writes as 6L, the other way round."""
    return ",".join(map(_plain_weekday, field.split(",")))


def _plain_weekday(item: str) -> str:
    if item == "L":
        return "SAT"
    days, *rest = re.split(r"([/#])", item, maxsplit=1)
    days = re.sub(r"[0-9]+", lambda number: str(int(number[0]) - 1), days)
    if len(days) > 1 and days.endswith("L"):
        days = f"L{days[:-1]}"
    return "".join((days, *rest))


def _is_read(item: str, place: int) -> bool:
    """True if croniter takes this as one of a field's items, the others being open."""
    if not re.fullmatch(r"[0-9A-Z*?/#-]+", item):
        return False
    fields = ["*"] * 6
    fields[place] = item.replace("?", "*")
    try:
        croniter.expand(" ".join(fields), second_at_beginning=True)
    except CroniterError:
        return False
    return True
