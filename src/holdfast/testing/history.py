"""What the clients of a run did and saw, in one order.

Owns: the events.
Never: judges them; that is what `checkers` is for.

Invariants:
1. Events are in the order in which the clients experienced them: an acknowledgement follows its
   sending.
2. `Sent` is noted once for each message, however often it is sent again.
"""

from collections.abc import Callable
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

    def payload(self) -> bytes:
        """The payload by which a receiver recognizes it."""
        head = f"{self.publisher} {self.sequence} {self.qos} {int(self.retain)} "
        return head.encode() + b"." * self.padding_bytes


def parse_payload(topic: str, payload: bytes) -> Message:
    """The message that `Message.payload` made; `ValueError` if it is none or was damaged."""
    publisher, sequence, qos, retain, padding = payload.decode().split(" ")
    if padding.strip("."):
        raise ValueError(f"padding was changed in {payload[:80]!r}")
    return Message(publisher, topic, int(sequence), int(qos), retain == "1", len(padding))


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
class RetainedRead:
    """A fresh subscriber saw this retained message on a topic, or none."""

    topic: str
    message: Message | None


@dataclass(frozen=True, slots=True)
class Broken:
    """A client saw something that no specification allows."""

    client: str
    what: str


Event = (
    Subscribed
    | Unsubscribing
    | Sent
    | Acknowledged
    | Refused
    | Received
    | Window
    | SessionLost
    | Mark
    | RetainedRead
    | Broken
)


@dataclass(slots=True)
class History:
    """The events of one run."""

    events: list[Event] = field(default_factory=list)
    watch: Callable[[Event], None] | None = None
    """Called with each event, for a trace."""

    def add(self, event: Event) -> None:
        """Notes an event."""
        self.events.append(event)
        if self.watch is not None:
            self.watch(event)
