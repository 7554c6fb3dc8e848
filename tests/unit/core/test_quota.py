"""Quotas: which queue has which, and how many bytes go at a time."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.config import Config, load
from holdfast.core.quota import UNLIMITED, QueueKind, Quota, quota_of
from holdfast.core.topic_properties import TopicProperties
from holdfast.core.units import SECOND_US

CONFIG: Config = replace(
    load(disk_bytes=lambda _: 2**40).config,
    queue_messages_maximum=7,
    queue_keep="oldest",
    queue_ttl_s=60,
    application_queue_properties=TopicProperties(
        retention_ms=5_000, retention_bytes=9_000, segment_bytes=2_048
    ),
)


@pytest.mark.parametrize(
    ("kind", "age_us"), [("client", 60 * SECOND_US), ("group", None), ("redrive", None)]
)
def test_a_queue_without_a_name_is_limited_by_number_and_a_client_s_by_age(
    kind: QueueKind, age_us: int | None
) -> None:
    quota = quota_of(CONFIG, kind, named=False)
    assert quota == Quota(messages=7, keep="oldest", age_us=age_us, carried_messages=7)
    assert quota.age_reason == "ttl"


@pytest.mark.parametrize("kind", ["client", "group"])
def test_a_queue_with_a_name_is_limited_by_age_and_bytes(kind: QueueKind) -> None:
    quota = quota_of(CONFIG, kind, named=True)
    assert quota == Quota(age_us=5 * SECOND_US, bytes=9_000, step_bytes=2_048)
    assert quota.age_reason == "retention"


def test_a_cursor_is_limited_by_age_and_bytes_and_loses_no_more_than_is_beyond() -> None:
    config = replace(CONFIG, cursor_unreleased_age_s=9, cursor_unreleased_bytes=4_000)
    quota = quota_of(config, "cursor", named=True)
    assert (quota.age_us, quota.bytes, quota.messages) == (9 * SECOND_US, 4_000, None)
    assert quota.plan_drop(held_bytes=4_100, aged_bytes=30) == 100
    assert quota.age_reason == "retention"


def test_what_is_not_limited_is_none() -> None:
    everything = replace(
        CONFIG,
        queue_messages_maximum=0,
        queue_ttl_s=0,
        application_queue_properties=TopicProperties(retention_ms=-1, retention_bytes=-1),
    )
    assert quota_of(everything, "client", named=False) == replace(
        UNLIMITED, keep="oldest", carried_messages=0
    )
    named = quota_of(everything, "client", named=True)
    assert (named.messages, named.age_us, named.bytes) == (None, None, None)


@given(
    st.integers(1_024, 10_000),
    st.integers(1, 10**6),
    st.integers(0, 10**7),
    st.integers(0, 10**7),
)
def test_whole_steps_go_and_no_more_than_is_past_a_limit(
    step: int, limit: int, held: int, aged: int
) -> None:
    drop = Quota(step_bytes=step, bytes=limit).plan_drop(held, min(aged, held))
    past = max(held - limit, min(aged, held), 0)
    assert drop % step == 0
    assert past - step < drop <= past
