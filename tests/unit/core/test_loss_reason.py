"""Reasons of losses: those that older logs have, those that the kernel gives, those that operators
read about."""

import re

from holdfast.broker.store.tables import parse_loss
from holdfast.core.loss_reason import LossReason
from tests.tidy.repository import ROOT, under

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


def test_each_reason_of_the_kernel_is_one() -> None:
    binding = "".join(path.read_text() for path in under("kernel-py/src", ".rs"))
    told = re.findall(r'NoticeKind::\w+ => "(\w+)"', binding)
    assert told
    assert set(told) <= set(LossReason)


def test_operators_can_read_what_each_reason_means() -> None:
    page = (ROOT / "docs/operating/losses.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert set(rows) == set(LossReason)
