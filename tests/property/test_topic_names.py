"""Names of topics for Pulsar clients and for MQTT clients are one to one."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.kernel import is_valid_topic_name
from holdfast.protocols.pulsar.topic_names import (
    PUBLIC_DEFAULT,
    Namespace,
    TopicName,
    log_name,
    parse_topic_name,
    pulsar_name,
)

WORDS = "% 25 2F 2f 2D %2D %2F %25 %00 %2B -partition- 7 $pulsar/ public a é + # / - ://"
PIECES = st.sampled_from([*WORDS.split(), "\0", " ", "\n"])
CHARACTERS = st.characters(exclude_categories=["Cs"])
TEXTS = st.one_of(st.lists(PIECES, min_size=1, max_size=8).map("".join), st.text(CHARACTERS))
TOPIC_NAMES = TEXTS.filter(lambda text: is_valid_topic_name(text.encode()))
"""What an MQTT client may publish to."""
ENTITIES = st.sampled_from(["public", "default", "my-tenant", "a=b:c.d_e", "0"])
NAMES = st.builds(
    lambda tenant, namespace, local: f"persistent://{tenant}/{namespace}/{local}",
    ENTITIES,
    ENTITIES,
    TEXTS.map(lambda text: text.replace("/", "")).filter(bool),
)


@pytest.mark.accepts("S4.101", "S4.107")
@given(name=NAMES)
@example("persistent://public/default/%24pulsar%2Fx")
@example("persistent://public/default/$pulsar%2Fmy-tenant%2F0%2Fa")
def test_a_name_of_pulsar_comes_back_from_the_log(name: str) -> None:
    topic = parse_topic_name(name)
    assert isinstance(topic, TopicName)
    assert str(topic) == name
    assert is_valid_topic_name(log_name(topic).encode())
    assert pulsar_name(log_name(topic)) == topic


@given(topic_name=TOPIC_NAMES.filter(lambda name: not name.startswith("$pulsar/")))
@example("a-partition-7")
@example("a-partition%2D7")
@example("/")
@example("$pulsar")
def test_a_topic_name_of_mqtt_comes_back_from_pulsar(topic_name: str) -> None:
    topic = pulsar_name(topic_name)
    assert topic is not None
    assert topic.namespace == PUBLIC_DEFAULT
    assert log_name(topic) == topic_name
    assert parse_topic_name(str(topic)) == topic


@given(rest=TEXTS, start=st.sampled_from(["", "/", "my-tenant/0/", "/public/default/"]))
def test_what_lies_apart_has_one_name_or_none(rest: str, start: str) -> None:
    topic_name = f"$pulsar/{start}{rest}"
    topic = pulsar_name(topic_name)
    if topic is not None:
        assert log_name(topic) == topic_name
        assert parse_topic_name(str(topic)) == topic


@given(one=NAMES, other=NAMES)
def test_two_topics_of_pulsar_are_two_in_the_log(one: str, other: str) -> None:
    topics = parse_topic_name(one), parse_topic_name(other)
    assert isinstance(topics[0], TopicName)
    assert isinstance(topics[1], TopicName)
    assert (log_name(topics[0]) == log_name(topics[1])) == (one == other)


@given(topic_name=TOPIC_NAMES)
def test_no_wildcard_of_devices_reaches_another_namespace(topic_name: str) -> None:
    topic = pulsar_name(topic_name)
    if topic is not None:
        elsewhere = TopicName(Namespace("my-tenant", "0"), topic.local_name)
        assert log_name(elsewhere).startswith("$pulsar/")
