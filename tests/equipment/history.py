"""What the clients of a run did and saw, in one order.

Owns: the events.
Never: judges them; that is what `checkers` is for.

Invariants:
1. Events are in the order in which the clients experienced them: an acknowledgement follows its
   sending.
2. `Sent` is noted once for each message, however often it is sent again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

PADDING_BYTES_MAXIMUM = 4_096


@dataclass(frozen=True, slots=True)
class Message:
    """A message as its publisher knows it; its payload tells all of this to whoever receives it."""

    publisher: str
    topic: str
    sequence: int
    qos: int
    retain: bool = False
    padding_bytes: int = 0
    expiry_s: int = 0
    """Its Message Expiry Interval; 0: it has none."""
    empty: bool = False
    """It has no payload, and so removes what its topic retains; nobody recognizes it."""

    def payload(self) -> bytes:
        """The payload by which a receiver recognizes it."""
        if self.empty:
            return b""
        head = f"{self.publisher} {self.sequence} {self.qos} {int(self.retain)} {self.expiry_s} "
        return head.encode() + b"." * self.padding_bytes


def parse_payload(topic: str, payload: bytes) -> Message:
    """The message that `Message.payload` made; `ValueError` if it is none or was damaged."""
    publisher, sequence, qos, retain, expiry_s, padding = payload.decode().split(" ")
    if padding.strip("."):
        raise ValueError(f"padding was changed in {payload[:80]!r}")
    return Message(
        publisher, topic, int(sequence), int(qos), retain == "1", len(padding), int(expiry_s)
    )


@dataclass(frozen=True, slots=True)
class Connecting:
    """A CONNECT was sent; nobody may ever hear what became of it."""

    client: str
    will: Message | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """CONNACK came: the client is connected, on these terms."""

    client: str
    present: bool
    """Session Present."""
    clean_start: bool = False
    expiry_s: int = 86_400
    """The Session Expiry Interval it asked for."""
    packet_bytes_maximum: int = 0
    """The largest packet that it takes; 0: any."""
    will: Message | None = None
    will_delay_s: int = 0
    protocol_version: int = 5


@dataclass(frozen=True, slots=True)
class Closed:
    """A connection that was accepted is over, as its client sees it."""

    client: str
    heard_s: float
    """When it last heard of the broker."""
    said: bool
    """It had said DISCONNECT with reason code 0, and the broker closed in answer."""
    leaving: bool = False
    """It had said DISCONNECT, and nobody knows whether the broker heard it."""


@dataclass(frozen=True, slots=True)
class Displaced:
    """A connection from which the client took its session over has ended."""

    client: str
    reason_code: int | None
    """What the broker said last, if it said anything."""


@dataclass(frozen=True, slots=True)
class Subscribing:
    """A SUBSCRIBE was sent: from here on messages may come."""

    subscriber: str
    topic_filter: str


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A SUBACK came: whatever is sent from now on is wanted."""

    subscriber: str
    topic_filter: str
    qos: int


@dataclass(frozen=True, slots=True)
class Unsubscribing:
    """An UNSUBSCRIBE was sent: from here on messages may or may not come."""

    subscriber: str
    topic_filter: str


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """An UNSUBACK came: what is sent from now on is not wanted."""

    subscriber: str
    topic_filter: str


@dataclass(frozen=True, slots=True)
class Sent:
    """A PUBLISH left for the first time."""

    message: Message


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The broker has taken responsibility: PUBACK or PUBREC."""

    message: Message


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker said no, with this reason code."""

    message: Message
    reason_code: int


@dataclass(frozen=True, slots=True)
class Received:
    """A message was handed to the subscriber's application."""

    subscriber: str
    message: Message
    qos: int
    dup: bool
    retain: bool
    expires_in_s: int | None = None
    """The Message Expiry Interval that it came with."""


@dataclass(frozen=True, slots=True)
class Transmitted:
    """A PUBLISH of QoS 1 or 2 arrived, whether or not the application gets it."""

    subscriber: str
    message: Message
    packet_identifier: int
    dup: bool


@dataclass(frozen=True, slots=True)
class Answered:
    """A client answered a message for the first time: PUBACK or PUBREC has left."""

    subscriber: str
    message: Message


