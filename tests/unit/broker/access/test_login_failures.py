"""Failed logins: counted by address and user, bounded, and forgotten after a while."""

import pytest

from holdfast.broker.access import login_failures
from holdfast.broker.access.denial_reason import DenialReason
from holdfast.broker.access.login_failures import LoginFailures, network_of
from holdfast.core.config import Config
from holdfast.core.units import SECOND_US

PEER = "10.1.2.3:5000"
CONFIG = Config(login_failures_maximum=3, login_ban_s=60, login_delay_s=1)


def fail(failures: LoginFailures, times: int, *, user: str = "gate", at_us: int = 0) -> None:
    for number in range(times):
        # From elsewhere each time, so that no address is banned.
        failures.failed(user, f"10.0.0.{number}:1", at_us)


def test_an_address_is_banned_after_too_many_failures() -> None:
    failures = LoginFailures(CONFIG)
    assert [failures.failed(None, PEER, 0) for _ in range(3)] == [False, False, True]
    assert failures.refusal("gate", "10.1.2.3:6000", 1) is DenialReason.BANNED
    assert failures.refusal("gate", "10.1.2.4:5000", 1) is None


def test_a_ban_ends() -> None:
    failures = LoginFailures(CONFIG)
    for _ in range(3):
        failures.failed(None, PEER, 0)
    assert failures.refusal("gate", PEER, 60 * SECOND_US - 1) is DenialReason.BANNED
    assert failures.refusal("gate", PEER, 60 * SECOND_US) is None
    assert not failures.failed(None, PEER, 60 * SECOND_US)


def test_a_user_is_slowed_down_and_not_banned() -> None:
    failures = LoginFailures(CONFIG)
    fail(failures, 2)
    assert failures.refusal("gate", PEER, 0) is None
    fail(failures, 1)
    assert failures.refusal("gate", PEER, 0) is DenialReason.BUSY
    assert failures.refusal("other", PEER, 0) is None
    assert failures.refusal("gate", PEER, SECOND_US) is None
    fail(failures, 1, at_us=SECOND_US)
    assert failures.refusal("gate", PEER, SECOND_US) is DenialReason.BUSY


def test_the_right_password_clears_the_user() -> None:
    failures = LoginFailures(CONFIG)
    fail(failures, 3)
    failures.succeeded("gate")
    assert failures.refusal("gate", PEER, 0) is None


def test_failures_long_ago_do_not_count() -> None:
    failures = LoginFailures(CONFIG)
    fail(failures, 2)
    later_us = 61 * SECOND_US
    assert not failures.failed("gate", PEER, later_us)
    assert failures.refusal("gate", PEER, later_us) is None


def test_nobody_is_banned_where_the_maximum_is_off() -> None:
    failures = LoginFailures(Config(login_failures_maximum=0))
    assert not any(failures.failed("gate", PEER, 0) for _ in range(100))
    assert failures.refusal("gate", PEER, 0) is None


def test_what_is_counted_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_failures, "LOGIN_FAILURES_TRACKED_MAXIMUM", 10)
    failures = LoginFailures(CONFIG)
    for number in range(100):
        failures.failed(None, f"10.0.0.{number}:1", 0)
    assert len(failures) == 10


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("10.1.2.3:5000", "10.1.2.3"),
        ("[2001:db8:1:2:3:4:5:6]:5000", "2001:db8:1:2::"),
        ("[::ffff:10.1.2.3]:5000", "10.1.2.3"),
        ("unix", "unix"),
        ("", ""),
    ],
)
def test_who_can_change_its_address_at_will_stays_the_same(peer: str, expected: str) -> None:
    assert network_of(peer) == expected
