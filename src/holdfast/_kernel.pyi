"""The boundary between Python, which decides, and the kernel, which moves messages.

Every call works on a batch or on something rare. No call takes or returns a single message on the hot path. Time
is an argument (`now_us`: microseconds since the epoch, UTC). Connections and queues are small integers; a *party*
is whoever publishes or owns a queue, by a number that Python gives out: below `TRANSIENT_PARTY` it is durable and
its delivery state survives restarts.

The stages of one turn, in order: `Inbox.feed`, `Inbox.decode`, `Routes.route`, `Log.append`, `Deliveries.admit`,
`Log.scan`, `Deliveries.allot`, `Outboxes.encode`.

Raises, everywhere: `DiskError` (the world's fault, an `OSError`), `DamagedError`, `NewerFormatError`,
`PoisonedError`, and `ValueError` for an argument out of range. A panic is a bug and ends the process.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final, Literal, final

TRANSIENT_PARTY: Final[int]
GROUP_CONNECTION: Final[int]
"""In place of a connection: the queue is a group's."""
LIMITS: Final[dict[str, int]]
"""Every maximum of the kernel by its name in lower case."""

class DiskError(OSError):
    full: bool
class BusyError(Exception): ...
class DamagedError(Exception): ...
class NewerFormatError(Exception): ...
class PoisonedError(Exception): ...

# --- topics -------------------------------------------------------------------------------------------------------

def topic_matches(topic_filter: bytes, topic_name: bytes) -> bool: ...
def is_valid_topic_name(topic_name: bytes) -> bool: ...
def is_valid_topic_filter(topic_filter: bytes) -> bool: ...

_Subscription = tuple[str, int, int, bool, bool, int | None, int, bool]
"""Of `core.subscription.Subscription`: topic filter, QoS, from which offset on, No Local, Retain As Published, identifier,
up to which offset, and whether it wants what the log keeps of QoS 0."""

# --- values that pass from stage to stage ---------------------------------------------------------------------------

@final
class Arrivals:
    """What one turn brought; opaque. Cleared by `Inbox.decode`."""
    def __new__(cls) -> Arrivals: ...
    def __bool__(self) -> bool:
        """False if nothing was decoded or put."""
    publishes: int
    """PUBLISH packets in it."""
    acknowledgements: int
    def put(
        self,
        topic_name: bytes,
        payload: bytes,
        *,
        qos: int,
        retain: bool,
        properties: dict[str, Any],
        party: int,
        key_slot: int,
    ) -> None:
        """Takes in a message that came on no connection, between `Inbox.decode` and `Routes.route`; no grant holds for
        it. `properties` are those of MQTT 5 that travel with a message, and `message_expiry_interval`. Raises
        `BusyError` where the turn takes no more (LIMITS["submissions_maximum"]), `ValueError` for what is no message."""
    def outcomes(self) -> list[tuple[bool, int | None]]:
        """After `Log.append`, for each message that was put, in their order: whether it was taken, and if it is stored
        the log position at which it is durable. What was not taken found no room in the log."""
    def put_rows(
        self, rows: Rows, *, party: int, key_slot: int, messages_maximum: int, bytes_maximum: int
    ) -> int:
        """Takes in the next rows, behind all that is put and before `Routes.route`: so many messages at most, and no more
        once they come to so many bytes; returns how many. No table holds for them. The slot is that of rows without a
        key. They are the next ones until `Rows.pass_over`."""
    def rows_taken(self) -> tuple[int, int | None]:
        """After `Log.append`: how many of the rows that were put the log has taken, and the log position at which the last
        of them is durable. The log has them from the first one on: none is taken behind one that found no room."""
    def totals(self) -> tuple[list[int], int]:
        """Since the start: PUBLISH packets at QoS 0, 1 and 2, and the bytes of their payloads; not what was put."""

@final
class Rows:
    """Messages of one publisher that are handed in many at once, as `encode_rows` wrote them; and which comes next."""
    def __new__(cls, data: bytes) -> Rows: ...
    def is_done(self) -> bool:
        """True if none is left."""
    def pass_over(self, count: int) -> int:
        """Passes over the next `count`; returns over how many, which are fewer where there are no more. ValueError for what
        is no row."""

def encode_rows(
    columns: dict[str, list[bytes]],
    count: int,
    *,
    properties_are_texts: bool,
    publish: Sequence[tuple[bytes, bool]] | None,
    message_bytes_maximum: int,
) -> bytes:
    """Messages as rows, of `count` messages in columns, without the interpreter's lock. A column is a list of Arrow
    buffers; numbers are little endian. topic, value: offsets (32 bit), data. May be there: key: a byte for each that says
    whether it has one, offsets, data. qos, retain: a byte for each. event_time, expiry: a byte for each that says whether
    it is there, and the microseconds (64 bit) or seconds (32 bit). properties: how many pairs come before those of each
    (32 bit), offsets and data of names, offsets and data of values; a name of a property of MQTT 5 that travels with a
    message is that property, any other a user property; where `properties_are_texts`, correlation_data is in hexadecimal.
    `publish` is a table as in `Routes.grant`. ValueError names the first message that may not be published, by its number
    and topic, with the reason."""

@final
class Scans:
    """Requests of hungry queues to the log, and its answers; opaque."""
    def __len__(self) -> int: ...

@final
class Progress:
    """What the log is to remember of one turn; opaque."""

@final
class Outgoing:
    """What one turn sends; opaque."""
    def __new__(cls) -> Outgoing: ...
    def __len__(self) -> int: ...

# --- mqtt: decode -----------------------------------------------------------------------------------------------------

@final
class NoticeKind:
    """Why messages will not be delivered."""

    EXPIRED: ClassVar[NoticeKind]
    """Their Message Expiry Interval has passed."""
    SLOW_READER: ClassVar[NoticeKind]
    """They were of QoS 0, or their queue ends with its connection, and the receiver takes too slowly."""
    TOO_LARGE: ClassVar[NoticeKind]
    """They are larger than what their receiver takes."""
    RETENTION: ClassVar[NoticeKind]
    """Retention took them before the queue read them."""
    REFUSED: ClassVar[NoticeKind]
    """Their receiver did not take them."""
    DENIED: ClassVar[NoticeKind]
    """They were in flight, and the queue may not have them any more."""
    SESSION_ENDED: ClassVar[NoticeKind]
    """They were handed over at QoS 2 to a member whose session has ended [MQTT-4.8.2-5]."""
    OVERFLOW: ClassVar[NoticeKind]
    """They were of QoS 0, and more waited for the connection than may."""
    LOOPED: ClassVar[NoticeKind]
    """They had been carried from broker to broker as often as they may."""
    UNMAPPABLE: ClassVar[NoticeKind]
    """Their topic cannot become what their receiver's rules make of it."""
    CLOSED: ClassVar[NoticeKind]
    """They are in an entry that cannot be opened: encrypted, or part of a larger message."""

    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Packet:
    """A control packet, decoded. `kind` is the packet's name in lower case ("connect", "subscribe", ...).

    `fields` by kind (names as in MQTT 5; text is `str`, binary is `bytes`; `properties` is a dict of property name
    to value: int, str, bytes, or for "user_property" a list of (str, str); in PUBLISH "subscription_identifier" is a
    list of int):
      connect      protocol_version (3, 4, 5), client_identifier, clean_start, keep_alive_s, user_name (str|None),
                   password (bytes|None), will (None or dict: topic_name, payload, qos, retain, properties), properties
      connack      session_present, reason_code, properties
      subscribe    packet_identifier, subscriptions (list of dict: topic_filter, qos, no_local,
                   retain_as_published, retain_handling), properties
      suback       packet_identifier, reason_codes, properties
      unsubscribe  packet_identifier, topic_filters, properties
      unsuback     packet_identifier, reason_codes, properties
      disconnect   reason_code, properties
      auth         reason_code, properties
      publish      packet_identifier (0 at QoS 0), qos, retain, dup, topic_name, payload, properties
      puback, pubrec, pubrel, pubcomp
                   packet_identifier, reason_code, properties
      pingreq, pingresp
                   (none)
      fault        reason_code, reason, protocol_version: the peer broke the protocol; the connection is to be closed, an
                   MQTT 5 peer is told the reason code first (in CONNACK if it has not been accepted yet, else in
                   DISCONNECT). `protocol_version` is the version to tell it in, 0 if it is not known. `reason` names
                   the statement that was broken.
    """
    kind: str
    fields: dict[str, Any]

