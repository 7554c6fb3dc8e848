"""How long a session is kept."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.mqtt.session import rest
from holdfast.protocols.mqtt.session_expiry import SessionPolicy, plan_expiry_s
from tests.unit.protocols.mqtt.builders import POLICY, session, will

NEVER = 0xFFFFFFFF
TTL = POLICY.ttl_s


def expiry_s(
    protocol_version: int,
    clean_start: bool,
    requested_s: int | None = None,
    policy: SessionPolicy = POLICY,
) -> int | None:
    return plan_expiry_s(
        policy,
        protocol_version=protocol_version,
        clean_start=clean_start,
        requested_s=requested_s,
    )


@pytest.mark.accepts("S2.23", "S2.24")
@pytest.mark.parametrize("protocol_version", [3, 4])
def test_clean_session_types_a_session_of_older_versions(protocol_version: int) -> None:
    assert expiry_s(protocol_version, clean_start=True) == 0
    assert expiry_s(protocol_version, clean_start=False) == TTL


@pytest.mark.accepts("S2.25")
@pytest.mark.parametrize("requested_s", [None, 0])
def test_clean_start_without_expiry_is_not_persistent(requested_s: int | None) -> None:
    assert expiry_s(5, clean_start=True, requested_s=requested_s) == 0


@pytest.mark.accepts("S2.26", "S2.27", "S2.30")
@pytest.mark.parametrize("clean_start", [False, True])
def test_expiry_above_zero_is_persistent_however_it_starts(clean_start: bool) -> None:
    assert expiry_s(5, clean_start=clean_start, requested_s=60) == 60


@pytest.mark.accepts("S2.28")
@pytest.mark.parametrize("requested_s", [None, 0])
def test_no_clean_start_without_expiry_is_persistent_for_the_ttl(requested_s: int | None) -> None:
    assert expiry_s(5, clean_start=False, requested_s=requested_s) == TTL


def test_the_switch_restores_the_standard() -> None:
    strict = replace(POLICY, strict_expiry=True)
    assert expiry_s(5, clean_start=False, requested_s=0, policy=strict) == 0
    # It is about MQTT 5 alone: 3.1.1 has no Session Expiry Interval to be strict about.
    assert expiry_s(4, clean_start=False, policy=strict) == TTL


@pytest.mark.accepts("S2.29", "S2.41")
def test_never_is_capped_like_any_other_interval() -> None:
    assert expiry_s(5, clean_start=False, requested_s=NEVER) == 604_800


@pytest.mark.accepts("S2.43", "S2.44")
@pytest.mark.parametrize(("ttl_s", "kept_s"), [(10, 10), (0, None), (-1, None)])
def test_ttl_applies_to_sessions_the_protocol_would_keep(ttl_s: int, kept_s: int | None) -> None:
    policy = replace(POLICY, ttl_s=ttl_s)
    assert expiry_s(4, clean_start=False, policy=policy) == kept_s
    assert expiry_s(5, clean_start=False, requested_s=0, policy=policy) == kept_s
    assert expiry_s(5, clean_start=False, requested_s=60, policy=policy) == 60


@given(
    protocol_version=st.sampled_from([3, 4, 5]),
    clean_start=st.booleans(),
    requested_s=st.none() | st.integers(0, NEVER),
    maximum_s=st.integers(1, NEVER - 1),
    ttl_s=st.integers(-1, 10_000_000),
    strict=st.booleans(),
)
def test_the_typing_table(
    protocol_version: int,
    clean_start: bool,
    requested_s: int | None,
    maximum_s: int,
    ttl_s: int,
    strict: bool,
) -> None:
    policy = SessionPolicy(expiry_maximum_s=maximum_s, ttl_s=ttl_s, strict_expiry=strict)
    if protocol_version < 5:
        requested_s = None
    kept_s = expiry_s(protocol_version, clean_start, requested_s, policy)

    # One row for each of S2.23 to S2.28, read as the acceptance list has them.
    persistent = {
        (False, True, False): False,
        (False, False, False): True,
        (True, True, False): False,
        (True, False, True): True,
        (True, True, True): True,
        (True, False, False): not strict,
    }[protocol_version == 5, clean_start, bool(requested_s)]
    assert (kept_s != 0) == persistent
    if requested_s:
        assert kept_s == min(requested_s, maximum_s)
    elif persistent:
        assert kept_s == (ttl_s if ttl_s > 0 else None)


@pytest.mark.accepts("S2.45")
def test_expiry_counts_from_the_disconnect() -> None:
    at_rest = rest(session(expiry_s=10), will_due_at_us=None, now_us=5_000_000)
    assert at_rest.expires_at_us == 15_000_000
    assert not at_rest.expired(14_999_999)
    assert at_rest.expired(15_000_000)


@pytest.mark.accepts("S2.46")
def test_a_connected_session_never_expires() -> None:
    assert not session(expiry_s=1).expired(10**15)


def test_a_session_that_is_kept_for_ever_never_expires() -> None:
    at_rest = rest(session(expiry_s=None), will_due_at_us=None, now_us=0)
    assert not at_rest.expired(10**15)


def test_a_will_that_is_not_due_any_more_is_forgotten() -> None:
    connected = session(will=will())
    assert rest(connected, will_due_at_us=None, now_us=0).will is None
    assert rest(connected, will_due_at_us=7, now_us=0).will == connected.will
