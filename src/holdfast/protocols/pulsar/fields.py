"""The one list of field numbers: every command and message that this side reads or writes.

A class is a command or a message, and each line of it a field: its name, its kind, its number, and
what it is taken for when it is absent. A field without a default is required. `None` is absence
where absence says something; `None` is never written, and everything else is. Fields that are not
listed are skipped.

Never: reads or writes bytes (commands does).
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Final, TypeAlias

from holdfast.protocols.pulsar.server_error import ServerError

U32: TypeAlias = Annotated[int, "u32"]
U64: TypeAlias = Annotated[int, "u64"]
I32: TypeAlias = Annotated[int, "i32"]
I64: TypeAlias = Annotated[int, "i64"]

NO_REQUEST: Final = 2**64 - 1
"""The request id of what answers none: -1, in a field that has no sign."""


class SubType(IntEnum):
    """How the consumers of a subscription share it."""

    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3


class InitialPosition(IntEnum):
    """Where a subscription begins that was not there before."""

    LATEST = 0
    EARLIEST = 1


class ProducerAccessMode(IntEnum):
    """Who else may produce to the topic."""

    SHARED = 0
    EXCLUSIVE = 1
    WAIT_FOR_EXCLUSIVE = 2
    EXCLUSIVE_WITH_FENCING = 3


class LookupType(IntEnum):
    """What a client does with the answer to LOOKUP."""

    REDIRECT = 0
    CONNECT = 1
    FAILED = 2


class PartitionedMetadataType(IntEnum):
    """Whether PARTITIONED_METADATA was answered."""

    SUCCESS = 0
    FAILED = 1


class TopicsMode(IntEnum):
    """Which topics of a namespace are asked for."""

    PERSISTENT = 0
    NON_PERSISTENT = 1
    ALL = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureFlags:
    """What a side can do beyond its protocol version."""

    supports_auth_refresh: Annotated[bool, 1] = False
    supports_broker_entry_metadata: Annotated[bool, 2] = False
    supports_partial_producer: Annotated[bool, 3] = False
    supports_topic_watchers: Annotated[bool, 4] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The definition of the messages' values. Its type is a number: clients know more of them each
    year, and all are refused alike."""

    name: Annotated[str, 1]
    schema_data: Annotated[bytes, 3]
    schema_type: Annotated[I32, 4]


@dataclass(frozen=True, slots=True, kw_only=True)
class Connect:
    """The first command of a connection."""

    client_version: Annotated[str, 1]
    auth_data: Annotated[bytes | None, 3] = None
    protocol_version: Annotated[I32, 4] = 0
    auth_method_name: Annotated[str, 5] = ""

    def __repr__(self) -> str:
        # What proves who somebody is must not get into a log.
        return f"Connect({self.client_version!r}, {self.auth_method_name!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """CONNECT is accepted. The client ends the connection without a server version."""

    server_version: Annotated[str, 1]
    protocol_version: Annotated[I32, 2]
    max_message_size: Annotated[I32, 3]
    feature_flags: Annotated[FeatureFlags, 4]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribe:
    """A consumer joins a subscription, which is made if it is not there."""

    topic: Annotated[str, 1]
    subscription: Annotated[str, 2]
    sub_type: Annotated[SubType, 3]
    consumer_id: Annotated[U64, 4]
    request_id: Annotated[U64, 5]
    consumer_name: Annotated[str, 6] = ""
    durable: Annotated[bool, 8] = True
    read_compacted: Annotated[bool, 11] = False
    schema: Annotated[Schema | None, 12] = None
    initial_position: Annotated[InitialPosition, 13] = InitialPosition.LATEST
    force_topic_creation: Annotated[bool, 15] = True
    start_message_rollback_duration_sec: Annotated[U64, 16] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """A producer is made on a topic. An absent name is to be given by the broker; a client that
    comes back sends the one it was given, which is not provided by its user."""

    topic: Annotated[str, 1]
    producer_id: Annotated[U64, 2]
    request_id: Annotated[U64, 3]
    producer_name: Annotated[str | None, 4] = None
    schema: Annotated[Schema | None, 7] = None
    epoch: Annotated[U64, 8] = 0
    user_provided_producer_name: Annotated[bool, 9] = True
    producer_access_mode: Annotated[ProducerAccessMode, 10] = ProducerAccessMode.SHARED
    txn_enabled: Annotated[bool, 12] = False
    initial_subscription_name: Annotated[str | None, 13] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSuccess:
    """PRODUCER is accepted."""

    request_id: Annotated[U64, 1]
    producer_name: Annotated[str, 2]
    last_sequence_id: Annotated[I64, 3] = -1
    schema_version: Annotated[bytes | None, 4] = None
    topic_epoch: Annotated[U64 | None, 5] = None
    producer_ready: Annotated[bool, 6] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsubscribe:
    """The subscription ends, and its consumer with it."""

    consumer_id: Annotated[U64, 1]
    request_id: Annotated[U64, 2]
    force: Annotated[bool, 3] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    """A request is done."""

    request_id: Annotated[U64, 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """A request is refused."""

    request_id: Annotated[U64, 1]
    error: Annotated[ServerError, 2]
    message: Annotated[str, 3]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseProducer:
    """A producer ends; from a broker, with NO_REQUEST, it is to be made anew."""

    producer_id: Annotated[U64, 1]
    request_id: Annotated[U64, 2]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseConsumer:
    """A consumer ends; from a broker, with NO_REQUEST, it is to subscribe anew."""

    consumer_id: Annotated[U64, 1]
    request_id: Annotated[U64, 2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """Is anybody there?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionedMetadata:
    """How many partitions has a topic?"""

    topic: Annotated[str, 1]
    request_id: Annotated[U64, 2]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionedMetadataResponse:
    """So many; an answer without a `response` counts as failed."""

    partitions: Annotated[U32 | None, 1] = None
    request_id: Annotated[U64, 2]
    response: Annotated[PartitionedMetadataType, 3]
    error: Annotated[ServerError | None, 4] = None
    message: Annotated[str | None, 5] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """Where is a topic?"""

    topic: Annotated[str, 1]
    request_id: Annotated[U64, 2]
    advertised_listener_name: Annotated[str, 7] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupResponse:
    """There; an answer without a `response` counts as failed."""

    broker_service_url: Annotated[str | None, 1] = None
    response: Annotated[LookupType, 3]
    request_id: Annotated[U64, 4]
    authoritative: Annotated[bool | None, 5] = None
    error: Annotated[ServerError | None, 6] = None
    message: Annotated[str | None, 7] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStats:
    """What a consumer has to do and has done."""

    request_id: Annotated[U64, 1]
    consumer_id: Annotated[U64, 4]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStatsResponse:
    """The answer to it."""

    request_id: Annotated[U64, 1]
    error_code: Annotated[ServerError | None, 2] = None
    error_message: Annotated[str | None, 3] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seek:
    """A subscription goes on elsewhere."""

    consumer_id: Annotated[U64, 1]
    request_id: Annotated[U64, 2]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetLastMessageId:
    """Which message is the topic's last?"""

    consumer_id: Annotated[U64, 1]
    request_id: Annotated[U64, 2]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTopicsOfNamespace:
    """Which topics are there?"""

    request_id: Annotated[U64, 1]
    namespace: Annotated[str, 2]
    mode: Annotated[TopicsMode, 3] = TopicsMode.PERSISTENT


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTopicsOfNamespaceResponse:
    """These, by their whole names."""

    request_id: Annotated[U64, 1]
    topics: Annotated[tuple[str, ...], 2]
    filtered: Annotated[bool, 3] = False
    changed: Annotated[bool, 5] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GetSchema:
    """Which schema has a topic?"""

    request_id: Annotated[U64, 1]
    topic: Annotated[str, 2]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetSchemaResponse:
    """The answer to it."""

    request_id: Annotated[U64, 1]
    error_code: Annotated[ServerError | None, 2] = None
    error_message: Annotated[str | None, 3] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetOrCreateSchema:
    """A topic is to have a schema."""

    request_id: Annotated[U64, 1]
    topic: Annotated[str, 2]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetOrCreateSchemaResponse:
    """The answer to it."""

    request_id: Annotated[U64, 1]
    error_code: Annotated[ServerError | None, 2] = None
    error_message: Annotated[str | None, 3] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TcClientConnectRequest:
    """Transactions are to be begun here."""

    request_id: Annotated[U64, 1]
    tc_id: Annotated[U64, 2]


