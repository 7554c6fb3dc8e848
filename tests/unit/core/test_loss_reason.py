"""Reasons of losses: those that older logs have, those that the kernel gives, those that operators
read about."""

import re

from holdfast.broker.delivery.losses import REASONS
from holdfast.broker.store.tables import parse_loss
from holdfast.core.loss_reason import LossReason
from tests.tidy.repository import ROOT

WRITTEN = (
    "overflow",
    "ttl",
    "retention",
    "expired",
    "retries_used_up",
    "skipped",
    "refused",
    "too_large",
    "denied",
    "slow_reader",
    "session_ended",
)
"""As records have them."""


def test_a_row_of_an_older_log_is_read() -> None:
    for written in WRITTEN:
        row = (
            f'{{"client_identifier":"c","party":1,"reason":"{written}","first_offset":2,'
            '"end_offset":4,"count":2,"at_us":5}'
        )
        reason = parse_loss(row.encode()).reason
        assert isinstance(reason, LossReason)
        assert reason.value == written


def test_each_kind_that_the_kernel_can_give_is_a_value_here_and_has_its_reason() -> None:
    source = (ROOT / "kernel/src/flow.rs").read_text()
    body = source.split("pub enum NoticeKind {", 1)[1].split("}", 1)[0]
    assert sorted(map(repr, REASONS)) == sorted(
        f"NoticeKind({name})" for name in re.findall(r"^    (\w+),$", body, re.MULTILINE)
    )


def test_operators_can_read_what_each_reason_means() -> None:
    page = (ROOT / "docs/operating/losses.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert set(rows) == set(LossReason)
