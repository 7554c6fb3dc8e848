"""Wills on their way: published like any other message, through a connection of our own.

The loopback is an ordinary connection of the kernel's inbox whose bytes are written here and whose
acknowledgements are thrown away. So a Will takes the very path of a PUBLISH from a socket (routes,
log, retained, expiry), and neither the kernel nor the turn knows a second way to publish.

Owns: Wills that are due and not yet appended. Never: decides when one is due (protocols.mqtt.will).

Invariants:
1. A Will on record is taken off it after the message was appended, in the same turn: a crash may
   repeat a Will, not lose it. The Will of a session that has ended has a record of its own; that
   of a session that was never on record has none.
2. At most IN_FLIGHT_MAXIMUM are unacknowledged at once; the others wait here, at most one for each
   connection that has ended.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast.broker.stages import KernelStages
from holdfast.kernel import TRANSIENT_PARTY, encode_packet
from holdfast.protocols.mqtt.handshake import PACKET_SIZE_BYTES_MAXIMUM, RECEIVE_MAXIMUM_DEFAULT
from holdfast.protocols.mqtt.packets import Will

LOOPBACK: Final = 0
"""The loopback's connection handle; sockets get handles from 1 on."""
LOOPBACK_PARTY: Final = TRANSIENT_PARTY
"""Who publishes Wills, as the log sees it."""
IN_FLIGHT_MAXIMUM: Final = 1_024
"""Wills published at once: when ten thousand connections break, publishing all their Wills in one
turn would keep everybody else waiting."""


@dataclass(frozen=True, slots=True)
class DueWill:
    """A Will that is due, and the session whose record still has it (`None`: it has no record)."""

    will: Will
    client_identifier: str | None
    due_at_us: int


class Wills:
    """Publishes Wills that are due."""

    def __init__(self, kernel: KernelStages, counts: Counter[str]) -> None:
        self._inbox = kernel.inbox
        self._read_buffer = kernel.read_buffer
        self._counts = counts
        self._due: deque[DueWill] = deque()
        self._fed: list[DueWill] = []
        self._on_record: set[tuple[str, int]] = set()
        self._in_flight = 0
        self._last_identifier = 0
        self._open_loopback(kernel)

    def owe(self, due: DueWill) -> None:
        """This Will is to be published. One that is on record is taken once, however often it is
        found there before it could be taken off."""
        if due.client_identifier is not None:
            key = (due.client_identifier, due.due_at_us)
            if key in self._on_record:
                return
            self._on_record.add(key)
        self._due.append(due)

    def waiting(self) -> bool:
        """True if there are Wills that can be fed now."""
        return bool(self._due) and self._in_flight < IN_FLIGHT_MAXIMUM

    def feed(self, now_us: int) -> None:
        """Puts Wills that are due before the inbox, as bytes."""
        while self.waiting():
            due = self._due.popleft()
            self._feed_bytes(self._encode(due.will), now_us)
            self._fed.append(due)
            self._counts["wills_published"] += 1

    def appended(self, take_off: Callable[[str, int, int], None], now_us: int) -> None:
        """What was fed has been appended; `take_off` removes it from its session's record."""
        fed, self._fed = self._fed, []
        for due in fed:
            if due.client_identifier is not None:
                self._on_record.discard((due.client_identifier, due.due_at_us))
                take_off(due.client_identifier, due.due_at_us, now_us)

    def answered(self, count: int) -> None:
        """`count` of what was published at QoS 1 or 2 is durable."""
        self._in_flight -= count

    def _encode(self, will: Will) -> bytes:
        fields = {
            "packet_identifier": 0,
            "qos": will.qos,
            "retain": will.retain,
            "dup": False,
            "topic_name": will.topic_name,
            "payload": will.payload,
            "properties": will.properties,
        }
        if will.qos == 0:
            return encode_packet("publish", fields, protocol_version=5)
        self._in_flight += 1
        self._last_identifier = self._last_identifier % RECEIVE_MAXIMUM_DEFAULT + 1
        fields["packet_identifier"] = self._last_identifier
        data = encode_packet("publish", fields, protocol_version=5)
        if will.qos == 2:
            # Released at once: nothing is ever sent twice here.
            release = {"packet_identifier": self._last_identifier, "reason_code": 0}
            data += encode_packet("pubrel", release, protocol_version=5)
        return data

    def _feed_bytes(self, data: bytes, now_us: int) -> None:
        size = len(self._read_buffer)
        for start in range(0, len(data), size):
            part = data[start : start + size]
            self._read_buffer[: len(part)] = part
            self._inbox.feed(LOOPBACK, len(part), now_us)

    def _open_loopback(self, kernel: KernelStages) -> None:
        kernel.inbox.open(LOOPBACK)
        kernel.inbox.accept(
            LOOPBACK,
            party=LOOPBACK_PARTY,
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
            party=LOOPBACK_PARTY,
        )
        kernel.dispatch.attach(
            LOOPBACK,
            party=LOOPBACK_PARTY,
            state=b"",
            subscriptions=[],
            receive_maximum=RECEIVE_MAXIMUM_DEFAULT,
            mark=0,
            end_offset=0,
            entries_maximum=1,
        )