def encode_packet(kind: str, fields: dict[str, Any], *, protocol_version: int) -> bytes:
    """One control packet (or publish: packet_identifier, qos, retain, dup, topic_name, payload, properties) as bytes,
    in either role. Older versions leave out what they do not have; reason codes of 3.x are translated (CONNACK).
    `properties` may be left out, and so may what is False, 0 or None. Raises ValueError for a field that the packet
    does not have, and for a packet that its receiver would refuse."""

def decode_packets(data: bytes, *, protocol_version: int, role: Literal["server", "client"]) -> tuple[list[Packet], int]:
    """All whole packets in `data` (publish and acknowledgements included) and the number of bytes they took. A fault is
    the last packet; its bytes are not counted. After a CONNECT its own version holds. For clients, tests and tools, not
    for the hot path."""

def encode_acknowledgements(
    kind: Literal["puback", "pubrec", "pubrel", "pubcomp"], packet_identifiers: Sequence[int], *, protocol_version: int
) -> bytes:
    """One acknowledgement of success for each packet identifier, in their order."""

def decode_runs(
    data: bytes, *, protocol_version: int
) -> tuple[list[tuple[str, list[tuple[str, bytes, int, bool, bool, int, dict[str, Any]]] | list[int] | dict[str, Any]]], int]:
    """What `decode_packets` finds in the role of a client, for one that takes many messages: a list with each kind and what
    follows one another of it. Of "publish" that is a list of (topic_name, payload, qos, retain, dup, packet_identifier,
    properties), of "pubrel" a list of packet identifiers; of any other kind it is the fields of one packet."""

@final
class Inbox:
    """What has arrived on each connection and is not decoded yet, and the receiving half of QoS 1 and 2."""

    def __new__(cls, read_buffer: bytearray) -> Inbox:
        """`read_buffer` is the one that all sockets read into; `feed` copies from its start."""
    def open(self, connection: int) -> None:
        """A new connection, of which nothing is known; CONNECT must come first."""
    def expect(
        self,
        connection: int,
        *,
        protocol_version: int,
        maximum_packet_size_bytes: int,
        rewriting: Rewriting,
    ) -> None:
        """A server is at the other end of an open connection, and has been sent CONNECT of this version: CONNACK must
        come first, and then what servers send. Its messages become what `rewriting` makes of them; those that it
        leaves out, or cannot, are answered as if they were stored."""
    def taken(self, connection: int) -> int:
        """Messages of a server that were taken over."""
    def lost(self, connection: int) -> int:
        """Messages of a server that had been carried too often, or whose topic cannot be one here."""
    def accept(
        self,
        connection: int,
        *,
        party: int,
        protocol_version: int,
        keep_alive_s: int,
        receive_maximum: int,
        maximum_packet_size_bytes: int,
        topic_alias_maximum: int,
        unreleased: bytes,
        key_slot: int = ...,
    ) -> None:
        """CONNECT was accepted: from now on its packets are taken within these limits. `unreleased` comes from
        `unreleased` of the resumed state (packet identifiers of QoS 2 messages, 16 bit, little endian).
        `receive_maximum` binds MQTT 5 only: older versions know none. The log keeps `key_slot` with each message: the
        slot of who publishes, the same for all its connections."""
    def close(self, connection: int) -> None:
        """Forgets the connection."""
    def feed(self, connection: int, count: int, now_us: int) -> int:
        """Takes `count` bytes from the read buffer; returns how many bytes wait undecoded on this connection.

        Reading should pause while that is above LIMITS["turn_connection_bytes_maximum"]; a connection that leaves more
        than its largest packet beyond it is faulted with 0x97."""
    def decode(self, arrivals: Arrivals, now_us: int = 0) -> list[tuple[int, Packet]]:
        """Decodes what has come. PUBLISH and acknowledgement packets go into `arrivals`; PINGREQ is noted there.
        `now_us` fills what `limit_all` allows.

        A control packet or a fault is returned, and its connection is held from there on: later packets of it stay
        undecoded until `release`. So what a client sends after SUBSCRIBE is decoded when SUBSCRIBE is done."""
    def unread(self, connection: int, from_us: int, to_us: int) -> None:
        """Between these times nothing of it could be read or decoded, which was our doing: its own limit is not reached
        by what it could have sent meanwhile."""
    def release(self, connection: int) -> None:
        """What was held is decoded by the next `decode`; `ready` says if there is anything."""
    def unreleased(self, connection: int) -> bytes:
        """Packet identifiers (16 bit, little endian) of QoS 2 messages received and not released."""
    def ready(self) -> bool:
        """True if bytes wait on a connection that is not held, and do not wait for `limit_all`."""
    def limit(self, connection: int, *, messages_per_second: int, bytes_per_second: int) -> None:
        """What an open connection may send from now on; 0 is no limit. A second's worth may come at once; more is a
        fault with 0x96. Messages are PUBLISH packets; bytes are all bytes, so one second's must hold the largest packet.
        The time is that of `feed`."""
    def limit_all(self, *, messages_per_second: int, bytes_per_second: int) -> None:
        """What all connections together are read at, those of a `PulsarInbox` beside this too; 0 is no limit. What comes
        faster waits undecoded, and connections take turns."""
    def next_at_us(self) -> int | None:
        """When `decode` has something to do although nothing more comes; None if nothing waits for `limit_all`."""
    def forget(self, arrivals: Arrivals) -> None:
        """Called after `Log.append`: forgets packet identifiers of refused and denied messages and of PUBRELs that
        came."""
    def silent(self, now_us: int) -> list[int]:
        """Connections from which nothing came for one and a half times their Keep Alive [MQTT-3.1.2-22]."""

@final
class Outboxes:
    """Bytes that wait for each connection's socket, and the encoder."""

    def __new__(cls) -> Outboxes: ...
    def open(
        self, connection: int, *, protocol_version: int, maximum_packet_size_bytes: int, topic_alias_maximum: int, party: int
    ) -> None:
        """An MQTT 5 client is sent topic aliases up to its `topic_alias_maximum` and LIMITS["aliases_sent_maximum"]; what
        it holds of them begins with its first message."""
    def close(self, connection: int) -> None: ...
    def write(self, connection: int, data: bytes) -> None:
        """Appends encoded bytes (CONNACK and the like)."""
    def set_writable(self, connection: int, writable: bool) -> None:
        """While a connection is not writable `take` leaves its bytes here, up to LIMITS["outbox_bytes_maximum"]."""
    def limit_writes(self, connection: int, messages_maximum: int) -> None:
        """From now on `take` gives this connection's bytes in pieces of at most so many messages; 0 for no limit."""
    def share(
        self, queue: int, party: int, selection: Selection, members: Sequence[tuple[int, bool, int | None]]
    ) -> None:
        """Messages of QoS 0 for this group's queue go to these (connection, retain_as_published, identifier), chosen
        among those that keep up; if none does they are dropped and counted for `party`."""
    def shares(self, queue: int) -> list[tuple[int, int]]:
        """(connection, messages of QoS 0 that it has been given of this group's queue)."""
    def carry(self, connection: int, rewriting: Rewriting, *, shelf_bytes_maximum: int) -> None:
        """Messages to an open connection are carried on to another broker from now on, as what `rewriting` makes of
        them. Those of QoS 0 that it does not take at once wait on a shelf, up to so many bytes; then the oldest go,
        with the notice "overflow". Where `rewriting` counts no hops, or MQTT has no property to count them in, it is
        noted which of them come again."""
    def hold(self, connection: int, is_held: bool) -> None:
        """Whether messages of QoS 0 wait on the shelf of a connection although it takes them."""
    def identify(self, connection: int, identity: MessageIdentity | None) -> None:
        """Deliveries of stored messages to an open connection of MQTT 5 tell from now on which message each is, or do so
        no more. A packet that this alone would make too large does not, nor does what passes through at QoS 0."""
    def mark_again(self, mark: tuple[str, str] | None) -> None:
        """What has come back to a group is sent with this user property from now on, or without any."""
    def hand_over(self, from_connection: int, to_connection: int) -> None:
        """What waits on the shelf of one connection goes to that of another, before anything else; both carry on."""
    def carried(self, connection: int) -> tuple[int, int, int, int]:
        """Messages that a connection has carried on, each as often as it was written; those of them that were written
        with DUP; those of the others with a content that had been written lately (`carry`); and messages of QoS 0 that
        have come, written or not. What handed over to it counts as its own."""
    def shelved(self, connection: int) -> tuple[int, int]:
        """Messages on the shelf of a connection, and the bytes that they take."""
    def waiting(self) -> bool:
        """True if something on a shelf can be written although nothing new comes."""
    def pass_through(self, arrivals: Arrivals, now_us: int = 0) -> None:
        """Encodes messages of this turn to targets that get them at QoS 0, and PINGRESP. A full outbox drops the
        message and counts it."""
    def encode(self, outgoing: Outgoing, log: Log, now_us: int) -> None:
        """Encodes stored messages and acknowledgements; clears `outgoing`."""
    def refused(self) -> list[tuple[int, int, NoticeKind]]:
        """(connection, packet identifier, why) of QoS 1 and 2 messages that were not sent since the last call: too large
        for their receiver [MQTT-3.1.2-25], or taken by retention. `Deliveries.refuse` is to be told."""
    def take(self) -> list[tuple[int, bytes]]:
        """All bytes of all writable connections that have some: one item per connection, or one per piece in their
        order."""
    def waiting_bytes(self, connection: int) -> int: ...
    def notices(self) -> list[tuple[int, NoticeKind, int, int, int]]:
        """What was dropped at QoS 0 since the last call: (party, kind, first offset, end offset, count); the offsets are
        0."""
    def counters(self) -> dict[str, int]:
        """Totals since the start: publishes_sent, acknowledgements_sent, pings_answered, bytes_encoded, and
        dropped_slow_reader, dropped_too_large, dropped_expired, dropped_retention, dropped_carrying,
        dropped_closed."""