@dataclass(frozen=True, slots=True)
class Window:
    """So many messages of QoS 1 and 2 were unanswered on a connection, of so many allowed."""

    subscriber: str
    unanswered: int
    receive_maximum: int


@dataclass(frozen=True, slots=True)
class SessionLost:
    """The broker did not know a session that it had confirmed."""

    client: str


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a party's queue has got to, as seen inside the broker."""

    party: str
    offset: int


@dataclass(frozen=True, slots=True)
class RetainedAsked:
    """A fresh subscriber asks for what is retained; it has a number."""

    number: int


@dataclass(frozen=True, slots=True)
class RetainedRead:
    """A fresh subscriber saw this retained message on a topic, or none."""

    topic: str
    message: Message | None
    asked: int = 0
    """The number of its asking; 0: it asked just now, when nothing was on its way."""


@dataclass(frozen=True, slots=True)
class Applied:
    """How the persistent sessions of APPLICATION clients are delivered to in this run."""

    subscribers: frozenset[str]
    pack_maximum: int
    transmissions_maximum: int
    """Of one message on one connection; 0: without end."""
    live_transmissions_maximum: int
    """The same for MQTT 5."""
    give_up_reason: str | None
    """Why the ledger has what they do not acknowledge; `None`: nothing is given up."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The broker has given up what a client did not acknowledge of a pack."""

    subscriber: str


@dataclass(frozen=True, slots=True)
class Keyed:
    """In this run groups give the messages of one publisher on one topic to one member, as long as
    that is there."""


@dataclass(frozen=True, slots=True)
class QueueLimited:
    """A queue at rest keeps so many messages."""

    messages_maximum: int


@dataclass(frozen=True, slots=True)
class Damaged:
    """The disk has damaged the only copy of a message."""

    message: Message


@dataclass(frozen=True, slots=True)
class LifeEnded:
    """A life of the broker ended: killed, without power, or by an error of the disk."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """What the loss ledger says a subscriber will not get, in the end."""

    subscriber: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a broker found when it began: control state and lengths of queues at rest."""

    subscriptions: dict[str, dict[str, int]]
    """Of each session: filters and their QoS."""
    queued: dict[str, int]
    """Of each session: messages of QoS 1 and 2 that it still has to get."""
    retained: frozenset[str]
    """Topics that retain something."""


@dataclass(frozen=True, slots=True)
class Held:
    """So much of something the broker held at one moment, of so much allowed."""

    what: str
    amount: int
    maximum: int


@dataclass(frozen=True, slots=True)
class Stepped:
    """The broker's loop has done so much work at one go, of so much allowed."""

    step: str
    effort: int
    maximum: int


@dataclass(frozen=True, slots=True)
class Broken:
    """A client saw something that no specification allows."""

    client: str
    what: str


Event = (
    Connecting
    | Opened
    | Closed
    | Displaced
    | Subscribing
    | Subscribed
    | Unsubscribing
    | Unsubscribed
    | Sent
    | Acknowledged
    | Refused
    | Received
    | Transmitted
    | Answered
    | Window
    | SessionLost
    | Mark
    | RetainedAsked
    | RetainedRead
    | Applied
    | GivenUp
    | Keyed
    | QueueLimited
    | Damaged
    | LifeEnded
    | Ledger
    | Recovered
    | Held
    | Stepped
    | Broken
)


@dataclass(slots=True)
class History:
    """The events of one run."""

    events: list[Event] = field(default_factory=list)
    watch: Callable[[Event], None] | None = None
    """Called with each event, for a trace."""
    clock: Callable[[], float] | None = None
    """Tells the time of an event; without one nothing has a time."""
    times_s: list[float] = field(default_factory=list)

    def add(self, event: Event) -> None:
        """Notes an event."""
        self.events.append(event)
        if self.clock is not None:
            self.times_s.append(self.clock())
        if self.watch is not None:
            self.watch(event)

    def timed(self) -> Iterator[tuple[float, Event]]:
        """All events with their times; 0 where there is no clock."""
        return zip(self.times_s or [0.0] * len(self.events), self.events, strict=True)
