"""How much a named queue keeps: what may be written, and what follows from it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.config import SETTINGS, load
from holdfast.core.errors import ConfigurationError
from holdfast.core.topic_properties import TopicProperties, topic_properties

KEY = "TB_KAFKA_APP_PERSISTED_MSG_TOPIC_PROPERTIES"
DEFAULT = (
    "retention.ms:604800000;segment.bytes:26214400;retention.bytes:1048576000;replication.factor:1"
)


def effective(written: str) -> TopicProperties:
    found = load(environment={KEY: written}, disk_bytes=lambda _: 2**40)
    return found.config.application_queue_properties


@pytest.mark.accepts("S2.51", "S0.84")
def test_the_default_is_the_one_that_is_promised() -> None:
    row = SETTINGS["application.queue_properties"]
    assert row.default == DEFAULT
    assert row.kind.show(row.kind.parse(DEFAULT)) == DEFAULT
    assert effective(DEFAULT) == TopicProperties()
    assert KEY in row.aliases


def test_what_is_not_written_is_the_default() -> None:
    assert effective("retention.bytes:-1; segment.bytes: 2048 ;") == TopicProperties(
        retention_bytes=-1, segment_bytes=2_048
    )


@pytest.mark.accepts("S2.52")
@pytest.mark.parametrize(
    ("written", "word"),
    [
        ("retention.msec:1", '"retention.msec" is no key here; there are retention.ms'),
        ("cleanup.policy:delete", '"cleanup.policy" is no key here'),
        ("retention.ms", '"retention.ms" is no key:value'),
        ("retention.ms:week", '"retention.ms" must be a whole number'),
        ("retention.ms:0", '"retention.ms" must be a whole number'),
        ("retention.ms:-2", '"retention.ms" must be a whole number'),
        ("segment.bytes:-1", '"segment.bytes" must be a whole number'),
        ("segment.bytes:99999999999999999999", '"segment.bytes" must be a whole number'),
        ("retention.bytes:", '"retention.bytes" must be a whole number'),
        ("retention.bytes:1;retention.bytes:1", '"retention.bytes" is there twice'),
        ("replication.factor:3", '"replication.factor" 3 is more than 1, and one disk is one copy'),
    ],
)
def test_a_wrong_key_or_value_is_refused_by_its_name(written: str, word: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        effective(written)
    assert word in str(refused.value)
    assert KEY in str(refused.value)


@given(
    st.builds(
        TopicProperties,
        retention_ms=st.just(-1) | st.integers(1, 10**12),
        segment_bytes=st.integers(1_024, 2**31 - 1),
        retention_bytes=st.just(-1) | st.integers(1, 2**63 - 1),
    )
)
def test_what_is_shown_is_read_back(properties: TopicProperties) -> None:
    kind = topic_properties()
    assert kind.parse(kind.show(properties)) == properties