@final
class Command:
    """A command of a Pulsar client that is decided on here, or what the client did wrong."""

    kind: int
    """`type` of BaseCommand; 0 of anything else."""
    data: bytes
    """The bytes of the BaseCommand."""
    fault: str | None
    """A sentence for the log: the connection is to be closed. None of a command."""
    held_until_us: int | None
    """It is no command: more has come than `limit` allows, and this is when the connection is to be released."""

@final
class PulsarInbox:
    """What has arrived on each connection of the Pulsar protocol and is not decoded yet."""

    def __new__(cls, read_buffer: bytearray, beside: Inbox) -> PulsarInbox:
        """`read_buffer` is the one that all sockets read into; `feed` copies from its start. What `beside` is told by
        `limit_all` is the limit of both together; each message of an entry counts."""
    def open(self, connection: int) -> None:
        """A new connection, of which nothing is known; CONNECT must come first."""
    def accept(self, connection: int, *, frame_bytes_maximum: int, silence_us: int) -> None:
        """CONNECT was accepted: from now on frames of this size are taken, and the connection is among `silent` if nothing
        comes for so long (0: never)."""
    def add_producer(
        self, connection: int, producer: int, *, topic_name: bytes, party: int, key_slot: int
    ) -> None:
        """Entries under this producer id are published to the topic by the party from now on. The log keeps `key_slot` with
        each."""
    def remove_producer(self, connection: int, producer: int) -> None:
        """Entries under this id are passed over from now on. Those under an id that never was are a fault. Nothing happens
        if the connection is closed."""
    def add_consumer(
        self, connection: int, consumer: int, *, receiver: int, ledger: int, is_shared: bool = ...
    ) -> None:
        """What comes under this consumer id counts for the receiver from now on, where it is about message ids of this
        ledger. Where `is_shared`, a cumulative acknowledgement is a fault."""
    def remove_consumer(self, connection: int, consumer: int) -> None:
        """What comes under this id is passed over from now on, like what comes under one that never was."""
    def close(self, connection: int) -> None:
        """Forgets the connection."""
    def feed(self, connection: int, count: int, now_us: int) -> int:
        """As `Inbox.feed`."""
    def decode(self, arrivals: Arrivals, now_us: int = 0) -> list[tuple[int, Command]]:
        """Decodes what has come behind what `Inbox.decode` has put into `arrivals`. SEND, ACK, FLOW, REDELIVER and PING go
        there; an entry whose checksum does not fit is refused there, in its place.

        Every other command or a fault is returned, and its connection is held from there on: later frames of it stay
        undecoded until `release`."""
    def release(self, connection: int) -> None:
        """What was held is decoded by the next `decode`; `ready` says if there is anything."""
    def ready(self) -> bool:
        """True if bytes wait on a connection that is not held, and do not wait for `limit_all`."""
    def refuse_behind(self, arrivals: Arrivals) -> None:
        """Called after `Log.append`: of a producer whose entry found no room the following ones are refused as well, until
        it is added anew. So an entry that is sent again comes before those that were sent behind it."""
    def silent(self, now_us: int) -> list[int]:
        """Accepted connections of which nothing came for longer than they may be silent."""
    def limit(self, connection: int, *, messages_per_second: int, bytes_per_second: int) -> None:
        """As `Inbox.limit`; each message of an entry counts. More is no fault: it is taken, and the connection is held;
        `decode` returns until when."""
    def next_at_us(self) -> int | None:
        """When `decode` has something to do although nothing more comes; None if nothing waits for `limit_all`."""
    def unread(self, connection: int, from_us: int, to_us: int) -> None:
        """As `Inbox.unread`."""

@final
class PulsarOutboxes:
    """Bytes that wait for each connection of the Pulsar protocol, and the encoder."""

    def __new__(cls) -> PulsarOutboxes: ...
    def open(self, connection: int, *, frame_bytes_maximum: int = ...) -> None:
        """The client takes frames of this size; of any, if that is not said."""
    def close(self, connection: int) -> None: ...
    def write(self, connection: int, data: bytes) -> None:
        """Appends encoded bytes."""
    def set_writable(self, connection: int, writable: bool) -> None:
        """While a connection is not writable `take` leaves its bytes here."""
    def waiting_bytes(self, connection: int) -> int: ...
    def add_consumer(self, connection: int, consumer: int, receiver: int) -> None:
        """What leaves for the receiver goes to this consumer id of an open connection."""
    def remove_consumer(self, connection: int, receiver: int) -> None:
        """What leaves for the receiver is forgotten."""
    def pass_through(self, arrivals: Arrivals) -> None:
        """Answers the PINGs of this turn."""
    def encode(self, outgoing: Outgoing, log: Log) -> None:
        """Encodes what `Outboxes.encode` has left in `outgoing`, which is empty then: entries as they came, SEND_RECEIPT or
        SEND_ERROR, ACK_RESPONSE, and what waited for the disk."""
    def gone(self) -> list[tuple[int, int, NoticeKind]]:
        """(receiver, first offset, why) of entries that were not sent since the last call: larger than the client takes, or
        taken by retention. `Deliveries.refuse_entry` is to be told."""
    def take(self) -> list[tuple[int, bytes]]:
        """All bytes of all writable connections that have some, one item for each connection."""
    def counters(self) -> dict[str, int]:
        """Totals since the start: entries_sent and the messages_sent in them, receipts_sent, refusals_sent, replies_sent,
        pings_answered, bytes_encoded, dropped_retention, dropped_too_large."""

@final
class Rewriting:
    """What is changed of messages that are carried on: a value."""

    def __new__(
        cls,
        rules: Sequence[tuple[Sequence[bytes], Sequence[int | bytes] | None, Sequence[tuple[str, str]], bool]],
        *,
        hops: tuple[str, int] | None = ...,
    ) -> Rewriting:
        """Rules: topic filters; the parts of the new topic (bytes, or the number of a level from 1 on, 0 for the whole
        topic), or None for what is left out; user properties that are added; whether messages keep their RETAIN flag.
        The first rule with a filter that matches decides; what none matches stays as it is. With `hops`, a user
        property's name counts how often a message has been carried, and one that has been so often is lost. ValueError
        for what is no filter."""
    def apply(self, topic: bytes, properties: bytes) -> tuple[bytes, bytes] | None:
        """What a message becomes, its properties in MQTT 5's encoding; None if it is left out or lost. For tools and
        tests."""

@final
class MessageIdentity:
    """What tells one message from another: a user property that ends in its offset. A value."""

    def __new__(cls, name: str, prefix: str) -> MessageIdentity:
        """The property's name, and what stands before the offset. ValueError for what is too long."""
    def tell(self, properties: bytes, offset: int | None) -> bytes:
        """Properties in MQTT 5's encoding, without any of that name, and with ours where there is an offset. For tests."""

# --- route ------------------------------------------------------------------------------------------------------------

