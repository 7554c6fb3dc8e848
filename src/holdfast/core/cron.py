"""Moments that a cron expression names: read from text, and the next one after another.

Owns: Quartz's syntax with six fields, seconds first, and the plain one with five. Never: reads a
clock; whoever asks says which time it is, and in which zone the fields are meant.

Where a zone sets its clocks forward, what falls into the gap is due when the clock jumps; where it
sets them back, what is named by the hour that comes twice is due twice.
"""

import calendar
import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final

Day = Callable[[date], bool]
"""Whether a day is one of those that a field names."""

_ONE_DAY: Final = timedelta(days=1)
_SECOND: Final = timedelta(seconds=1)
_DAYS_AHEAD_MAXIMUM: Final = 40 * 366
"""How far is looked for the next day: a 29th of February that is a Monday may be 40 years away."""
_ANY_DAY: Final = date(2000, 1, 1)
_MONTHS: Final = dict(zip(calendar.month_abbr[1:], range(1, 13), strict=True))
_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
"""By their numbers, Sunday being 0 here."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    first: int
    last: int
    words: dict[str, int]


_SECONDS: Final = _Field("second", 0, 59, {})
_MINUTES: Final = _Field("minute", 0, 59, {})
_HOURS: Final = _Field("hour", 0, 23, {})
_DAYS: Final = _Field("day of the month", 1, 31, {})
_MONTH: Final = _Field("month", 1, 12, {name.upper(): at for name, at in _MONTHS.items()})
# Cron counts the days of a week from 0 and takes 7 for Sunday too; Quartz counts from 1.
_PLAIN_WEEK: Final = _Field("day of the week", 0, 7, {name: n for n, name in enumerate(_WEEKDAYS)})
_QUARTZ_WEEK: Final = _Field(
    "day of the week", 1, 7, {name: n for n, name in enumerate(_WEEKDAYS, start=1)}
)


@dataclass(frozen=True, slots=True)
class Cron:
    """The moments that one expression names."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    months: tuple[int, ...]
    is_day: Day

    def next_us(self, after_us: int, zone: tzinfo) -> int:
        """The first of them after a time, both in microseconds since the epoch."""
        begin = datetime.fromtimestamp(after_us // 1_000_000, UTC) + _SECOND
        while True:
            offset = _offset(begin, zone)
            wall = self._next_wall(begin.replace(tzinfo=None) + offset)
            due = (wall - offset).replace(tzinfo=UTC)
            change = _change(begin, due, zone)
            if change is None:
                return int(due.timestamp()) * 1_000_000
            begin = change
            if wall < begin.replace(tzinfo=None) + _offset(begin, zone):
                # The clock has jumped over it.
                return int(begin.timestamp()) * 1_000_000

    def _next_wall(self, wall: datetime) -> datetime:
        """The first moment not before this one, by a clock that is never set."""
        day, at = wall.date(), wall.time()
        for _ in range(_DAYS_AHEAD_MAXIMUM):
            if day.month in self.months and self.is_day(day):
                found = self._time_from(at)
                if found is not None:
                    return datetime.combine(day, found)
            day, at = day + _ONE_DAY, time.min
        raise ValueError("it names no day that ever comes")

    def _time_from(self, at: time) -> time | None:
        hours, minutes, seconds = self.hours, self.minutes, self.seconds
        if at.hour in hours:
            if at.minute in minutes and seconds[-1] >= at.second:
                return time(at.hour, at.minute, seconds[bisect_left(seconds, at.second)])
            later = bisect_left(minutes, at.minute + 1)
            if later < len(minutes):
                return time(at.hour, minutes[later], seconds[0])
        later = bisect_left(hours, at.hour + 1)
        return time(hours[later], minutes[0], seconds[0]) if later < len(hours) else None


def parse_cron(text: str) -> Cron:
    """The expression that a text holds; `ValueError` says what is wrong with it."""
    fields = text.upper().split()
    if len(fields) == 6:
        seconds = _numbers(fields[0], _SECONDS)
        week, first_of_week = _QUARTZ_WEEK, 1
    elif len(fields) == 5:
        seconds = (0,)
        fields = ["", *fields]
        week, first_of_week = _PLAIN_WEEK, 0
    else:
        raise ValueError(f'"{text}" has {len(fields)} fields, not six (seconds first) or five')
    _, minutes, hours, days, months, weekdays = fields
    wanted = [
        *([] if _is_open(days) else [_days_of_month(days)]),
        *([] if _is_open(weekdays) else [_days_of_week(weekdays, week, first_of_week)]),
    ]
    if len(wanted) == 2 and week is _QUARTZ_WEEK:
        raise ValueError("of day of the month and day of the week one has to be ?")
    # Plain cron's rule for a day that both fields narrow down: either will do, unless one of them
    # is a step over all.
    every = not wanted or days.startswith("*") or weekdays.startswith("*")
    cron = Cron(
        seconds,
        _numbers(minutes, _MINUTES),
        _numbers(hours, _HOURS),
        _numbers(months, _MONTH),
        _all_of(wanted) if every else _any_of(wanted),
    )
    cron._next_wall(datetime.combine(_ANY_DAY, time.min))
    return cron


def _is_open(field: str) -> bool:
    return field in ("*", "?")


def _all_of(days: list[Day]) -> Day:
    return lambda day: all(is_day(day) for is_day in days)


def _any_of(days: list[Day]) -> Day:
    return lambda day: any(is_day(day) for is_day in days)


def _days_of_month(field: str) -> Day:
    return _any_of([_day_of_month(item) for item in field.split(",")])


def _day_of_month(item: str) -> Day:
    if match := re.fullmatch(r"L(?:-(\d{1,2}))?", item):
        before = int(match[1] or 0)
        return lambda day: day.day == _days_in(day) - before
    if match := re.fullmatch(r"(L|\d{1,2})W", item):
        number = None if match[1] == "L" else _number(match[1], _DAYS)
        return lambda day: day.day == _nearest_weekday(day, number or _days_in(day))
    numbers = _numbers(item, _DAYS)
    return lambda day: day.day in numbers


def _days_of_week(field: str, week: _Field, first: int) -> Day:
    return _any_of([_day_of_week(item, week, first) for item in field.split(",")])


def _day_of_week(item: str, week: _Field, first: int) -> Day:
    """Numbers are turned to Python's, in which Sunday is the seventh."""

    def python(number: int) -> int:
        return (number - first - 1) % 7

    if match := re.fullmatch(r"(\w+)#([1-5])", item):
        weekday, which = python(_number(match[1], week)), int(match[2])
        return lambda day: day.weekday() == weekday and (day.day - 1) // 7 == which - 1
    if match := re.fullmatch(r"(\w+)L", item):
        last = python(_number(match[1], week))
        return lambda day: day.weekday() == last and day.day + 7 > _days_in(day)
    if item == "L":
        item = "SAT"
    numbers = {python(number) for number in _numbers(item, week)}
    return lambda day: day.weekday() in numbers


def _numbers(field: str, of: _Field) -> tuple[int, ...]:
    """Every number that a list of numbers, ranges and steps names, in order."""
    found: set[int] = set()
    for item in field.split(","):
        match = re.fullmatch(r"(\*|\?|\w+)(?:-(\w+))?(?:/(\d{1,2}))?", item)
        if match is None or (match[1] in "*?" and match[2]):
            raise ValueError(f'"{item}" is no {of.name}')
        step = int(match[3] or 1)
        if step == 0:
            raise ValueError(f'"{item}" goes in steps of 0')
        if match[1] in "*?":
            first, last = of.first, of.last
        else:
            first = _number(match[1], of)
            last = _number(match[2], of) if match[2] else of.last if match[3] else first
        span = of.last - of.first + (of is not _PLAIN_WEEK)
        if last < first:
            # Over the end and on from the beginning: FRI-MON, 22-2.
            last += span
        found |= {(number - of.first) % span + of.first for number in range(first, last + 1, step)}
    return tuple(sorted(found))


def _number(text: str, of: _Field) -> int:
    number = of.words.get(text)
    if number is None and re.fullmatch(r"[0-9]{1,2}", text):
        number = int(text)
    if number is None or not of.first <= number <= of.last:
        raise ValueError(f'"{text}" is no {of.name}, from {of.first} to {of.last}')
    return number


def _days_in(day: date) -> int:
    return calendar.monthrange(day.year, day.month)[1]


def _nearest_weekday(day: date, number: int) -> int | None:
    """The day from Monday to Friday that is nearest to a day of this month, and within it."""
    if number > _days_in(day):
        return None
    weekday = day.replace(day=number).weekday()
    if weekday == calendar.SATURDAY:
        return number - 1 if number > 1 else 3
    if weekday == calendar.SUNDAY:
        return number + 1 if number < _days_in(day) else number - 2
    return number


def _offset(moment: datetime, zone: tzinfo) -> timedelta:
    offset = moment.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def _change(begin: datetime, end: datetime, zone: tzinfo) -> datetime | None:
    """The first second after `begin`, up to `end`, at which the zone's clocks have been set."""
    if zone is UTC:
        return None
    offset, before = _offset(begin, zone), begin
    while before < end:
        after = min(before + _ONE_DAY, end)
        if _offset(after, zone) != offset:
            while after - before > _SECOND:
                middle = before + (after - before) // 2
                middle = middle.replace(microsecond=0)
                if _offset(middle, zone) == offset:
                    before = middle
                else:
                    after = middle
            return after
        before = after
    return None
