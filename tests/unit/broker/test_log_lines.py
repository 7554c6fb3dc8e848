"""Log lines hold what peers send, and their number."""

import json
import logging

import pytest

from holdfast.broker.log_lines import FIELD_CHARACTERS_MAXIMUM, LineRate, LogLine


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