@final
class Routes:
    """Filters of attached queues, and the memory of what each topic matched."""

    def __new__(cls, seed: int) -> Routes: ...
    def subscribe(
        self,
        queue: int,
        connection: int,
        owner: int,
        subscriptions: Sequence[_Subscription],
    ) -> None:
        """Adds or replaces the queue's subscriptions to the filters of those that have no end. `connection` is
        GROUP_CONNECTION for a group."""
    def unsubscribe(self, queue: int, topic_filter: bytes) -> bool: ...
    def remove(self, queue: int) -> None:
        """Removes all subscriptions of the queue (it is detached)."""
    def grant(
        self,
        connection: int,
        publish: Sequence[tuple[bytes, bool]] | None,
        receive: Sequence[tuple[bytes, bool]] | None,
    ) -> None:
        """What the connection may publish and be sent from now on: (topic filter, allowed), in order. The first filter
        that matches the topic decides, and none that matches denies; None allows everything. Equal grants are kept
        once. ValueError for what is no topic filter, and for more than LIMITS["grant_rules_maximum"]; nothing changes
        then. A denied PUBLISH is not routed and not stored; at QoS 1 and 2 an MQTT 5 publisher is told 0x87, an older
        one is acknowledged as if it had been taken ([MQTT-3.3.5-2] of 3.1.1). A queue of this connection is no target
        of topics that `receive` denies."""
    def ungrant(self, connection: int) -> None:
        """The connection is closed, or may do everything again."""
    def denied(self) -> list[tuple[int, int]]:
        """(connection, count) of messages denied since the last call."""
    def counters(self) -> dict[str, int]:
        """Totals since the start: publishes_denied (messages), and topics_withheld (topics kept from a queue that had
        subscribed to them; each counts when it is looked up, not for each message)."""
    def route(self, arrivals: Arrivals) -> None:
        """Denies what may not be published, and gives each accepted PUBLISH its targets."""
    def match(self, topic_name: bytes) -> list[tuple[int, int]]:
        """(queue, qos) for a topic; for tools and tests."""
    def targets(
        self, topic_name: bytes
    ) -> list[tuple[int, int, tuple[int, bool, list[int]], tuple[int, tuple[int, bool, list[int]] | None] | None]]:
        """All of a topic's targets in queue order: (queue, connection, terms, own). Terms are (qos, retain_as_published,
        identifiers in the order of subscribing). `own` is None unless a matching subscription has No Local: then the
        owner, and the terms of the others for its own messages, None if there are no others."""
    def __len__(self) -> int: ...

# --- store ------------------------------------------------------------------------------------------------------------

@final
class Question:
    """A question about stored messages of QoS 1 and 2, and what is kept of QoS 0 where a subscription has `keeps_all`, and
    how far it is answered (`Log.answer`). Exact, from the index;
    records are read where they may have expired, or where a subscription has No Local. What a queue may get is not
    considered: messages that `Deliveries.grant` denies count until the queue has passed them."""

    def __new__(
        cls,
        wanted: str,
        subscriptions: Sequence[_Subscription],
        owner: int,
        from_offset: int,
        to_offset: int,
        *,
        messages: int = 0,
        unexpired_at_us: int = 0,
    ) -> Question:
        """Wanted is of what the subscriptions match in the range, as far as it is durable when the question is first put:
        "count", how many; "bytes", about how many, each as many as those of its topic and segment have on average;
        "newest", the offset from which on exactly `messages` remain, or `from_offset`; "first", the offset of the first,
        or the end of the range. With a time, what has expired by then does not count."""
    def so_far(self) -> int:
        """Before the answer is there: at least so many messages or bytes, or for an offset where the search has come to."""

