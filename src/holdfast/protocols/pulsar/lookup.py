"""Answers about topics: where one is, how many partitions it has, which there are.

Owns: the answers. Never: creates a topic, whatever is asked; a client asks for the partitions of a
topic before somebody makes it, and must not have made it by that.
"""

from collections.abc import Container, Iterable
from typing import Final

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
from holdfast.protocols.pulsar.refusals import Refusal
from holdfast.protocols.pulsar.topic_names import Namespace, TopicName, find_topic, parse_namespace

NAME_FRAME_BYTES: Final = 4
"""What a name in an answer takes beyond its bytes, at most: its field's key and its length."""


def plan_lookup(
    lookup: Lookup, *, service_url: str, namespaces: Container[Namespace]
) -> LookupResponse | Refusal:
    """All topics are here, at `service_url`, also those that do not exist yet."""
    if lookup.advertised_listener_name:
        return Refusal.LISTENER_UNKNOWN
    topic = find_topic(lookup.topic, namespaces)
    if isinstance(topic, Refusal):
        return topic
    return LookupResponse(
        broker_service_url=service_url,
        response=LookupType.CONNECT,
        request_id=lookup.request_id,
        authoritative=True,
    )


def plan_partitioned_metadata(
    asked: PartitionedMetadata, *, namespaces: Container[Namespace]
) -> PartitionedMetadataResponse | Refusal:
    """No topic has partitions: each is one of its own name."""
    topic = find_topic(asked.topic, namespaces)
    if isinstance(topic, Refusal):
        return topic
    return PartitionedMetadataResponse(
        partitions=0, request_id=asked.request_id, response=PartitionedMetadataType.SUCCESS
    )


def plan_topics_of_namespace(
    asked: GetTopicsOfNamespace, topics: Iterable[TopicName], *, names_bytes_maximum: int
) -> GetTopicsOfNamespaceResponse | Refusal:
    """Those of `topics` that lie in the namespace, by their whole names and in order; the client
    picks by its pattern. All are persistent. With the largest size of a message for a maximum, the
    answer is a frame that the client takes."""
    namespace = parse_namespace(asked.namespace)
    if namespace is None:
        return Refusal.NAMESPACE_UNKNOWN
    found: list[str] = []
    if asked.mode != TopicsMode.NON_PERSISTENT:
        found = sorted(str(topic) for topic in topics if topic.namespace == namespace)
    if sum(len(name.encode()) + NAME_FRAME_BYTES for name in found) > names_bytes_maximum:
        return Refusal.TOO_MANY_TOPICS
    return GetTopicsOfNamespaceResponse(request_id=asked.request_id, topics=tuple(found))
