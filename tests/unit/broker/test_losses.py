"""The loss ledger: rows that go ahead of the progress over what they tell of."""

from typing import Any

import pytest

from holdfast.broker.delivery import losses as losses_module
from holdfast.broker.delivery.losses import (
    RANGES_MAXIMUM,
    REASONS,
    ROWS_PER_SWEEP_MAXIMUM,
    Losses,
    Lost,
    loss_of,
)
from holdfast.broker.store.tables import parse_loss
from holdfast.core.loss_reason import LossReason
from holdfast.kernel import NoticeKind


class Records:
    """Keeps what is put, by key."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}

    def refresh(self) -> "Records":
        return self

    def last_loss(self) -> int:
        return 0

    def first_loss(self) -> int:
        return 0

    def put(self, _table: int, key: bytes, value: bytes, _now_us: int) -> int:
        self.rows[key] = value
        return 0

    def get(self, _table: int, key: bytes) -> bytes:
        return self.rows.get(key, b"")

    def counts(self) -> list[int]:
        return [parse_loss(value).count for value in self.rows.values()]


def _losses() -> tuple[Losses, Records]:
    records: Any = Records()
    return Losses(records), records


def _note(losses: Losses, *lost: Lost) -> None:
    losses.note(lost, lambda party: f"client-{party}", 1)


def test_each_kind_of_notice_has_its_reason_and_is_counted_by_it() -> None:
    kinds = [kind for kind in vars(NoticeKind).values() if isinstance(kind, NoticeKind)]
    assert len(kinds) == len(set(kinds)) == len(set(REASONS.values()))
    losses, _ = _losses()
    losses.notice([(1, kind, 0, 0, 2) for kind in kinds], str, 1)
    assert losses.by_reason == dict.fromkeys(REASONS.values(), 2)


def test_a_promised_loss_is_written_ahead_and_more_of_it_joins_its_row() -> None:
    losses, records = _losses()
    _note(losses, (1, LossReason.TOO_LARGE, 0, 0, 2))
    losses.write_ahead(1)
    assert records.counts() == [2]
    _note(losses, (1, LossReason.TOO_LARGE, 0, 0, 3))
    losses.write_ahead(2)
    assert records.counts() == [5]
    losses.write(3)
    _note(losses, (1, LossReason.TOO_LARGE, 0, 0, 1))
    losses.write_ahead(4)
    assert records.counts() == [5, 1], "a sweep ends the row"


def test_a_row_has_one_warning_however_often_it_was_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    losses, _ = _losses()
    for number in range(5):
        _note(losses, (1, LossReason.TOPIC, number, number + 1, 1))
        losses.write_ahead(1)
    _note(losses, (2, LossReason.TOPIC, 7, 8, 1))
    losses.write_ahead(1)
    assert losses.find(2) is not None, "nothing joins it any more"
    losses.write(2)
    losses.write(3)
    told = [vars(record)["fields"] for record in caplog.records]
    assert [(each["client_identifier"], each["messages"]) for each in told] == [
        ("client-2", 1),
        ("client-1", 5),
    ]


def test_what_nobody_was_promised_waits_for_the_sweep() -> None:
    losses, records = _losses()
    _note(losses, (1, LossReason.SLOW_READER, 0, 0, 2))
    losses.write_ahead(1)
    assert not records.rows
    losses.write(2)
    assert records.counts() == [2]


def test_not_more_rows_go_ahead_than_one_sweep_may_write() -> None:
    losses, records = _losses()
    for party in range(ROWS_PER_SWEEP_MAXIMUM + 10):
        _note(losses, (party, LossReason.EXPIRED, party, party + 1, 1))
        losses.write_ahead(1)
    assert len(records.rows) == ROWS_PER_SWEEP_MAXIMUM
    losses.write(2)
    assert len(records.rows) == ROWS_PER_SWEEP_MAXIMUM + 10


def test_a_row_tells_each_range_that_was_lost() -> None:
    losses, records = _losses()
    _note(losses, (1, "refused", 5, 6, 1), (1, "refused", 9, 12, 3), (1, "refused", 6, 7, 1))
    losses.write_ahead(1)
    (value,) = records.rows.values()
    loss = parse_loss(value)
    assert (loss.first_offset, loss.end_offset, loss.count) == (5, 12, 5)
    assert loss.spans == loss.ranges == ((5, 7), (9, 12))


def test_a_row_has_so_many_ranges_and_the_newest_are_told_as_one() -> None:
    losses, records = _losses()
    count = RANGES_MAXIMUM + 10
    _note(losses, *((1, "refused", 3 * place, 3 * place + 1, 1) for place in range(count)))
    losses.write_ahead(1)
    (value,) = records.rows.values()
    loss = parse_loss(value)
    assert (len(loss.spans), loss.count) == (RANGES_MAXIMUM, count)
    assert loss.spans[-2:] == (
        (3 * (RANGES_MAXIMUM - 2), 3 * (RANGES_MAXIMUM - 2) + 1),
        (3 * (RANGES_MAXIMUM - 1), 3 * (count - 1) + 1),
    )


def test_what_stands_in_for_another_loses_for_it() -> None:
    losses, records = _losses()
    losses.stand_ins[7] = 1
    _note(losses, (7, LossReason.TOO_LARGE, 5, 6, 1))
    losses.write_ahead(1)
    (value,) = records.rows.values()
    assert (parse_loss(value).party, parse_loss(value).client_identifier) == (1, "client-1")


def test_a_row_that_is_driven_again_is_not_added_to() -> None:
    losses, records = _losses()
    _note(losses, (1, "refused", 5, 6, 1))
    losses.write_ahead(1)
    loss = losses.find(1)
    assert loss is not None
    losses.redriven(1, loss, 9)
    _note(losses, (1, "refused", 8, 9, 1))
    losses.write_ahead(2)
    rows = [parse_loss(value) for value in records.rows.values()]
    assert [(row.spans, row.redriven_at_us) for row in rows] == [
        (((5, 6),), 9),
        (((8, 9),), None),
    ]
    assert losses.find(2) == rows[1]
    assert losses.find(3) is None


def test_what_retention_takes_is_on_record_at_once_with_what_waited_of_the_same() -> None:
    losses, records = _losses()
    _note(losses, (1, LossReason.RETENTION, 5, 6, 1))
    losses.record(loss_of("client-1", 1, LossReason.RETENTION, [(8, 12)], 4, 1), 1)
    (value,) = records.rows.values()
    assert (parse_loss(value).spans, parse_loss(value).count) == (((5, 6), (8, 12)), 5)


def test_a_sweep_has_room_for_so_many_that_are_on_record_at_once() -> None:
    losses, _ = _losses()
    for party in range(ROWS_PER_SWEEP_MAXIMUM):
        assert losses.has_room()
        losses.record(loss_of(f"client-{party}", party, LossReason.RETENTION, [(1, 2)], 1, 1), 1)
    assert not losses.has_room()
    losses.write(2)
    assert losses.has_room()


def test_the_oldest_rows_leave_a_full_ledger_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses_module, "LEDGER_ROWS_MAXIMUM", 3)
    losses, records = _losses()
    for party in range(5):
        _note(losses, (party, "refused", 5, 6, 1))
        losses.write(1)
    for _ in range(2):
        losses.trim(2)
    removed = [int.from_bytes(key, "big") for key, value in records.rows.items() if not value]
    assert removed == [1, 2]
    assert losses.rows_removed == 2