@dataclass(frozen=True, slots=True, kw_only=True)
class TcClientConnectResponse:
    """The answer to it."""

    request_id: Annotated[U64, 1]
    error: Annotated[ServerError | None, 2] = None
    message: Annotated[str | None, 3] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchTopicList:
    """Whoever is asked tells of new topics."""

    request_id: Annotated[U64, 1]
    watcher_id: Annotated[U64, 2]


Command: TypeAlias = (
    Connect
    | Connected
    | Subscribe
    | Producer
    | ProducerSuccess
    | Unsubscribe
    | Success
    | Error
    | CloseProducer
    | CloseConsumer
    | Ping
    | PartitionedMetadata
    | PartitionedMetadataResponse
    | Lookup
    | LookupResponse
    | ConsumerStats
    | ConsumerStatsResponse
    | Seek
    | GetLastMessageId
    | GetTopicsOfNamespace
    | GetTopicsOfNamespaceResponse
    | GetSchema
    | GetSchemaResponse
    | GetOrCreateSchema
    | GetOrCreateSchemaResponse
    | TcClientConnectRequest
    | TcClientConnectResponse
    | WatchTopicList
)

FROM_CLIENTS: Final[dict[int, type[Command]]] = {
    2: Connect,
    4: Subscribe,
    5: Producer,
    12: Unsubscribe,
    15: CloseProducer,
    16: CloseConsumer,
    21: PartitionedMetadata,
    23: Lookup,
    25: ConsumerStats,
    28: Seek,
    29: GetLastMessageId,
    32: GetTopicsOfNamespace,
    34: GetSchema,
    39: GetOrCreateSchema,
    62: TcClientConnectRequest,
    64: WatchTopicList,
}
"""What comes up from a client. A command's number is its `type` in BaseCommand, and the number of
the field that it stands in."""

FROM_BROKERS: Final[dict[int, type[Command]]] = {
    3: Connected,
    13: Success,
    14: Error,
    15: CloseProducer,
    16: CloseConsumer,
    17: ProducerSuccess,
    18: Ping,
    22: PartitionedMetadataResponse,
    24: LookupResponse,
    26: ConsumerStatsResponse,
    33: GetTopicsOfNamespaceResponse,
    35: GetSchemaResponse,
    40: GetOrCreateSchemaResponse,
    63: TcClientConnectResponse,
}
"""What this side says. What comes once for each entry is the kernel's, in both directions."""

NUMBERS: Final[dict[type[Command], int]] = {
    command: number for number, command in (FROM_CLIENTS | FROM_BROKERS).items()
}
