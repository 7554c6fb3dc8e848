"""Each refusal: its error code, its sentence, what clients do on it, and the command that tells it.

    refuse(command, Refusal.NON_DURABLE)            Error(request_id=..., error=..., message=...)
    refuse(command, UNSERVED[type(command)])        for what is refused whatever is in it

Owns: the table, from which docs/pulsar/errors.md is generated. Never: decides when.

Invariant: an error that clients repeat in silence is said only where another try can succeed.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from holdfast.protocols.pulsar.fields import (
    NO_REQUEST,
    Command,
    Connect,
    ConsumerStats,
    ConsumerStatsResponse,
    Error,
    GetLastMessageId,
    GetOrCreateSchema,
    GetOrCreateSchemaResponse,
    GetSchema,
    GetSchemaResponse,
    Lookup,
    LookupResponse,
    LookupType,
    PartitionedMetadata,
    PartitionedMetadataResponse,
    PartitionedMetadataType,
    Seek,
    TcClientConnectRequest,
    TcClientConnectResponse,
    WatchTopicList,
)
from holdfast.protocols.pulsar.server_error import Reaction, ServerError, usual_reaction


class Refusal(StrEnum):
    """Why something is not done, by the name under which it is counted."""

    AUTHENTICATION_FAILED = "authentication_failed"
    AUTHENTICATION_METHOD_UNKNOWN = "authentication_method_unknown"
    AUTHENTICATION_DATA_MALFORMED = "authentication_data_malformed"
    BANNED = "banned"
    LOGIN_BUSY = "login_busy"
    CONNECT_NOT_AUTHORIZED = "connect_not_authorized"
    NOT_AUTHORIZED = "not_authorized"
    STOPPING = "stopping"
    TOPIC_NAME_INVALID = "topic_name_invalid"
    TOPIC_NAME_TOO_LONG = "topic_name_too_long"
    TOPIC_NON_PERSISTENT = "topic_non_persistent"
    TOPIC_RESERVED = "topic_reserved"
    TOPIC_UNKNOWN = "topic_unknown"
    NAMESPACE_UNKNOWN = "namespace_unknown"
    LISTENER_UNKNOWN = "listener_unknown"
    TOO_MANY_TOPICS = "too_many_topics"
    PRODUCER_NAME_TAKEN = "producer_name_taken"
    PRODUCER_NAME_TOO_LONG = "producer_name_too_long"
    PRODUCER_ID_TAKEN = "producer_id_taken"
    PRODUCER_ACCESS_MODE = "producer_access_mode"
    TOO_MANY_PRODUCERS = "too_many_producers"
    SUBSCRIPTION_NAME_EMPTY = "subscription_name_empty"
    SUBSCRIPTION_NAME_TOO_LONG = "subscription_name_too_long"
    SUBSCRIPTION_TYPE = "subscription_type"
    SUBSCRIPTION_EXCLUSIVE = "subscription_exclusive"
    SUBSCRIPTION_OF_ANOTHER_TYPE = "subscription_of_another_type"
    SUBSCRIPTION_IN_USE = "subscription_in_use"
    CONSUMER_NAME_TOO_LONG = "consumer_name_too_long"
    CONSUMER_ID_TAKEN = "consumer_id_taken"
    CONSUMER_UNKNOWN = "consumer_unknown"
    TOO_MANY_CONSUMERS = "too_many_consumers"
    TOO_MANY_SUBSCRIPTIONS = "too_many_subscriptions"
    NON_DURABLE = "non_durable"
    ROLLBACK = "rollback"
    READ_COMPACTED = "read_compacted"
    SCHEMA = "schema"
    TRANSACTIONS = "transactions"
    NOT_SERVED = "not_served"
    SEND_NOT_AUTHORIZED = "send_not_authorized"
    DAMAGED = "damaged"
    NO_ROOM = "no_room"


@dataclass(frozen=True, slots=True)
class Row:
    """What is said of a refusal, and what follows."""

    told_to: str
    error: ServerError
    sentence: str
    reaction: Reaction


def _row(told_to: str, error: ServerError, sentence: str, reaction: Reaction | None = None) -> Row:
    return Row(told_to, error, sentence, reaction or usual_reaction(error))


_TOPICS: Final = "PARTITIONED_METADATA, LOOKUP, PRODUCER, SUBSCRIBE"

REFUSALS: Final[dict[Refusal, Row]] = {
    Refusal.AUTHENTICATION_FAILED: _row(
        "CONNECT",
        ServerError.AUTHENTICATION_ERROR,
        "The user name or the password is wrong.",
        # A connection that is refused is one that was not made; what waits for it tries again.
        Reaction.REPEAT,
    ),
    Refusal.AUTHENTICATION_METHOD_UNKNOWN: _row(
        "CONNECT",
        ServerError.AUTHENTICATION_ERROR,
        "Clients authenticate with a user name and a password (basic), or not at all.",
        Reaction.REPEAT,
    ),
    Refusal.AUTHENTICATION_DATA_MALFORMED: _row(
        "CONNECT",
        ServerError.AUTHENTICATION_ERROR,
        "The data of basic authentication is not a user name, a colon and a password.",
        Reaction.REPEAT,
    ),
    Refusal.BANNED: _row(
        "CONNECT",
        ServerError.AUTHENTICATION_ERROR,
        "Too many logins from this address have failed; it is not listened to for a while.",
        Reaction.REPEAT,
    ),
    Refusal.LOGIN_BUSY: _row(
        "CONNECT",
        ServerError.SERVICE_NOT_READY,
        "Too many passwords are being checked; the next try may be heard.",
    ),
    Refusal.CONNECT_NOT_AUTHORIZED: _row(
        "CONNECT",
        ServerError.AUTHORIZATION_ERROR,
        "This user may not connect.",
        Reaction.REPEAT,
    ),
    Refusal.NOT_AUTHORIZED: _row(
        "PRODUCER, SUBSCRIBE",
        ServerError.AUTHORIZATION_ERROR,
        "The user's rules do not allow this on this topic.",
    ),
    Refusal.STOPPING: _row(
        _TOPICS,
        ServerError.SERVICE_NOT_READY,
        "The broker is about to stop.",
    ),
    Refusal.TOPIC_NAME_INVALID: _row(
        _TOPICS,
        ServerError.NOT_ALLOWED_ERROR,
        "A topic's name is persistent://tenant/namespace/topic, or the topic alone;"
        " a / within the topic is %2F.",
    ),
    Refusal.TOPIC_NAME_TOO_LONG: _row(
        _TOPICS,
        ServerError.NOT_ALLOWED_ERROR,
        "A topic's name has at most 65535 bytes, counted as MQTT clients know it.",
    ),
    Refusal.TOPIC_NON_PERSISTENT: _row(
        _TOPICS,
        ServerError.NOT_ALLOWED_ERROR,
        "Topics are persistent; there are none that are not stored.",
    ),
    Refusal.TOPIC_RESERVED: _row(
        "PRODUCER",
        ServerError.NOT_ALLOWED_ERROR,
        "Only the broker itself publishes below $SYS.",
    ),
    Refusal.TOPIC_UNKNOWN: _row(
        "SUBSCRIBE",
        ServerError.TOPIC_NOT_FOUND,
        "The topic does not exist, and the client asked not to create it.",
    ),
    Refusal.NAMESPACE_UNKNOWN: _row(
        _TOPICS,
        ServerError.TOPIC_NOT_FOUND,
        "The tenant or the namespace does not exist.",
    ),
    Refusal.LISTENER_UNKNOWN: _row(
        "LOOKUP",
        ServerError.SERVICE_NOT_READY,
        "the broker do not have {name} listener",
        # In an answer to a look-up this code costs the connection as well.
        Reaction.RECONNECT,
    ),
    Refusal.TOO_MANY_TOPICS: _row(
        "GET_TOPICS_OF_NAMESPACE",
        ServerError.TOO_MANY_REQUESTS,
        "The names of the namespace's topics do not fit a frame.",
    ),
    Refusal.PRODUCER_NAME_TAKEN: _row(
        "PRODUCER",
        ServerError.PRODUCER_BUSY,
        "A producer of this name is connected to the topic.",
    ),
    Refusal.PRODUCER_NAME_TOO_LONG: _row(
        "PRODUCER",
        ServerError.NOT_ALLOWED_ERROR,
        "A producer's name has at most 1024 bytes.",
    ),
    Refusal.PRODUCER_ID_TAKEN: _row(
        "PRODUCER",
        ServerError.NOT_ALLOWED_ERROR,
        "The connection has another producer with this id.",
    ),
    Refusal.PRODUCER_ACCESS_MODE: _row(
        "PRODUCER",
        ServerError.NOT_ALLOWED_ERROR,
        "Producers share their topic; the other access modes are not served.",
    ),
    Refusal.TOO_MANY_PRODUCERS: _row(
        "PRODUCER",
        ServerError.TOO_MANY_REQUESTS,
        "The connection has as many producers as one may have.",
    ),
    Refusal.SUBSCRIPTION_NAME_EMPTY: _row(
        "SUBSCRIBE",
        # The clients make an invalid configuration of it.
        ServerError.PRODUCER_BUSY,
        "A subscription has a name.",
    ),
    Refusal.SUBSCRIPTION_NAME_TOO_LONG: _row(
        "SUBSCRIBE, PRODUCER",
        ServerError.NOT_ALLOWED_ERROR,
        "A subscription's name has at most 1024 bytes.",
    ),
    Refusal.SUBSCRIPTION_TYPE: _row(
        "SUBSCRIBE",
        ServerError.NOT_ALLOWED_ERROR,
        "Subscriptions are Exclusive or Shared; Failover and Key_Shared are not served.",
    ),
    Refusal.SUBSCRIPTION_EXCLUSIVE: _row(
        "SUBSCRIBE",
        ServerError.CONSUMER_BUSY,
        "The subscription is Exclusive, and another consumer is connected to it.",
    ),
    Refusal.SUBSCRIPTION_OF_ANOTHER_TYPE: _row(
        "SUBSCRIBE",
        ServerError.CONSUMER_BUSY,
        "The consumers that are connected to the subscription use it as one of another type.",
    ),
    Refusal.SUBSCRIPTION_IN_USE: _row(
        "UNSUBSCRIBE",
        ServerError.METADATA_ERROR,
        "Other consumers are connected to the subscription.",
        Reaction.GIVE_UP,
    ),
    Refusal.CONSUMER_NAME_TOO_LONG: _row(
        "SUBSCRIBE",
        ServerError.NOT_ALLOWED_ERROR,
        "A consumer's name has at most 1024 bytes.",
    ),
    Refusal.CONSUMER_ID_TAKEN: _row(
        "SUBSCRIBE",
        ServerError.NOT_ALLOWED_ERROR,
        "The connection has another consumer with this id.",
    ),
    Refusal.CONSUMER_UNKNOWN: _row(
        "UNSUBSCRIBE",
        ServerError.CONSUMER_NOT_FOUND,
        "The connection has no consumer with this id.",
        Reaction.GIVE_UP,
    ),
    Refusal.TOO_MANY_CONSUMERS: _row(
        "SUBSCRIBE",
        ServerError.TOO_MANY_REQUESTS,
        "The connection or the subscription has as many consumers as one may have.",
    ),
    Refusal.TOO_MANY_SUBSCRIPTIONS: _row(
        "SUBSCRIBE, PRODUCER",
        ServerError.TOO_MANY_REQUESTS,
        "There are as many subscriptions as there may be.",
    ),
    Refusal.NON_DURABLE: _row(
        "SUBSCRIBE",
        ServerError.NOT_ALLOWED_ERROR,
        "Subscriptions are durable; readers and table views are not served.",
    ),
    Refusal.ROLLBACK: _row(
        "SUBSCRIBE",
        ServerError.NOT_ALLOWED_ERROR,
        "A subscription begins with the first message or the next one, not at a time.",
    ),
    Refusal.READ_COMPACTED: _row(
        "SUBSCRIBE",
        ServerError.NOT_ALLOWED_ERROR,
        "Topics are not compacted, so that there is nothing compacted to read.",
    ),
    Refusal.SCHEMA: _row(
        "PRODUCER, SUBSCRIBE, GET_SCHEMA, GET_OR_CREATE_SCHEMA",
        ServerError.NOT_ALLOWED_ERROR,
        "No schemas are kept; use bytes, and encode values in the client.",
    ),
    Refusal.TRANSACTIONS: _row(
        "TC_CLIENT_CONNECT_REQUEST, PRODUCER",
        ServerError.NOT_ALLOWED_ERROR,
        "There are no transactions.",
    ),
    Refusal.NOT_SERVED: _row(
        "SEEK, GET_LAST_MESSAGE_ID, CONSUMER_STATS, WATCH_TOPIC_LIST",
        ServerError.NOT_ALLOWED_ERROR,
        "This command is not served.",
    ),
    Refusal.SEND_NOT_AUTHORIZED: _row(
        "SEND",
        ServerError.AUTHORIZATION_ERROR,
        "The user's rules do not allow to publish to this topic any more.",
        Reaction.RECONNECT,
    ),
    Refusal.DAMAGED: _row(
        "SEND",
        ServerError.CHECKSUM_ERROR,
        "The message does not have the checksum that it came with.",
        Reaction.DROP,
    ),
    Refusal.NO_ROOM: _row(
        "SEND",
        ServerError.PERSISTENCE_ERROR,
        "The log has no room for the message.",
        Reaction.RECONNECT,
    ),
}
"""What is said where, why, and what clients do then. The kernel says what is told to SEND, where
every error but that of the checksum ends the client's connection."""


