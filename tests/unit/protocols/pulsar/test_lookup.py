"""What is answered about topics."""

import pytest

from holdfast.protocols.pulsar.fields import (
    GetTopicsOfNamespace,
    GetTopicsOfNamespaceResponse,
    Lookup,
    LookupResponse,
    LookupType,
    PartitionedMetadata,
    PartitionedMetadataResponse,
    PartitionedMetadataType,
    TopicsMode,
)
from holdfast.protocols.pulsar.lookup import (
    plan_lookup,
    plan_partitioned_metadata,
    plan_topics_of_namespace,
)
from holdfast.protocols.pulsar.refusals import Refusal
from holdfast.protocols.pulsar.topic_names import Namespace, TopicName, parse_topic_name

URL = "pulsar://localhost:6650"
NAMESPACES = {Namespace("public", "default-2")}


def lookup(topic: str, listener: str = ""):
    asked = Lookup(topic=topic, request_id=7, advertised_listener_name=listener)
    return plan_lookup(asked, service_url=URL, namespaces=NAMESPACES)


def partitions(topic: str):
    asked = PartitionedMetadata(topic=topic, request_id=7)
    return plan_partitioned_metadata(asked, namespaces=NAMESPACES)


def listed(namespace: str, mode: TopicsMode = TopicsMode.PERSISTENT, most: int = 1_000):
    asked = GetTopicsOfNamespace(request_id=7, namespace=namespace, mode=mode)
    names = ["b", "a-partition-0", "public/default-2/c"]
    topics = [name for name in map(parse_topic_name, names) if isinstance(name, TopicName)]
    return plan_topics_of_namespace(asked, topics, names_bytes_maximum=most)


@pytest.mark.parametrize("topic", ["orders", "public/default-2/orders", "a-partition-7"])
def test_each_topic_is_here(topic):
    assert lookup(topic) == LookupResponse(
        broker_service_url=URL, response=LookupType.CONNECT, request_id=7, authoritative=True
    )
    assert partitions(topic) == PartitionedMetadataResponse(
        partitions=0, request_id=7, response=PartitionedMetadataType.SUCCESS
    )


@pytest.mark.parametrize(
    ("topic", "refusal"),
    [
        ("private/default/orders", Refusal.NAMESPACE_UNKNOWN),
        ("public/default-3/orders", Refusal.NAMESPACE_UNKNOWN),
        ("a/b", Refusal.TOPIC_NAME_INVALID),
        ("non-persistent://public/default/orders", Refusal.TOPIC_NON_PERSISTENT),
    ],
)
def test_topics_that_cannot_be_are_nowhere(topic, refusal):
    assert lookup(topic) is refusal
    assert partitions(topic) is refusal


def test_a_listener_that_has_a_name_is_unknown():
    assert lookup("orders", listener="test") is Refusal.LISTENER_UNKNOWN


def test_the_topics_of_one_namespace_are_listed_by_their_whole_names():
    names = ("persistent://public/default/a-partition-0", "persistent://public/default/b")
    assert listed("public/default") == GetTopicsOfNamespaceResponse(request_id=7, topics=names)
    assert listed("public/default", TopicsMode.ALL).topics == names
    assert listed("public/default-2").topics == ("persistent://public/default-2/c",)
    assert listed("public/default-3").topics == ()
    assert listed("public/default", TopicsMode.NON_PERSISTENT).topics == ()


def test_what_is_no_namespace_has_no_topics():
    assert listed("public") is Refusal.NAMESPACE_UNKNOWN


def test_a_list_has_to_fit_a_frame():
    assert listed("public/default", most=77) is Refusal.TOO_MANY_TOPICS
    assert isinstance(listed("public/default", most=78), GetTopicsOfNamespaceResponse)
