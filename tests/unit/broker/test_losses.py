"""The loss ledger: rows that go ahead of the progress over what they tell of."""

from typing import Any

from holdfast.broker.dispatch.losses import ROWS_PER_SWEEP_MAXIMUM, Losses
from holdfast.broker.store.tables import parse_loss

Notice = tuple[int, str, int, int, int]


class Records:
    """Keeps what is put, by key."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}

    def refresh(self) -> "Records":
        return self

    def last_loss(self) -> int:
        return 0

    def put(self, _table: int, key: bytes, value: bytes, _now_us: int) -> int:
        self.rows[key] = value
        return 0

    def counts(self) -> list[int]:
        return [parse_loss(value).count for value in self.rows.values()]


def _losses() -> tuple[Losses, Records]:
    records: Any = Records()
    return Losses(records), records


def _note(losses: Losses, *notices: Notice) -> None:
    losses.note(notices, lambda party: f"client-{party}", 1)


def test_a_promised_loss_is_written_ahead_and_more_of_it_joins_its_row() -> None:
    losses, records = _losses()
    _note(losses, (1, "too_large", 0, 0, 2))
    losses.write_ahead(1)
    assert records.counts() == [2]
    _note(losses, (1, "too_large", 0, 0, 3))
    losses.write_ahead(2)
    assert records.counts() == [5]
    losses.write(3)
    _note(losses, (1, "too_large", 0, 0, 1))
    losses.write_ahead(4)
    assert records.counts() == [5, 1], "a sweep ends the row"


def test_what_nobody_was_promised_waits_for_the_sweep() -> None:
    losses, records = _losses()
    _note(losses, (1, "slow_reader", 0, 0, 2))
    losses.write_ahead(1)
    assert not records.rows
    losses.write(2)
    assert records.counts() == [2]


def test_not_more_rows_go_ahead_than_one_sweep_may_write() -> None:
    losses, records = _losses()
    for party in range(ROWS_PER_SWEEP_MAXIMUM + 10):
        _note(losses, (party, "expired", party, party + 1, 1))
        losses.write_ahead(1)
    assert len(records.rows) == ROWS_PER_SWEEP_MAXIMUM
    losses.write(2)
    assert len(records.rows) == ROWS_PER_SWEEP_MAXIMUM + 10
