"""SUBSCRIBE in; a refusal or a consumer out.

    subscribing = plan_subscribe(command, namespaces=namespaces)
    joining = plan_join(subscribing, of_id=..., members=...)

Owns: which consumers there may be. Never: knows who is connected, or which subscriptions exist.

Invariant: the consumers of a subscription share it in one way; Exclusive has one.
"""

from collections.abc import Container
from dataclasses import dataclass
from enum import Enum

from holdfast.core.limits import SUBSCRIPTION_NAME_BYTES_MAXIMUM
from holdfast.protocols.pulsar.fields import InitialPosition, Subscribe, SubType, Unsubscribe
from holdfast.protocols.pulsar.producers import NO_SCHEMA
from holdfast.protocols.pulsar.refusals import Refusal
from holdfast.protocols.pulsar.topic_names import Namespace, TopicName, find_topic

SERVED = frozenset({SubType.EXCLUSIVE, SubType.SHARED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribing:
    """A consumer, as it is asked for."""

    consumer_id: int
    topic: TopicName
    subscription: str
    sub_type: SubType
    initial_position: InitialPosition
    """Where the subscription begins if it is new."""
    consumer_name: str
    creates_topic: bool
    """False: refused if the topic does not exist."""


class Joining(Enum):
    """How a consumer that is not refused comes in."""

    NEW = "new"
    AGAIN = "again"
    """It is there; it is answered as before."""


def plan_subscribe(
    command: Subscribe, *, namespaces: Container[Namespace]
) -> Subscribing | Refusal:
    """Decide what is asked for."""
    topic = find_topic(command.topic, namespaces)
    if isinstance(topic, Refusal):
        return topic
    if refusal := _refusal(command):
        return refusal
    return Subscribing(
        consumer_id=command.consumer_id,
        topic=topic,
        subscription=command.subscription,
        sub_type=command.sub_type,
        initial_position=command.initial_position,
        consumer_name=command.consumer_name,
        creates_topic=command.force_topic_creation,
    )


def plan_join(
    asked: Subscribing, *, of_id: Subscribing | None, members: SubType | None
) -> Joining | Refusal:
    """Whether it may come in beside the consumer that its connection has under this id, and those
    that are connected to its subscription and share it as `members` says (`None`: nobody is, and
    the newcomer decides how it is shared)."""
    if of_id is not None:
        is_same = (of_id.topic, of_id.subscription) == (asked.topic, asked.subscription)
        return Joining.AGAIN if is_same else Refusal.CONSUMER_ID_TAKEN
    if members is None:
        return Joining.NEW
    if members != asked.sub_type:
        return Refusal.SUBSCRIPTION_OF_ANOTHER_TYPE
    if members == SubType.EXCLUSIVE:
        return Refusal.SUBSCRIPTION_EXCLUSIVE
    return Joining.NEW


def plan_unsubscribe(
    command: Unsubscribe, *, is_consumer: bool, other_consumers: int
) -> Refusal | None:
    """Whether the subscription may end; `None`: it does."""
    if not is_consumer:
        return Refusal.CONSUMER_UNKNOWN
    return Refusal.SUBSCRIPTION_IN_USE if other_consumers and not command.force else None


def _refusal(command: Subscribe) -> Refusal | None:
    subscription_bytes = len(command.subscription.encode())
    has_schema = command.schema is not None and command.schema.schema_type != NO_SCHEMA
    refused = (
        (not command.durable, Refusal.NON_DURABLE),
        (subscription_bytes == 0, Refusal.SUBSCRIPTION_NAME_EMPTY),
        (
            subscription_bytes > SUBSCRIPTION_NAME_BYTES_MAXIMUM,
            Refusal.SUBSCRIPTION_NAME_TOO_LONG,
        ),
        (
            len(command.consumer_name.encode()) > SUBSCRIPTION_NAME_BYTES_MAXIMUM,
            Refusal.CONSUMER_NAME_TOO_LONG,
        ),
        (command.sub_type not in SERVED, Refusal.SUBSCRIPTION_TYPE),
        (command.read_compacted, Refusal.READ_COMPACTED),
        (command.start_message_rollback_duration_sec > 0, Refusal.ROLLBACK),
        (has_schema, Refusal.SCHEMA),
    )
    return next((refusal for is_so, refusal in refused if is_so), None)
