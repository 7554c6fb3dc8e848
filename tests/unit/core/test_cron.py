"""Cron expressions: the moments they name, in a zone that sets its clocks, and what is refused."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from holdfast.core.cron import parse_cron

BERLIN = ZoneInfo("Europe/Berlin")
"""02:00 to 03:00 is missing on 2026-03-29, and comes twice on 2026-10-25."""


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 1_000_000


def moments(expression: str, after: str, count: int, zone: ZoneInfo | None = None) -> list[str]:
    cron, now_us, found = parse_cron(expression), at(after), []
    for _ in range(count):
        now_us = cron.next_us(now_us, zone or UTC)
        moment = datetime.fromtimestamp(now_us / 1_000_000, zone or UTC)
        found.append(moment.strftime("%Y-%m-%d %H:%M:%S"))
    return found


@pytest.mark.parametrize(
    ("expression", "following"),
    [
        ("0 0 * ? * *", ["2026-01-31 23:00:00", "2026-02-01 00:00:00"]),
        ("0 * * * *", ["2026-01-31 23:00:00", "2026-02-01 00:00:00"]),
        ("30 15 10 * * ?", ["2026-02-01 10:15:30", "2026-02-02 10:15:30"]),
        ("*/20 58 22 * * ?", ["2026-01-31 22:58:20", "2026-01-31 22:58:40"]),
        ("0 0/25 22 * * ?", ["2026-02-01 22:00:00", "2026-02-01 22:25:00"]),
        ("0 0 22-2 * * ?", ["2026-01-31 23:00:00", "2026-02-01 00:00:00"]),
        ("0 0 4 ? * 1", ["2026-02-01 04:00:00", "2026-02-08 04:00:00"]),  # Sunday
        ("0 4 * * 1", ["2026-02-02 04:00:00", "2026-02-09 04:00:00"]),  # Monday
        ("0 4 * * 0", ["2026-02-01 04:00:00", "2026-02-08 04:00:00"]),
        ("0 4 * * 7", ["2026-02-01 04:00:00", "2026-02-08 04:00:00"]),
        ("0 4 * * 5-7", ["2026-02-01 04:00:00", "2026-02-06 04:00:00"]),
        ("0 0 4 ? * FRI-SUN", ["2026-02-01 04:00:00", "2026-02-06 04:00:00"]),
        ("0 0 4 ? * mon,wed", ["2026-02-02 04:00:00", "2026-02-04 04:00:00"]),
        ("0 0 4 ? * 6#3", ["2026-02-20 04:00:00", "2026-03-20 04:00:00"]),  # third Friday
        ("0 0 4 ? * 6L", ["2026-02-27 04:00:00", "2026-03-27 04:00:00"]),  # last Friday
        ("0 0 4 ? * L", ["2026-02-07 04:00:00", "2026-02-14 04:00:00"]),  # Saturday
        ("0 0 4 L * ?", ["2026-02-28 04:00:00", "2026-03-31 04:00:00"]),
        ("0 0 4 1W * ?", ["2026-02-02 04:00:00", "2026-03-02 04:00:00"]),  # the 1st is a Sunday
        ("0 0 4 15W * ?", ["2026-02-16 04:00:00", "2026-03-16 04:00:00"]),
        ("0 0 0 29 2 ?", ["2028-02-29 00:00:00", "2032-02-29 00:00:00"]),
        ("0 0 0 1 JAN,JUL ?", ["2026-07-01 00:00:00", "2027-01-01 00:00:00"]),
        # Plain cron takes either day, unless a field steps over all of them.
        ("0 4 13 * FRI", ["2026-02-06 04:00:00", "2026-02-13 04:00:00"]),
        ("0 4 */31 * SUN", ["2026-02-01 04:00:00", "2026-03-01 04:00:00"]),
    ],
)
def test_an_expression_names_its_moments(expression: str, following: list[str]) -> None:
    assert moments(expression, "2026-01-31T22:58:00Z", 2) == following


def test_a_moment_does_not_follow_itself() -> None:
    noon = at("2026-05-05T12:00:00Z")
    cron = parse_cron("0 0 12 * * ?")
    assert cron.next_us(noon - 1, UTC) == noon
    assert cron.next_us(noon, UTC) == at("2026-05-06T12:00:00Z")


def test_the_fields_are_meant_in_the_zone() -> None:
    assert moments("0 30 4 * * ?", "2026-07-01T12:00:00Z", 1, BERLIN) == ["2026-07-02 04:30:00"]
    assert parse_cron("0 30 4 * * ?").next_us(at("2026-07-01T12:00:00Z"), BERLIN) == at(
        "2026-07-02T02:30:00Z"
    )


@pytest.mark.accepts("S2.40")
def test_what_a_clock_jumps_over_is_due_when_it_jumps() -> None:
    found = moments("0 30 2 * * ?", "2026-03-28T12:00:00Z", 2, BERLIN)
    assert found == ["2026-03-29 03:00:00", "2026-03-30 02:30:00"]


@pytest.mark.accepts("S2.40")
def test_every_hour_is_every_hour_when_clocks_are_set() -> None:
    hour = 3_600 * 1_000_000
    cron = parse_cron("0 0 * ? * *")
    for day in ("2026-03-28T22:00:00Z", "2026-10-24T22:00:00Z"):
        now_us = at(day)
        for _ in range(8):
            assert cron.next_us(now_us, BERLIN) == now_us + hour
            now_us += hour


def test_a_time_that_comes_twice_is_due_twice() -> None:
    cron = parse_cron("0 30 2 * * ?")
    first = cron.next_us(at("2026-10-24T22:00:00Z"), BERLIN)
    second = cron.next_us(first, BERLIN)
    third = cron.next_us(second, BERLIN)
    assert first == at("2026-10-25T00:30:00Z")
    assert second == at("2026-10-25T01:30:00Z")
    assert third == at("2026-10-26T01:30:00Z")


def test_a_year_ahead_is_found_over_every_change_between() -> None:
    assert moments("0 30 2 25 10 ?", "2026-10-26T00:00:00Z", 1, BERLIN) == ["2027-10-25 02:30:00"]
    assert parse_cron("0 30 2 25 10 ?").next_us(at("2026-01-01T00:00:00Z"), BERLIN) == at(
        "2026-10-25T00:30:00Z"
    )


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "0 fields"),
        ("0 0 * ?", "4 fields"),
        ("0 0 * ? * * 2026", "7 fields"),
        ("60 0 * ? * *", '"60" is no second, from 0 to 59'),
        ("0 0 24 ? * *", '"24" is no hour, from 0 to 23'),
        ("0 0 0 0 * ?", '"0" is no day of the month, from 1 to 31'),
        ("0 0 0 1 13 ?", '"13" is no month, from 1 to 12'),
        ("0 0 0 ? * 0", '"0" is no day of the week, from 1 to 7'),
        ("0 0 * * 8", '"8" is no day of the week, from 0 to 7'),
        ("0 0 0 1 * MON", "one has to be ?"),
        ("0 0 0 30 2 ?", "no day that ever comes"),
        ("0 */0 * ? * *", '"*/0" is no minute'),
        ("0 1- * ? * *", '"1-" is no minute'),
        ("0 *-5 * ? * *", '"*-5" is no minute'),
        ("0 five * ? * *", '"FIVE" is no minute'),
        ("0 ٣ * ? * *", "is no minute"),
        ("0 0 0 ? * ٣", "is no day of the week"),
        ("0 0 0 ? * FRI#6", "is no day of the week"),
        ("0 0 0 32W * ?", '"32W" is no day of the month'),
        ("0 0 0 LW * ?", '"LW" is no day of the month'),
        ("0 0 0 1,L-2 * ?", '"L-2" is no day of the month'),
    ],
)
def test_what_is_no_expression_is_refused_with_a_reason(expression: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_cron(expression)
    assert reason in str(caught.value)