@final
class Log:
    """The durable log: append, commit, read back, retain. One writer; readers elsewhere use `LogReader`."""

    @staticmethod
    def open(
        directory: str,
        *,
        segment_bytes: int,
        cache_bytes: int,
        reserve_bytes: int,
        durability: Literal["fsync", "os", "memory"],
        seed: int,
        now_us: int,
    ) -> tuple[Log, dict[str, Any]]:
        """Opens or creates the log and recovers it. The dict tells: begin_offset, end_offset, segments, bytes,
        trimmed_bytes (a torn tail), damaged (list of dict: file, first_position, end_position, reason),
        control_number (the next one), from_checkpoint (bool), seconds is left to the caller.
        The data directory must be locked by the caller."""
    @staticmethod
    def open_simulated(
        disk: SimulatedDisk,
        *,
        segment_bytes: int,
        cache_bytes: int,
        reserve_bytes: int,
        durability: Literal["fsync", "os", "memory"],
        seed: int,
        now_us: int,
    ) -> tuple[Log, dict[str, Any]]: ...
    def append(self, arrivals: Arrivals, store_all: Sequence[bytes], now_us: int) -> None:
        """Stores what has to be stored: QoS 1 and 2, retained messages, and QoS 0 on topics that match a filter of
        `store_all`. Where the log is full the message is refused with 0x97."""
    def append_control(self, table: int, key: bytes, value: bytes, now_us: int) -> int:
        """Appends a control record: the newest value of (table, key) is in force, an empty value removes it.
        Table 0 is the kernel's own delivery state: the key is the party (four bytes, little endian), the value what
        `Deliveries.detach` returned. Returns the log position at which it is durable."""
    def append_progress(self, progress: Progress, now_us: int) -> int:
        """Appends a control record for each party that has progress. Returns the log position at which they are
        durable."""
    def end_offset(self) -> int: ...
    def begin_offset(self) -> int: ...
    def durable_offset(self) -> int: ...
    def end_position(self) -> int: ...
    def durable_position(self) -> int: ...
    def uncommitted_bytes(self) -> int: ...
    def controls(
        self, from_number: int, limit: int, effort: int
    ) -> tuple[list[tuple[int, int, bytes, bytes]], int, bool]:
        """Durable control records (number, table, key, value) from a number on, table 0 left out, at most `limit` and
        for about `effort`; up to which number all have been looked at, and True if there are no more. For the view.
        Numbers start at 1."""
    def next_control_number(self) -> int:
        """The number of the next control record."""
    def marks(self, parties: list[int]) -> list[int | None]:
        """Below which offset each of these durable parties has acknowledged all; None of those without a state."""
    def begin_instant(self) -> None:
        """What delivery states and retained messages are at this moment is to be copied, while they change: each before
        its first change, or when the walk comes to it."""
    def states_piece(
        self, after: int | None, effort: int
    ) -> tuple[tuple[dict[str, Any], dict[str, Any]], int | None]:
        """Delivery states copied since the last call, with about `effort` more of those behind a party: what they have
        acknowledged, what is in flight; and up to which party they have been looked at, None if all have. A dict has
        `rows` and columns, each as the bytes of an Arrow buffer. Acknowledged: party (u32), begin, end (u64), of each
        party first what lies below its mark. In flight: as `Deliveries.instant_piece`."""
    def retained_piece(self, effort: int) -> tuple[dict[str, Any], bool]:
        """Retained messages copied since the last call, with about `effort` more, and true if that was all: rows,
        name_ends (u32), names, offset (u64), expires_at (u64, 0: never)."""
    def note_effort(self, effort: int) -> None:
        """So much was looked at elsewhere: it counts as the log's."""
    def delivery_state(self, party: int) -> bytes | None:
        """The delivery state of a durable party as recovery found it in the log, or as last written."""
    def commit(self) -> bool:
        """Writes and syncs what has been appended, here and now; for simulation, tools and shutdown."""
    def scan(self, scans: Scans) -> None: ...
    def answer(self, question: Question, effort: int) -> int | None:
        """Works on the question with about this effort (`effort`); `None` while the answer is not there yet."""
    def prepare_filters(self, effort: int) -> bool:
        """Gets ready for filters with wildcards, with about this effort (`effort`); true once it is. Without it the first
        one to come does that."""
    def declare(self, topic_name: bytes, now_us: int) -> int:
        """The number of a topic, which it gets if it has none; durable once the log is up to where it ends now."""
    def keep_all(self, topic_name: bytes, keeps_all: bool) -> None:
        """What comes at QoS 0 on the topic is stored for queues that are given entries whole, from now on or no
        longer."""
    def entries_end(self, topic_name: bytes) -> int | None:
        """How many entries a topic has had; `None` if there is no such topic."""
    def stored_at(self, offset: int) -> int | None:
        """When (in microseconds) the message with an offset was stored; `None` if it is gone, damaged or not durable."""
    def offset_at(self, time_us: int) -> int:
        """The first durable offset appended at or after a time, or `durable_offset`."""
    def published(self, party: int, from_offset: int) -> int:
        """How many messages of a party there are from an offset on. Looks at every record behind that."""
    def retained(self, topic_filter: bytes, from_offset: int, limit: int) -> tuple[list[int], int]:
        """Offsets of the retained messages that match, from an offset on in their order: `limit` at most, and up to which
        offset that is all (`end_offset` where there are no more). Fewer may come although there are more: what is
        looked at in one call is bounded."""
    def retained_count(self) -> int: ...
    def begin_retention(self, *, maximum_age_us: int, maximum_bytes: int, now_us: int) -> bool:
        """Begins to remove the oldest sealed segments: those whose last record is older, and those without which the log
        would fit. False if there are none. Each of the following is one step; the log goes on between them."""
    def begin_thinning(self, now_us: int) -> bool:
        """Begins to write the next carry segments anew as one, if at least half of what they hold is needed by nobody.
        False if there are none."""
    def abandon_retention(self) -> None:
        """The run is given up; nothing has gone."""
    def whole_from(self) -> int:
        """The offset from which on the log is whole and stays so while the present run lasts."""
    def survey_job(self) -> Job | None:
        """First step, beside the loop: which topics have records there."""
    def going(self, topics: list[str]) -> list[int]:
        """The places of those of some topics that have records in what goes; of all of them before it is surveyed. A
        queue that reads none of them needs nothing of it and loses nothing."""
    def whole_controls_from(self) -> int:
        """All control records from this number on are there, and stay so as long as the present run of retention lasts."""
    def going_names(self, maximum: int) -> list[str] | None:
        """The names of all topics that have records in what goes; None if they are more than `maximum`, or not known."""
    def renew_piece(self, effort: int, now_us: int) -> bool:
        """Writes at the head what the log would lose: topic names, control records in force, delivery states of parties at
        rest. True if that was all; it has to become durable."""
    def retention_may_go_on(self) -> bool:
        """True once that is durable and a checkpoint stands behind what goes, or the disk is nearly full."""
    def retention_has_checkpoint(self) -> bool: ...
    def visit(self, cursors: list[dict[str, Any]]) -> None:
        """There are queues, and these (party, mark, subscriptions, keep_from, messages_maximum) are to be looked at: groups
        before the sessions that take from them. What is older than `keep_from` and beyond the maximum they lose."""
    def visit_piece(self, effort: int) -> tuple[list[tuple[int, int, int, int]], bool]:
        """Looks at some of them: what they lose (party, first, end, count), and True if none waits any more."""
    def give_up(self, party: int, first_offset: int, end_offset: int, now_us: int) -> None:
        """Appends that a party at rest has lost what lies between two offsets: it passes over it."""
    def find_piece(self, effort: int) -> bool:
        """When all queues have been visited: what else outlives the segments (retained messages, what groups have handed
        over). True if that was all."""
    def carry_job(self, now_us: int) -> Job | None:
        """Beside the loop: copies what outlives its segment. `finish` hands out a job that gives the copy its name, unless
        the copy was not worth it: from then on the segments are gone. The `finish` of that hands out their removal."""
    def checkpoint(self, now_us: int) -> None:
        """Commits what there is, and writes the derived state behind it, here and now: for tools. A broker does it in the
        pieces that follow."""
    def begin_checkpoint(self, now_us: int) -> None:
        """Begins to take down the derived state (dictionary, retained index, delivery states), so that recovery is this
        plus the log from here on."""
    def checkpoint_piece(self, effort: int) -> bool:
        """Takes down some of it; True if that was all. It has to become durable."""
    def checkpoint_job(self) -> Job | None:
        """Once it is: the checkpoint, to be written beside the loop."""
    def ahead_job(self) -> Job | None:
        """The file of the next segment, to be written in full beside the loop: once the open segment is an eighth full,
        where commits sync and there is room. None where there is one."""
    def release_job(self, kept_bytes: int) -> Job | None:
        """The oldest segment written since the log was opened that ends at least so far before its end: what the system
        has of it in memory, to be given back beside the loop. None if there is none."""
    def leave_footers(self) -> None:
        """Commits that sync leave the footers of segments to `seal_job` from now on, as long as no more than
        LIMITS["unsealed_segments_maximum"] wait."""
    def awaits_footer(self) -> bool:
        """True if the footer of a segment can be written: durable records lie behind it."""
    def prepare_seal(self, effort: int) -> bool:
        """Gets ready for the footer that has waited longest, with about this effort; true once `seal_job` has it, or there is
        none whose segment has durable records behind it."""
    def seal_job(self) -> Job | None:
        """The footer that is ready, to be written beside the loop. `finish` hands out a job that forgets the segment's
        index."""
    def finish(self, job: Job) -> tuple[int, int, Job | None]:
        """Takes over a job whose steps are done: segments removed, messages copied, and what is to be done next. Raises
        what the job failed with, and then all is as it was before."""
    def bytes_since_checkpoint(self) -> int: ...
    def epoch(self) -> str:
        """The log's identity, as `LogReader.epoch` tells it."""
    def effort(self) -> int:
        """Records looked at and topics looked up or compared since it was opened: what a piece of work is measured by."""
    def statistics(self) -> dict[str, int]:
        """segments, bytes, topics, retained, commits, committed_bytes, records_appended, cache_hits, cache_misses."""
    def remembered(self) -> dict[str, int]:
        """Bytes of what is remembered to save work: blocks, directories, segment_topics, postings, filters, queues,
        windows. Each has its maximum."""
    def close(self) -> None:
        """Commits what is left, with a checkpoint."""

@final
class Job:
    """Work beside the loop, which any thread may do; the log hands it out and takes it over."""

    def step(self) -> bool:
        """Does the next step without the interpreter's lock; True while there is another one. Never raises."""

@final
class Sockets:
    """Plain TCP and Unix sockets by token, of connections that speak MQTT or Pulsar: read and written by the turn,
    without the interpreter's lock. A token that is gone is passed over in silence."""

    def __new__(cls) -> Sockets: ...
    def fileno(self) -> int:
        """Readable while a socket has something to read, or takes bytes again that are left; and while the committer
        that is watched has something to be collected."""
    def watch(self, committer: Committer) -> None:
        """`receive` tells of this committer's commits from now on. Raises `OSError`."""
    def accept(self, listening: int, maximum: int) -> tuple[list[tuple[int, tuple[str, int] | None]], int]:
        """Takes up to so many connections from the socket that listens on this descriptor, as `add` does. Returns their
        tokens, each with the address and port it comes from if it has them, and the error number for which no more are
        taken; 0 if there may be more."""
    def add(self, descriptor: int) -> int:
        """Takes over a socket that was detached, and returns its token. Nothing is read yet."""
    def begin(self, token: int, connection: int, *, is_pulsar: bool) -> None:
        """Its bytes are this connection's, in both directions; it is read from now on."""
    def read_ahead(self, token: int, maximum_bytes: int) -> None:
        """`news` tells when more wait undecoded than these; 0 at first."""
    def set_limits(self, token: int, high_bytes: int, low_bytes: int) -> None:
        """It is full when more than `high_bytes` are left, until no more than `low_bytes` are."""
    def set_reading(self, token: int, is_reading: bool) -> None:
        """Whether it is read."""
    def write(self, token: int, data: bytes) -> None:
        """Sends what the system takes; the rest leaves when it takes more, in order."""
    def close(self, token: int) -> None:
        """Reads no more; is gone when what is left has been sent."""
    def abort(self, token: int) -> None:
        """Is gone."""
    def waiting_bytes(self, token: int) -> int:
        """Bytes that are left."""
    def here(self, token: int) -> tuple[str, int] | None:
        """The address and port at this end of a TCP connection."""
    def receive(
        self, inbox: Inbox, pulsar_inbox: PulsarInbox, deliveries: Deliveries, now_us: int, *, tells_all: bool
    ) -> tuple[bool, bool]:
        """Reads once from each socket that has something, up to TURN_BYTES_MAXIMUM in all, into the inboxes. `news`
        will tell of all connections that were fed if `tells_all`. The first is false if nothing came but packets that
        end exchanges of QoS 1 and 2, on connections whose own queue has nothing more for them, and there is no news:
        nobody waits for what has come. The second tells whether a commit has ended. Raises `OSError` if the system does
        not tell."""
    def send(self, outboxes: Outboxes, pulsar_outboxes: PulsarOutboxes) -> tuple[list[tuple[int, bytes]], bool]:
        """Sends what waits in the outboxes, one write for each piece; returns what is for connections without a socket
        here, and whether there is news."""
    def news(self) -> tuple[list[tuple[int, int]], list[tuple[int, bool]], list[int]]:
        """Since the last call: tokens that were fed, with the bytes that waited undecoded then; those that became full
        (false) or are no longer (true); and those that are gone, whose tokens are given out again from now on."""
    def totals(self) -> tuple[int, int]:
        """Bytes received, and bytes that `send` was given, since the start."""

