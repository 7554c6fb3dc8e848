"""An inbox gives what a plain decoder gives, however bytes are split over feeds and turns."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.kernel import LIMITS, Arrivals, Inbox, encode_packet
from tests.property.packets import VERSIONS, mutated, packets
from tests.property.twins.codec import decode

ACKNOWLEDGEMENTS = {"puback", "pubrec", "pubrel", "pubcomp"}
CONNECTIONS = 3


def accepted_inbox(version: int, read_buffer: bytearray) -> Inbox:
    inbox = Inbox(read_buffer)
    for connection in range(CONNECTIONS):
        inbox.open(connection)
        inbox.accept(
            connection,
            party=connection + 1,
            protocol_version=version,
            keep_alive_s=0,
            receive_maximum=65_535,
            maximum_packet_size_bytes=LIMITS["remaining_length_maximum"],
            topic_alias_maximum=65_535,
            unreleased=b"",
        )
    return inbox


class Trace:
    """What came out of one inbox, for each connection."""

    def __init__(self, version: int) -> None:
        self.read_buffer = bytearray(4_096)
        self.inbox = accepted_inbox(version, self.read_buffer)
        self.arrivals = Arrivals()
        self.counts: Counter[str] = Counter()
        self.controls: list[list[tuple[str, dict[str, Any]]]] = [[] for _ in range(CONNECTIONS)]

    def feed(self, connection: int, data: bytes) -> None:
        self.read_buffer[: len(data)] = data
        self.inbox.feed(connection, len(data), 0)

    def turn(self) -> None:
        events = self.inbox.decode(self.arrivals)
        self.counts["publish"] += self.arrivals.publishes
        self.counts["acknowledgement"] += self.arrivals.acknowledgements
        for connection, packet in events:
            packet.fields.pop("reason", None)
            self.controls[connection].append((packet.kind, packet.fields))
            self.inbox.release(connection)
        self.inbox.forget(self.arrivals)

    def drain(self) -> None:
        while self.inbox.ready():
            self.turn()


@st.composite
def client_streams(draw: st.DrawFn, version: int) -> bytes:
    """What a client sends after CONNECT; the last packet may be wrong."""
    drawn = draw(st.lists(packets(version, "server"), max_size=6))
    last = draw(st.just(b"") | mutated(version, "server"))
    valid = b"".join(
        encode_packet(kind, fields, protocol_version=version)
        for kind, fields in drawn
        if kind != "connect" and "topic_alias" not in fields.get("properties", {})
    )
    return valid + (b"" if last[:1] and last[0] >> 4 in {1, 3} else last)


def expected(stream: bytes, version: int) -> tuple[Counter[str], list[tuple[str, dict[str, Any]]]]:
    """The same from the plain decoder."""
    counts: Counter[str] = Counter()
    controls = []
    for kind, fields in decode(stream, version, "server")[0]:
        if kind == "publish":
            counts["publish"] += 1
        elif kind in ACKNOWLEDGEMENTS:
            counts["acknowledgement"] += 1
        elif kind != "pingreq":
            controls.append((kind, fields))
    return counts, controls


@given(st.data(), VERSIONS)
def test_inbox_agrees_with_a_plain_decoder(data: st.DataObject, version: int) -> None:
    streams = [data.draw(client_streams(version)) for _ in range(CONNECTIONS)]
    trace = Trace(version)
    waiting = list(streams)
    while any(waiting):
        index = data.draw(st.sampled_from([i for i, stream in enumerate(waiting) if stream]))
        size = data.draw(st.integers(1, min(len(waiting[index]), 4_096)))
        trace.feed(index, waiting[index][:size])
        waiting[index] = waiting[index][size:]
        if data.draw(st.booleans()):
            trace.turn()
    trace.drain()
    wanted = [expected(stream, version) for stream in streams]
    assert trace.controls == [controls for _, controls in wanted]
    assert trace.counts == sum((counts for counts, _ in wanted), Counter())


@given(st.binary(max_size=300), VERSIONS)
def test_any_bytes_end_in_packets_or_one_fault(stream: bytes, version: int) -> None:
    trace = Trace(version)
    trace.feed(0, stream)
    trace.drain()
    kinds = [kind for kind, _ in trace.controls[0]]
    assert "fault" not in kinds[:-1]
    trace.feed(0, bytes([0xC0, 0x00]))
    trace.drain()
    assert ("fault" in kinds) <= (kinds == [kind for kind, _ in trace.controls[0]])
