"""PRODUCER in; a refusal or a producer out.

    producing = plan_producer(command, namespaces=namespaces, entropy=entropy)
    entry = plan_entry(producing, of_id=..., of_name=..., same_connection=...)
    write_command(producer_success(command.request_id, producing))

Owns: which producers there may be, and their names. Never: knows who is connected, or stores.

Invariant: a topic has one producer of a name at a time.
"""

from collections.abc import Container
from dataclasses import dataclass
from enum import Enum
from typing import Final

from holdfast.core.limits import PRODUCER_NAME_BYTES_MAXIMUM, SUBSCRIPTION_NAME_BYTES_MAXIMUM
from holdfast.protocols.pulsar.fields import Producer, ProducerAccessMode, ProducerSuccess
from holdfast.protocols.pulsar.refusals import Refusal
from holdfast.protocols.pulsar.topic_names import Namespace, TopicName, find_topic, log_name

ENTROPY_BYTES: Final = 8
"""As many random bytes as make two generated names the same only in theory. Each message carries
the name, so that more would be sent with each; should two be the same, the second is told so."""
NO_SCHEMA: Final = 0
"""The type of a schema that says that there is none."""
SYSTEM_TOPICS: Final = "$SYS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Producing:
    """A producer, as it is asked for."""

    producer_id: int
    topic: TopicName
    name: str
    is_generated: bool
    """True: the name was made just now."""
    is_of_user: bool
    """True: somebody chose the name, so that another producer may have it by mistake."""
    epoch: int
    """How often the client has made this producer anew."""
    initial_subscription: str | None
    """A subscription that is to be there, from the topic's first message on."""


class Entry(Enum):
    """How a producer that is not refused comes in."""

    NEW = "new"
    AGAIN = "again"
    """It is there; it is answered as before, by the name that it has."""
    INSTEAD = "instead"
    """It takes the place of the one of its id or name, which ends without a word."""


def plan_producer(
    command: Producer, *, namespaces: Container[Namespace], entropy: bytes
) -> Producing | Refusal:
    """Decide what is asked for; `entropy` makes the name of a producer that has none."""
    topic = find_topic(command.topic, namespaces)
    if isinstance(topic, Refusal):
        return topic
    if f"{log_name(topic)}/".startswith(f"{SYSTEM_TOPICS}/"):
        return Refusal.TOPIC_RESERVED
    if command.producer_access_mode != ProducerAccessMode.SHARED:
        return Refusal.PRODUCER_ACCESS_MODE
    if command.txn_enabled:
        return Refusal.TRANSACTIONS
    if command.schema is not None and command.schema.schema_type != NO_SCHEMA:
        return Refusal.SCHEMA
    if len((command.producer_name or "").encode()) > PRODUCER_NAME_BYTES_MAXIMUM:
        return Refusal.PRODUCER_NAME_TOO_LONG
    if len((command.initial_subscription_name or "").encode()) > SUBSCRIPTION_NAME_BYTES_MAXIMUM:
        return Refusal.SUBSCRIPTION_NAME_TOO_LONG
    return Producing(
        producer_id=command.producer_id,
        topic=topic,
        name=command.producer_name or f"holdfast-{entropy.hex()}",
        is_generated=not command.producer_name,
        is_of_user=bool(command.producer_name) and command.user_provided_producer_name,
        epoch=command.epoch,
        initial_subscription=command.initial_subscription_name or None,
    )


def plan_entry(
    asked: Producing,
    *,
    of_id: Producing | None,
    of_name: Producing | None,
    same_connection: bool,
) -> Entry | Refusal:
    """Whether it may come in beside the producer that its connection has under this id, and the one
    that its topic has under this name, on the same connection or on another."""
    if of_id is not None and not (of_id.topic == asked.topic and _may_be(asked, of_id)):
        return Refusal.PRODUCER_ID_TAKEN
    if of_id is not None:
        return Entry.INSTEAD if asked.epoch > of_id.epoch else Entry.AGAIN
    if of_name is None:
        return Entry.NEW
    if _succeeds(asked, of_name, same_connection=same_connection):
        return Entry.INSTEAD
    return Refusal.PRODUCER_NAME_TAKEN


def producer_success(request_id: int, producing: Producing) -> ProducerSuccess:
    """The answer to PRODUCER. No sequence id is remembered, so that the client begins with 0."""
    # The client for Java closes the connection where no schema's version stands; empty is none.
    return ProducerSuccess(
        request_id=request_id,
        producer_name=producing.name,
        last_sequence_id=-1,
        schema_version=b"",
    )


def _may_be(asked: Producing, present: Producing) -> bool:
    return asked.is_generated or asked.name == present.name


def _succeeds(asked: Producing, present: Producing, *, same_connection: bool) -> bool:
    """True if it is the same producer, whose client has connected anew before the broker knew that
    the old connection is dead."""
    of_users = asked.is_of_user or present.is_of_user
    return (
        asked.producer_id == present.producer_id
        and asked.epoch > present.epoch
        and (same_connection or not of_users)
    )