@final
class Committer:
    """The thread that commits: while one group is on its way to the disk the next one gathers."""

    def __new__(cls, log: Log) -> Committer: ...
    def collect(self) -> None:
        """Takes over ended commits: `durable_position` moves. Raises `PoisonedError` after a failed sync."""
    def wake(self) -> None:
        """There may be something to commit; returns at once."""
    def stop(self) -> None:
        """Commits what is left, ends the thread, waits for it."""

def free_answered(inbox: Inbox, deliveries: Deliveries) -> None:
    """QoS 1 and 2 messages that were answered to the end since the last call give back Receive Maximum."""

def has_exceptions(
    routes: Routes, deliveries: Deliveries, outboxes: Outboxes, pulsar_outboxes: PulsarOutboxes
) -> bool:
    """True if one of these is not empty: `Routes.denied`; `Deliveries.refused` and `at_fault`; `Outboxes.refused` and
    `notices`; `PulsarOutboxes.gone`."""

def unfinished(
    inbox: Inbox, pulsar_inbox: PulsarInbox, deliveries: Deliveries, outboxes: Outboxes
) -> tuple[bool, bool, int | None]:
    """True if one of `Inbox.ready`, `PulsarInbox.ready`, `Deliveries.waiting` and `Outboxes.waiting` is;
    `Deliveries.awaits_commit`; and the earlier of `Inbox.next_at_us` and `PulsarInbox.next_at_us`."""

@final
class Criteria:
    """What a reader wants. All of it has to be met; what is not given is met by anything."""

    def __new__(
        cls,
        filters: Sequence[bytes],
        *,
        spans: Sequence[tuple[bytes, int, int, int]] | None = None,
        pattern: str | None = None,
        names: set[bytes] | None = None,
        prefix: bytes | None = None,
        qos: Sequence[int] | None = None,
        retain: bool | None = None,
        keys: set[bytes] | None = None,
    ) -> Criteria:
        """One of the filters or spans has to match; a span is a filter, the offsets from and up to which it holds, and
        the party whose messages it leaves out (0: nobody's). `pattern` is a regular expression over whole topic names;
        ValueError says what is wrong with it."""

