"""Log lines hold what peers send, and their number."""

import json
import logging

import pytest

from holdfast.broker import log_lines
from holdfast.broker.log_lines import (
    FIELD_CHARACTERS_MAXIMUM,
    LINES_MAXIMUM_DEFAULT,
    FrequentEvent,
    LineRate,
    LogLine,
)


def line(**fields: object) -> str:
    record = logging.LogRecord("x", logging.INFO, "", 0, "client connected", (), None)
    record.fields = fields
    return LogLine().format(record)


@pytest.mark.parametrize(
    "name",
    [
        "a\nb",
        "a\r\n2026-01-01T00:00:00.000Z info forged",
        "\x1b[31mred",
        "a b",
        'a"b',
        "a=b",
        "a\\nb",
        "\u2028",
        "\u202eevil",
        "\x00",
        "\x7f",
        "ü",
        "",
    ],
)
def test_whatever_a_client_calls_itself_stays_in_one_field_of_one_line(name: str) -> None:
    written = line(client_identifier=name, peer="p")
    assert written.isascii()
    assert written.isprintable()
    before, _, rest = written.partition("client_identifier=")
    assert before.endswith('"client connected" ')
    quoted, _, peer = rest.rpartition(" peer=")
    assert peer == "p"
    assert json.loads(quoted) == name


def test_a_plain_name_is_written_plainly() -> None:
    assert line(client_identifier="zebra/fx-7_a:1").endswith(" client_identifier=zebra/fx-7_a:1")


def test_a_long_field_is_cut() -> None:
    assert len(line(client_identifier="x" * 65_535)) < FIELD_CHARACTERS_MAXIMUM + 100


def test_one_kind_of_event_has_a_bounded_number_of_lines_and_none_goes_uncounted() -> None:
    rate = LineRate(2)

    def passes(event: str, second: int, level: int = logging.INFO) -> logging.LogRecord | None:
        record = logging.LogRecord("x", level, "", 0, event, (), None)
        record.created = float(second)
        return record if rate.filter(record) else None

    assert [bool(passes("connected", 1)) for _ in range(5)] == [True, True, False, False, False]
    assert passes("refused", 1) is not None
    assert all(passes("broken", 1, logging.ERROR) for _ in range(5))
    later = passes("connected", 2)
    assert later is not None
    assert LogLine().format(later).endswith("connected left_out=3")
    again = passes("connected", 2)
    assert again is not None
    assert "left_out" not in LogLine().format(again)


def test_a_frequent_event_is_decided_about_before_it_has_fields(
    caplog: pytest.LogCaptureFixture,
) -> None:
    event = FrequentEvent(logging.getLogger("frequent"), "client connected")
    with caplog.at_level(logging.INFO):
        due = [event.is_due(1_000_000) for _ in range(LINES_MAXIMUM_DEFAULT + 7)]
        assert due.count(True) == due.index(False) == LINES_MAXIMUM_DEFAULT
        assert event.is_due(2_000_000)
        event.write({"client_identifier": "one more"})
        assert event.is_due(2_000_000)
        event.write({"client_identifier": "another"})
    first, second = caplog.records
    # The handler has its own count of lines, and leaves this one alone.
    assert LineRate(0).filter(first)
    assert (
        LogLine()
        .format(first)
        .endswith('info "client connected" left_out=7 client_identifier="one more"')
    )
    assert "left_out" not in LogLine().format(second)


def test_what_is_not_logged_at_this_level_is_not_due() -> None:
    quiet = logging.getLogger("frequent.quiet")
    quiet.setLevel(logging.WARNING)
    assert not FrequentEvent(quiet, "client connected").is_due(0)


def test_more_lines_can_be_asked_for_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    rate = LineRate(1)
    monkeypatch.setattr(log_lines, "_rate", rate)
    event = FrequentEvent(logging.getLogger("frequent.more"), "client connected")
    logging.getLogger("frequent.more").setLevel(logging.INFO)
    assert [event.is_due(0) for _ in range(3)] == [True, False, False]
    rate.lines_maximum = 10
    assert event.is_due(0)
