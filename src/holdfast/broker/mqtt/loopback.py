"""Messages that the broker publishes itself: Wills, `$SYS`, and what an administrator sends.

The loopback is an ordinary connection of the kernel's inbox whose bytes are written here and whose
acknowledgements are read here. So such a message takes the very path of a PUBLISH from a socket
(routes, log, retained, expiry), and neither the kernel nor the turn knows a second way to publish.

Owns: publications that are not yet answered. Never: decides what is published.

Invariants:
1. `fed` of a publication is called in the turn in which it is appended, before that happens.
2. `answered` is called once: at QoS 1 and 2 when the message is durable or refused.
3. At most IN_FLIGHT_MAXIMUM are unanswered at once; the others wait here, and whoever publishes
   bounds their number.

Flow: wills, admin -> here -> Inbox.feed -> ... -> Outboxes.take -> here.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from holdfast.broker.counts import Counts, Event
from holdfast.broker.delivery.parties import BROKER_PARTY
from holdfast.broker.stages import KernelStages
from holdfast.kernel import decode_packets, encode_packet
from holdfast.protocols.mqtt.handshake import PACKET_SIZE_BYTES_MAXIMUM, RECEIVE_MAXIMUM_DEFAULT
from holdfast.protocols.mqtt.reason_code import ReasonCode

LOOPBACK: Final = 0
"""The loopback's connection handle; sockets get handles from 1 on."""
IN_FLIGHT_MAXIMUM: Final = 1_024
"""Messages published at once: when ten thousand connections break, publishing all their Wills in
one turn would keep everybody else waiting."""
FAILED: Final = 0x80
"""Reason codes from here on say that it did not work [MQTT 5 section 2.4]."""


def _nothing(*_arguments: int) -> None:
    pass


class Publisher(NamedTuple):
    """As whose a message counts, whoever sends it."""

    party: int
    key_slot: int


ITSELF: Final = Publisher(BROKER_PARTY, 0)


@dataclass(frozen=True, slots=True)
class Publication:
    """A message to be published, and who wants to know about it."""

    topic_name: str
    payload: bytes
    qos: int
    retain: bool
    properties: dict[str, Any] = field(default_factory=dict)
    publisher: Publisher = ITSELF
    fed: Callable[[], None] = _nothing
    """It is appended in this turn."""
    answered: Callable[[int], None] = _nothing
    """The reason code of its answer. At QoS 0 there is none, and it is called with 0 when the
    message has been fed."""


class Loopback:
    """Publishes what the broker has to say."""

    def __init__(self, kernel: KernelStages, counts: Counts) -> None:
        self._inbox = kernel.inbox
        self._read_buffer = kernel.read_buffer
        self._counts = counts
        self._waiting: deque[Publication] = deque()
        self._unanswered: dict[int, Publication] = {}
        self._unreleased: set[int] = set()
        """Packet identifiers of QoS 2 that are in use until PUBCOMP."""
        self._last_identifier = 0
        self.published = 0
        """How many messages have been fed."""
        self._open(kernel)

    def publish(self, publication: Publication) -> None:
        """It is fed in the next turn with room for it; ask for one."""
        self._waiting.append(publication)

    def waiting(self) -> bool:
        """True if there is something that can be fed now."""
        return bool(self._waiting) and len(self._unanswered) < IN_FLIGHT_MAXIMUM

    def feed(self, now_us: int) -> None:
        """Puts what waits before the inbox, as bytes."""
        while self.waiting():
            publication = self._waiting.popleft()
            self._inbox.publish_for(*publication.publisher)
            self._feed_bytes(self._encode(publication), now_us)
            self.published += 1
            publication.fed()
            if publication.qos == 0:
                publication.answered(ReasonCode.SUCCESS)

    def take_answers(self, batch: Iterable[tuple[int, bytes]]) -> None:
        """Reads what the outboxes gave for the loopback."""
        if not self._unanswered and not self._unreleased:
            return
        for connection, data in batch:
            if connection == LOOPBACK:
                packets, _used = decode_packets(data, protocol_version=5, role="client")
                for packet in packets:
                    self._answer(packet.kind, packet.fields)

    def _answer(self, kind: str, fields: dict[str, Any]) -> None:
        # PUBREC says that the message is durable; PUBCOMP, which may come first because the release
        # was fed at once, says no more than that the packet identifier is free.
        reason_code = fields.get("reason_code", ReasonCode.SUCCESS)
        if kind == "pubcomp" or reason_code >= FAILED:
            self._unreleased.discard(fields["packet_identifier"])
        if kind not in ("puback", "pubrec"):
            return
        publication = self._unanswered.pop(fields["packet_identifier"], None)
        if publication is None:
            return
        if reason_code >= FAILED:
            self._counts.add(Event.OWN_PUBLISHES_REFUSED)
        publication.answered(reason_code)

    def _encode(self, publication: Publication) -> bytes:
        fields = {
            "packet_identifier": 0,
            "qos": publication.qos,
            "retain": publication.retain,
            "dup": False,
            "topic_name": publication.topic_name,
            "payload": publication.payload,
            "properties": publication.properties,
        }
        if publication.qos == 0:
            return encode_packet("publish", fields, protocol_version=5)
        identifier = self._free_identifier()
        fields["packet_identifier"] = identifier
        data = encode_packet("publish", fields, protocol_version=5)
        self._unanswered[identifier] = publication
        if publication.qos == 2:
            # Released at once: nothing is ever sent twice here.
            self._unreleased.add(identifier)
            release = {"packet_identifier": identifier, "reason_code": 0}
            data += encode_packet("pubrel", release, protocol_version=5)
        return data

    def _free_identifier(self) -> int:
        # Far fewer are in use than there are, so this ends after a few steps at most.
        while True:
            self._last_identifier = self._last_identifier % RECEIVE_MAXIMUM_DEFAULT + 1
            identifier = self._last_identifier
            if identifier not in self._unanswered and identifier not in self._unreleased:
                return identifier

    def _feed_bytes(self, data: bytes, now_us: int) -> None:
        size = len(self._read_buffer)
        for start in range(0, len(data), size):
            part = data[start : start + size]
            self._read_buffer[: len(part)] = part
            self._inbox.feed(LOOPBACK, len(part), now_us)

    def _open(self, kernel: KernelStages) -> None:
        kernel.inbox.open(LOOPBACK)
        kernel.inbox.accept(
            LOOPBACK,
            party=BROKER_PARTY,
            protocol_version=5,
            keep_alive_s=0,
            receive_maximum=RECEIVE_MAXIMUM_DEFAULT,
            maximum_packet_size_bytes=PACKET_SIZE_BYTES_MAXIMUM,
            topic_alias_maximum=0,
            received=b"",
        )
        kernel.outboxes.open(
            LOOPBACK,
            protocol_version=5,
            maximum_packet_size_bytes=PACKET_SIZE_BYTES_MAXIMUM,
            topic_alias_maximum=0,
            party=BROKER_PARTY,
        )
        kernel.dispatch.attach(
            LOOPBACK,
            party=BROKER_PARTY,
            state=b"",
            subscriptions=[],
            receive_maximum=RECEIVE_MAXIMUM_DEFAULT,
            mark=0,
            end_offset=0,
            entries_maximum=1,
            pack_maximum=0,
            sent_before=0,
        )