UNSERVED: Final[dict[type[Command], Refusal]] = {
    ConsumerStats: Refusal.NOT_SERVED,
    GetLastMessageId: Refusal.NOT_SERVED,
    GetOrCreateSchema: Refusal.SCHEMA,
    GetSchema: Refusal.SCHEMA,
    Seek: Refusal.NOT_SERVED,
    TcClientConnectRequest: Refusal.TRANSACTIONS,
    WatchTopicList: Refusal.NOT_SERVED,
}
"""Commands that are refused whatever is in them."""


def refuse(command: Command, refusal: Refusal) -> Command:
    """The command that tells `refusal` to whoever sent `command`, in the answer that its kind of
    request has."""
    row = REFUSALS[refusal]
    error, message = row.error, row.sentence
    match command:
        case Lookup(request_id=request, advertised_listener_name=name):
            failed, message = LookupType.FAILED, message.format(name=name)
            return LookupResponse(request_id=request, response=failed, error=error, message=message)
        case PartitionedMetadata(request_id=request):
            return PartitionedMetadataResponse(
                request_id=request,
                response=PartitionedMetadataType.FAILED,
                error=error,
                message=message,
            )
        case ConsumerStats(request_id=request):
            return ConsumerStatsResponse(
                request_id=request, error_code=error, error_message=message
            )
        case GetSchema(request_id=request):
            return GetSchemaResponse(request_id=request, error_code=error, error_message=message)
        case GetOrCreateSchema(request_id=request):
            return GetOrCreateSchemaResponse(
                request_id=request, error_code=error, error_message=message
            )
        case TcClientConnectRequest(request_id=request):
            return TcClientConnectResponse(request_id=request, error=error, message=message)
        case Connect():
            return Error(request_id=NO_REQUEST, error=error, message=message)
    request = getattr(command, "request_id", NO_REQUEST)
    return Error(request_id=request, error=error, message=message)