@final
class LogReader:
    """Reads a log directory without touching it, beside a running broker too. Returns nothing that is not durable."""

    @staticmethod
    def open(directory: str) -> LogReader: ...
    def refresh(self, durable_offset: int | None) -> None:
        """Looks for new records; `durable_offset` limits them where the caller knows it better."""
    def passed_over(self) -> list[dict[str, Any]]:
        """Damage in the segment that is not sealed, passed over since the last call; as `verify` tells it."""
    def begin_offset(self) -> int: ...
    def end_offset(self) -> int: ...
    def epoch(self) -> str:
        """The log's identity: made when it was created, part of every checkpoint outside."""
    def segments(self) -> list[dict[str, Any]]:
        """number, kind ("log" or "carry"), file, bytes, begin_offset, end_offset, first_time_us and last_time_us (None without records), sealed, whole, records."""
    def topics(self, topic_filter: bytes | None, after: bytes, limit: int) -> list[tuple[str, int]]:
        """The first `limit` topics after a name, in the order of their names' bytes, with their number of stored
        messages; fewer only where there are no more."""
    def progress(
        self, parties: set[int], *, from_offset: int, from_number: int, to_offset: int, rows_maximum: int
    ) -> tuple[dict[str, Any], int | None]:
        """What records say that parties had acknowledged, those that lie before messages of the range: party, append
        time, the message before which it lies, and the range; it begins at 0 where all below its end is done. And the
        control number at which to go on, if that is not all."""
    def recorded(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """What recovery would find of delivery states and retained messages: what was acknowledged and what was in
        flight, as in `Log.states_piece`; what is retained, as in `Log.retained_piece`."""
    def offset_at(self, time_us: int) -> int:
        """The first offset appended at or after a time."""
    def read(
        self,
        criteria: Criteria,
        columns: Sequence[str],
        *,
        from_offset: int,
        to_offset: int,
        rows_maximum: int,
        bytes_maximum: int,
    ) -> tuple[dict[str, Any], int, int]:
        """The matching messages as the columns that were asked for, the offset up to which was read, and how many
        messages up to there are damaged, as far as was found and of whatever topic. A column is a list of Arrow buffers in
        Arrow's order (validity or None, offsets, data); `rows` is their number. Columns: topic, key, value, shard,
        offset, entry, timestamp (append time, us), event_time (us, null), qos, retain, publisher (null if unknown),
        expires_at (us, null), properties (as map buffers: offsets, key offsets, key data, value offsets, value data).
        Arrow types: topic utf8; key, value binary; shard, qos int32; offset, entry, publisher int64; times timestamp[us];
        retain bool; properties map of utf8 to utf8 (payload_format_indicator, content_type, response_topic,
        correlation_data in hexadecimal, and the publisher's own); headers a list of the same in the same buffers, with
        values as they came."""
    def reach(
        self, criteria: Criteria, *, from_offset: int, to_offset: int, rows_maximum: int, bytes_maximum: int
    ) -> tuple[int, int]:
        """The smallest offset such that the range from `from_offset` has so many messages of the topics, or about so
        many bytes of them, or ends at `to_offset`; and how many messages it has."""
    def split(self, criteria: Criteria, *, from_offset: int, to_offset: int, parts: int) -> list[tuple[int, int]]:
        """At most `parts` ranges of about equal stored bytes that cover the range."""
    def verify(self) -> list[dict[str, Any]]:
        """Reads every checksum; returns what is damaged (file, first_position, end_position, reason)."""

@final
class SimulatedDisk:
    """A seeded disk in memory with faults, which `holdfast.testing` stands on; what was not synced may be lost, torn or
    reordered at `crash`."""

    def __new__(cls, seed: int, *, capacity_bytes: int = ...) -> SimulatedDisk: ...
    def crash(self) -> None:
        """Power is cut: a seeded choice of what was not synced is lost or torn; open files are dead."""
    def fail_next_sync(self) -> None: ...
    def set_capacity(self, capacity_bytes: int) -> None: ...
    def flip_bit(self, file: str, position: int) -> None:
        """Damages one bit on the medium."""
    def write(self, file: str, data: bytes) -> None:
        """A new file with these bytes, durable on return."""
    def remove(self, file: str) -> None: ...
    def files(self) -> list[str]:
        """The names of all files."""
    def read(self, file: str) -> bytes:
        """What a file shows at this moment."""

# --- delivery -------------------------------------------------------------------------------------------------------------

@final
class Deliveries:
    """Attached queues with their cursors, windows and what is in flight."""

    def __new__(cls) -> Deliveries: ...
    def attach(
        self,
        connection: int,
        *,
        party: int,
        state: bytes,
        subscriptions: Sequence[_Subscription],
        receive_maximum: int,
        mark: int,
        end_offset: int,
        entries_maximum: int,
        pack_maximum: int,
        sent_before: int,
    ) -> int:
        """The session of `party` is now on `connection`; returns its queue. `state` is empty for a new session, and
        then reading starts at `mark`. What was in flight is sent again first: PUBLISH with DUP, or PUBREL
        [MQTT-4.4.0-1].
        `entries_maximum`: 0 for a durable party (it reads the log again); else what a slow reader may lag before messages are skipped.
        `pack_maximum`: how many messages its own queue gives before all of them must be acknowledged; 0: it always goes on.
        `sent_before`: what its own queue has below this offset may have been sent at QoS 1, and goes out with DUP."""
    def detach(self, connection: int, unreleased: bytes) -> bytes:
        """The session leaves its connection; returns its delivery state (with what is in flight), to be stored as it is.
        `unreleased` is what `Inbox.unreleased` says."""
    def open_group(
        self, *, party: int, owner: int, state: bytes, subscriptions: Sequence[_Subscription], mark: int, end_offset: int,
        sent_before: int = ..., whole: bool = ...,
    ) -> int:
        """The queue of a group is attached; returns it. Its messages go to whoever joins, each to one member; `party` is
        the group's own. `owner` is whose messages No Local leaves out. What lies below `sent_before` may have been
        sent to somebody: whoever gets it is told so (`Outboxes.mark_again`). A `whole` queue reads one topic, is given
        entries as they are, and is for consumers alone."""
    def attach_consumer(self, connection: int) -> int:
        """A consumer is on this connection from now on, beside others or a session; returns its receiver. It takes by
        permits, which begin at 0 and are its own: neither joining a queue nor leaving one changes them."""
    def detach_consumer(self, receiver: int) -> None:
        """The consumer is gone: what it had goes back to its queue, ahead of what is new and in offset order, and counts
        as no redelivery."""
    def open(self, connection: int) -> None:
        """A connection that may have producers and consumers is known from now on: what is held for it before it has any
        leaves. `close` ends it."""
    def close(self, connection: int) -> None:
        """A connection with producers or consumers has ended: its consumers are detached, and what waits for it leaves no
        more. To be called before its number is used again."""
    def join_consumer(self, queue: int, receiver: int, *, counts_redeliveries: bool) -> None:
        """The consumer takes its turn at a queue that is `whole`, and at no other. With `counts_redeliveries` it is told how
        often each entry was wanted again; without, it is told 0, and wanting one entry again is wanting all that it has."""
    def leave_consumer(self, queue: int, receiver: int) -> None:
        """The consumer gets nothing more from the queue, and what it had goes back as by `detach_consumer`. What it still
        says to be done with counts."""
    def consumers(self, queue: int) -> list[tuple[int, int, int, int]]:
        """(receiver, messages that it has been given, messages of those that it has, permits) of those that take from the
        queue, in the order in which they joined."""
    def refuse_entry(self, receiver: int, offset: int, kind: NoticeKind) -> None:
        """An entry that could not be encoded (gone from the log) counts as done, with a notice, and has cost no permits."""
    def keep_unreceived(self, keeps: bool) -> None:
        """Whether a group's message of QoS 2 stays the group's until it is received, where its member's session ends with
        the connection: then it goes back to the group, and the notice "session_ended" is for those alone that did
        not."""
    def close_group(self, queue: int) -> bytes:
        """The group is detached; returns its delivery state. What members have in flight at QoS 1 is not acknowledged in
        it."""
    def join(
        self, queue: int, connection: int, *, qos: int, retain_as_published: bool, identifier: int | None
    ) -> None:
        """The session on this connection takes its turn in the group, on these terms; they replace those it had."""
    def leave(self, queue: int, connection: int) -> None:
        """The session gets nothing more from the group; what it has in flight it completes. `detach` leaves every group
        and gives back what was in flight at QoS 1."""
    def select(self, queue: int, selection: Selection) -> None:
        """How the group's next member is chosen from now on. Keys taken from elsewhere than before are given to nobody
        until what is in flight has been settled."""
    def members(self, queue: int) -> list[tuple[int, int, int]]:
        """(connection, messages of QoS 1 and 2 that it has been given of the group, those in flight), in the order in
        which they joined."""
    def keys(self, queue: int, maximum: int) -> tuple[int, list[tuple[int, int, int, int, int, int]]]:
        """How many messages wait for their key's member or for their key to move; and of the key slots with messages in
        flight those held longest, at most `maximum`: (slot, connection, in flight, waiting until it can move, held since
        this time in microseconds, the first offset since then). A group without keys has none."""
    def begin_instant(self) -> None:
        """What is in flight at this moment is to be copied, while it changes: each receiver's before its first change, or
        when the walk comes to it."""
    def instant_piece(self, effort: int) -> tuple[dict[str, Any], bool]:
        """What has been copied since the last call, with about `effort` more of it, and true if that was all; of each
        receiver first a row with packet identifier 0, whether or not anything is in flight to it. Rows, and
        columns as bytes: party, connection (u32; its highest number: none), packet_identifier (u16), offset (u64), qos,
        received (QoS 2: PUBREC came), retained (u8; beside the queue's order), queue (u32: the party of the queue that
        gave it), attempts (u16) and since (u64, us): on this connection."""
    def backlog(self, queue: int) -> tuple[int, int]:
        """The offset from which a group reads on, and the messages before it that wait to be given out again. Of a `whole`
        queue too, messages and not entries."""
    def subscribe(self, queue: int, kept: int, others: Sequence[_Subscription]) -> None:
        """Replaces the queue's subscriptions, past ones included, the first `kept` apart."""
    def grant(self, queue: int, receive: Sequence[tuple[bytes, bool]] | None) -> None:
        """What the queue may get of the log, retained messages included, from now on: as in `Routes.grant`. What it has
        at hand and has not sent is read again by that; what was in flight on an earlier connection and is denied now
        is given up with the notice "denied"."""
    def owe(
        self,
        queue: int,
        topic_filter: bytes,
        *,
        qos: int,
        no_local: bool,
        identifier: int | None,
        from_offset: int,
        until_offset: int,
    ) -> None:
        """The queue gets the retained messages between these offsets that match, with the RETAIN flag, before new ones;
        with `no_local` without its own party's. They are looked up page by page, as long as it subscribes to the
        filter. Once more for the same filter begins again."""
    def set_writable(self, connection: int, writable: bool) -> None: ...
    def admit(self, arrivals: Arrivals, end_position: int) -> None:
        """Takes over this turn: acknowledgements of subscribers, settlements and permits of consumers; messages and what
        publishers are owed (PUBACK, PUBREC, PUBCOMP, receipts of entries) wait until they are durable. `end_position` is
        the log's present end."""
    def hold(self, connection: int, data: bytes, position: int) -> None:
        """`data` goes out once the log is durable up to `position` (CONNACK, SUBACK, UNSUBACK)."""
    def settle(self, durable_offset: int, durable_position: int, outgoing: Outgoing) -> None:
        """What has become durable: queues get their messages, publishers their acknowledgements."""
    def hungry(self, durable_offset: int) -> Scans:
        """Queues that have room and must read the log."""
    def feed(self, scans: Scans) -> None:
        """Gives queues what the log found."""
    def allot(self, outgoing: Outgoing, now_us: int) -> bool:
        """Gives queued messages to windows that have room: packet identifiers, order, expiry. True if there are
        `notices`."""
    def take_progress(self) -> Progress | None:
        """What the log has to remember of this turn (acknowledged ranges, QoS 2 phases), for `Log.append_progress`;
        None if there is nothing and nothing waits for it. `progressed` is to be told."""
    def progressed(self, position: int) -> None:
        """That is durable once the log is durable up to `position`; what depends on it (PUBLISH of QoS 2, PUBREL,
        PUBCOMP, replies to consumers) goes out then."""
    def refuse(self, connection: int, packet_identifier: int, kind: NoticeKind) -> None:
        """A delivery that could not be encoded (too large for the client, or gone from the log) counts as done, with a
        notice."""
    def packs_overdue(self, now_us: int, timeout_us: int) -> list[tuple[int, int, int, int]]:
        """(connection, party of the group or 0 for the session's own queue, first offset, unacknowledged messages) of the
        packs of which nothing was sent for so long. Time during which a connection takes no bytes does not count."""
    def packs_due_us(self, now_us: int, timeout_us: int) -> int | None:
        """When the first of the packs that are not acknowledged now will be overdue; None if there is none, and
        `now_us` where the time of one does not run yet. What is sent later has its time from then on."""
    def retry_pack(self, connection: int, group: int, resend: bool, now_us: int) -> None:
        """The pack's time begins again; with `resend` what is not acknowledged goes out once more: PUBLISH with DUP under
        its packet identifier and in its order, or PUBREL where PUBREC came."""
    def give_up_pack(self, connection: int, group: int, keep_identifiers: bool) -> list[tuple[int, int]]:
        """The pack is committed although not all of it is acknowledged; returns the ranges of offsets (first, end) of
        messages that the client has not said to have. Their packet identifiers are free, or with `keep_identifiers` when
        they are acknowledged or the connection ends."""
    def pack(self, connection: int, group: int) -> dict[str, Any] | None:
        """What was given since the last commit: first_offset (None if nothing was), taken, pending, and whether it is
        open for more. None for a session without packs."""
    def waiting(self) -> bool:
        """True if a further turn has work without any new arrival or commit (a queue reads on)."""
    def awaits_commit(self) -> bool:
        """True if a message or an answer waits until the log is durable further on: the committer should be woken.
        Acknowledgement progress of QoS 1 does not make it true; nobody waits for that."""
    def refused(self) -> list[tuple[int, Literal["NoRoom", "TooManyTopics", "Damaged"], int]]:
        """(connection, why, how many): messages and entries that were not taken since the last call. An older MQTT client
        cannot be told, and is to be closed."""
    def at_fault(self) -> list[int]:
        """Connections that have sent an acknowledgement of another kind than the exchange of its packet identifier asks
        for, since the last call; it has changed nothing, and they are to be ended."""
    def mark(self, queue: int) -> int: ...
    def polled_to(self, queue: int) -> int:
        """Below which offset the queue has read the log, whether or not it has given what it found."""
    def acknowledged(self, queue: int) -> int:
        """Messages that a session has acknowledged of its queue since it was attached."""
    def in_flight(self, queue: int) -> int:
        """Messages in flight to the queue's session; of a group's queue those at QoS 1, by key those of QoS 2 too; of a
        `whole` queue those that its consumers have."""
    def sent(self, queue: int) -> list[tuple[int, int]]:
        """Offsets in flight to the queue's session, each with when it was sent last on this connection; 0: it was not."""
    def party_state(self, connection: int, unreleased: bytes) -> bytes:
        """The whole delivery state while the session stays attached, for a checkpoint."""
    def queues(self) -> list[tuple[int, int, int]]:
        """(party, queue, connection) of all sessions' queues."""
    def notices(self) -> list[tuple[int, NoticeKind, int, int, int]]:
        """What will not be delivered: (party, kind, first offset, end offset, count)."""
    def counters(self) -> dict[str, int]: ...

@final
class RangeSet:
    """Disjoint, coalesced, half-open ranges of integers below 2**64."""

    def __new__(cls, ranges: Sequence[tuple[int, int]] = ...) -> RangeSet: ...
    @staticmethod
    def decode(data: bytes) -> tuple[RangeSet, int]:
        """The set at the start of `data` and the number of bytes it took. ValueError for anything that `encode` does
        not write."""
    def encode(self) -> bytes: ...
    def insert(self, start: int, end: int) -> None: ...
    def remove_below(self, position: int) -> None: ...
    def contains(self, position: int) -> bool: ...
    def contains_range(self, start: int, end: int) -> bool: ...
    def gaps(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of the range that are not in the set."""
    def ranges(self) -> list[tuple[int, int]]: ...
    def positions(self) -> int:
        """The number of integers in the set."""
    def __len__(self) -> int:
        """The number of ranges."""

@final
class Selection:
    """How the members of a group are chosen: a value."""

    def __new__(
        cls,
        how: Literal["turns", "least_loaded", "stay", "topic", "publisher", "user_property"],
        owners: Sequence[tuple[int, int, int]] = ...,
        name: bytes = ...,
    ) -> Selection:
        """Each in its turn; who has least in flight (at QoS 0: least to be sent); the same one as long as it has room. Or
        by key, taken from the topic, the publisher, or the user property of this name (without it: the topic): only the
        owner of the key's slot gets it, and a slot moves to another owner when nothing of it is in flight. `owners`:
        (first slot, slot after the last, connection). ValueError if they overlap, are empty or leave the slots."""
    def owner(self, key_slot: int) -> int | None: ...

def key_slot(key: bytes) -> int:
    """The slot of a key: its MurmurHash3 (32 bit, x86, seed 0) modulo 65 536."""
def unreleased(state: bytes) -> bytes:
    """The QoS 2 packet identifiers received and not released, from a delivery state; for `Inbox.accept`."""
def new_state(
    mark: int, acknowledged: Sequence[tuple[int, int]] = ..., *, unreleased: bytes = ..., before: bytes = ...
) -> bytes:
    """The delivery state of a party that wants nothing below `mark` and in these ranges, and has published what is
    `unreleased`. Packet identifiers are counted on from the state that it had `before`."""
def state_mark(state: bytes) -> int:
    """The mark of a delivery state: everything below is acknowledged."""
def state_skip(state: bytes, mark: int, *, abandons: bool = False) -> bytes:
    """The state that wants nothing below `mark` but what is in flight (a queue at rest was cut to its limits); if it
    abandons that too, only the ends of exchanges at QoS 2 are left, so that the party takes no later message for one of
    these."""
def describe_state(state: bytes) -> dict[str, Any]:
    """mark, acknowledged (ranges), in_flight (list of packet_identifier, offset, qos, phase, and group: the party of the
    group it came from), unreleased, owed."""

# --- only where the feature `testing` is built in, as by `make setup`; not in what ships ----------------------------------

@final
class Cursor:
    """The position of one queue: what is acknowledged, held, and waits. The cursors of attached queues live inside
    `Deliveries`. Offsets below the mark and unknown ones are harmless everywhere."""

    def __new__(cls, mark: int, acknowledged: Sequence[tuple[int, int]] = ...) -> Cursor:
        """Everything below `mark` and in `acknowledged` is done."""
    def mark(self) -> int:
        """Everything below is done: acknowledged, given up, or not matched. Never moves backwards."""
    def read(self) -> int:
        """Everything below has been offered or passed. Never moves backwards."""
    def acknowledged(self) -> list[tuple[int, int]]:
        """Ranges above the mark. An acknowledgement covers its entry and what did not match before it."""
    def wants(self, offset: int) -> bool: ...
    def pass_to(self, to: int) -> None:
        """There is no further matching record below `to`."""
    def deliver(self, offset: int, holder: int, *, count: int = ..., key_slot: int = ...) -> bool:
        """A new record of `count` messages goes to a holder. False, and nothing happens, if it is not wanted."""
    def delay(self, offset: int, not_before: int, *, count: int = ..., key_slot: int = ...) -> bool:
        """A new record waits until `not_before` (0: at once). False, and nothing happens, if it is not wanted."""
    def acknowledge(self, offset: int) -> tuple[int, int, int] | None:
        """A whole entry, held or waiting: (holder, attempts, messages not acknowledged before)."""
    def acknowledge_numbered(self, number: int) -> tuple[int, int, int] | None:
        """The same for the entry with this number, where all are those of one topic; here it is the offset."""
    def acknowledge_ahead(self, offset: int, *, count: int = ...) -> None:
        """An entry that is still to be read: it was in flight before the cursor was restored."""
    def acknowledge_message(self, offset: int, batch_index: int) -> bool:
        """True if this makes the entry complete."""
    def give_back(self, offset: int, not_before: int) -> bool:
        """The entry waits until `not_before` and keeps its attempts. False if nobody holds it."""
    def release(self, holder: int) -> int:
        """All that the holder has waits, due at once; returns the number of entries."""
    def next_redelivery(self, now: int, key_slots_on_hold: Sequence[int]) -> int | None:
        """The lowest offset that waits, is due, and whose key slot is not on hold."""
    def redeliver(self, offset: int, holder: int) -> int | None:
        """The attempts with this one; None if the entry does not wait or is not due."""
    def next_due(self) -> int | None:
        """When the first entry that is not due becomes due."""
    def in_flight_count(self) -> int: ...
    def redelivery_count(self) -> int:
        """Entries that wait, due or not."""
    def take_progress(self) -> tuple[int, list[tuple[int, int]]] | None:
        """The mark and the ranges above it that were acknowledged since the last call; None if nothing was."""
    def deliveries(self) -> list[tuple[int, int, int, int]]:
        """What is held, in position order: (offset, holder, attempts, messages not acknowledged)."""
    def skip(self, to: int) -> tuple[RangeSet, int, RangeSet]:
        """Gives up what is not acknowledged below `to`: the messages that were offered, their number, and the offsets
        never read."""

def murmur3_32(key: bytes) -> int:
    """MurmurHash3, 32 bit, x86, seed 0."""

def open_entry(tail: bytes) -> list[tuple[bytes, bytes, bytes | None, int | None, bool, bool]]:
    """The messages of an entry: what travels with each, its payload, key, event time in microseconds, whether it has
    the RETAIN flag and whether it has no value. Raises `ValueError` with the reason if it stays closed."""

def entry_key_hash(tail: bytes) -> int | None:
    """MurmurHash3 of the key by which an entry's order is kept. Raises `ValueError` for what is no entry."""

def entry_of_message(
    properties: bytes,
    payload: bytes,
    *,
    retain: bool,
    appended_at_us: int,
    producer_name: bytes,
    sequence: int,
) -> bytes:
    """A message as an entry of its own."""

def arrived(
    arrivals: Arrivals,
) -> tuple[
    list[tuple[int, bytes, bytes, bool, tuple[int, int, int, int, int | None, int | None]]],
    list[tuple[int, int, str, list[int], int | None]],
    list[tuple[int, int]],
    list[int],
]:
    """What one turn brought: of entries connection, topic name, payload, whether it is refused, and (producer, first and
    last sequence id, messages, hash of its key, not before); of what is said of them connection, receiver, what, their
    numbers and the request; permits (receiver, messages); connections that ask whether anybody is there."""
