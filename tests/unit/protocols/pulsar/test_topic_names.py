"""What a topic is called, and what else it is called."""

import pytest

from holdfast.protocols.pulsar.refusals import Refusal
from holdfast.protocols.pulsar.topic_names import (
    Namespace,
    TopicName,
    log_name,
    parse_namespace,
    parse_topic_name,
    pulsar_name,
)


def topic(text: str) -> TopicName:
    found = parse_topic_name(text)
    assert isinstance(found, TopicName)
    return found


@pytest.mark.accepts("S4.102", "S4.106")
@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("orders", "persistent://public/default/orders"),
        ("my-tenant/app1/orders", "persistent://my-tenant/app1/orders"),
        ("persistent://public/default/orders", "persistent://public/default/orders"),
        ("orders-partition-3", "persistent://public/default/orders-partition-3"),
    ],
)
def test_what_a_name_leaves_out_is_added(text, whole):
    assert str(topic(text)) == whole


@pytest.mark.accepts("S4.107")
def test_the_parts_of_a_name():
    found = topic("persistent://my-tenant/my-namespace/my-topic")
    assert found == TopicName(Namespace("my-tenant", "my-namespace"), "my-topic")


@pytest.mark.parametrize(
    ("local_name", "in_the_log"),
    [
        ("orders", "orders"),
        ("plant%2Fline1%2Ftemperature", "plant/line1/temperature"),
        ("100%25", "100%"),
        ("%252F", "%2F"),
        ("a-partition%2D7", "a-partition-7"),
        ("a-partition-7", "$pulsar//public/default/a-partition-7"),
        ("a-partition-7b", "a-partition-7b"),
        ("a%2Db", "$pulsar//public/default/a%252Db"),
        ("100%", "$pulsar//public/default/100%25"),
        ("%zz", "$pulsar//public/default/%25zz"),
        ("%41", "$pulsar//public/default/%2541"),
        ("a%2fb", "$pulsar//public/default/a%252fb"),
        ("a+b#c", "$pulsar//public/default/a%2Bb%23c"),
        ("a\0b", "$pulsar//public/default/a%00b"),
        ("$pulsar%2Fa%2Fb%2Fc", "$pulsar//public/default/$pulsar%252Fa%252Fb%252Fc"),
        ("$SYS%2Fbroker", "$SYS/broker"),
    ],
)
def test_each_name_has_one_in_the_log(local_name, in_the_log):
    found = topic(f"persistent://public/default/{local_name}")
    assert log_name(found) == in_the_log
    assert pulsar_name(in_the_log) == found


def test_other_namespaces_lie_apart():
    assert log_name(topic("my-tenant/app1/a%2Fb")) == "$pulsar/my-tenant/app1/a/b"
    assert log_name(topic("my-tenant/app1/a+")) == "$pulsar//my-tenant/app1/a%2B"
    assert log_name(topic("public/other/a")) == "$pulsar/public/other/a"


@pytest.mark.parametrize(
    "topic_name",
    [
        "$pulsar/",
        "$pulsar/orders",
        "$pulsar/my-tenant/app1/",
        "$pulsar/my tenant/app1/a",
        "$pulsar/public/default/orders",
        "$pulsar//public/default/orders",
        "$pulsar//public/default/a/b",
        "$pulsar//public/default/%2B%41",
    ],
)
def test_what_pulsar_clients_cannot_name_has_no_name(topic_name):
    assert pulsar_name(topic_name) is None


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("", Refusal.TOPIC_NAME_INVALID),
        ("a/b", Refusal.TOPIC_NAME_INVALID),
        ("a/b/c/d", Refusal.TOPIC_NAME_INVALID),
        ("persistent://a/b", Refusal.TOPIC_NAME_INVALID),
        ("persistent://a/b/", Refusal.TOPIC_NAME_INVALID),
        ("persistent://a b/c/d", Refusal.TOPIC_NAME_INVALID),
        ("persistent:///c/d", Refusal.TOPIC_NAME_INVALID),
        ("persistent://é/c/d", Refusal.TOPIC_NAME_INVALID),
        ("mqtt://a/b/c", Refusal.TOPIC_NAME_INVALID),
        ("non-persistent://public/default/orders", Refusal.TOPIC_NON_PERSISTENT),
        ("a" * 65_536, Refusal.TOPIC_NAME_TOO_LONG),
        ("+" * 30_000, Refusal.TOPIC_NAME_TOO_LONG),
        ("é" * 32_768, Refusal.TOPIC_NAME_TOO_LONG),
    ],
)
def test_other_names_are_refused(text, refusal):
    assert parse_topic_name(text) is refusal


def test_the_longest_topic_of_mqtt_has_a_name():
    found = pulsar_name("/" * 65_535)
    assert found is not None
    assert parse_topic_name(str(found)) == found


def test_a_namespace_has_a_tenant():
    assert parse_namespace("my-tenant/app1") == Namespace("my-tenant", "app1")
    assert parse_namespace("app1") is None
    assert parse_namespace("a/b/c") is None
