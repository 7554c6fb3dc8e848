"""A Pulsar inbox gives what its twin gives, however bytes are split, and answers what is asked."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast import kernel
from tests.property.twins import entry, pulsar
from tests.property.twins.pulsar import block, command, framed, message_id, number

CONNECTIONS = 2
LEDGER = 12
CLIENT = pulsar.Client(
    topics={3: b"site/reads", 5: b"other"},
    closed=frozenset({7}),
    ledgers={4: LEDGER, 6: LEDGER + 1},
    shared=frozenset({6}),
    frame_bytes_maximum=4_096,
)

IDS = st.integers(0, 8)
NUMBERS = st.one_of(st.integers(0, 300), st.integers(2**63 - 2, 2**64 - 1))
MESSAGES = st.builds(
    entry.Message,
    payload=st.binary(max_size=20),
    key=st.none() | st.binary(max_size=5),
    ordering_key=st.none() | st.binary(max_size=5),
)


@st.composite
def entries(draw: st.DrawFn) -> bytes:
    way = draw(st.sampled_from([entry.NONE, entry.ZLIB, entry.LZ4]))
    messages = draw(st.lists(MESSAGES, min_size=1, max_size=4))
    tail = entry.batch(messages, way) if draw(st.booleans()) else entry.single(messages[0], way)
    if draw(st.integers(0, 5)) == 0:
        return tail[6:]
    if draw(st.integers(0, 5)) == 0:
        at = draw(st.integers(0, len(tail) - 1))
        return tail[:at] + bytes([tail[at] ^ 1 << draw(st.integers(0, 7))]) + tail[at + 1 :]
    return tail


@st.composite
def sends(draw: st.DrawFn) -> bytes:
    fields = number(1, draw(st.sampled_from([3, 3, 3, 5, 7, 8]))) + number(2, draw(NUMBERS))
    tail = draw(entries())
    if draw(st.integers(0, 3)) == 0:
        fields += number(3, draw(st.integers(0, 4)))
    if draw(st.integers(0, 3)) == 0:
        fields += number(6, draw(NUMBERS))
    return framed(command(pulsar.SEND, fields), tail)


@st.composite
def settlements(draw: st.DrawFn) -> bytes:
    kind = draw(st.sampled_from([pulsar.ACK, pulsar.REDELIVER]))
    fields = number(1, draw(st.sampled_from([4, 4, 6, 9])))
    if kind == pulsar.ACK:
        fields += number(2, draw(st.sampled_from([0, 0, 1])))
        if draw(st.booleans()):
            fields += number(8, draw(NUMBERS))
    for _ in range(draw(st.integers(0, 4))):
        ledger = draw(st.sampled_from([LEDGER, LEDGER + 1, 2**64 - 1]))
        ack_set = draw(st.sampled_from([(), (), (0,), (0, 5)]))
        place = 3 if kind == pulsar.ACK else 2
        fields += block(place, message_id(ledger, draw(NUMBERS), ack_set))
    return framed(command(kind, fields))


FLOWS = st.builds(
    lambda consumer, messages: framed(
        command(pulsar.FLOW, number(1, consumer) + number(2, messages))
    ),
    st.sampled_from([4, 6, 9]),
    st.integers(0, 2**32 - 1),
)
OTHERS = st.builds(
    lambda kind, fields: framed(command(kind, fields)),
    st.sampled_from([pulsar.PING, pulsar.PONG, 4, 5, 12, 15, 21, 64]),
    st.binary(max_size=20),
)
FRAMES = st.one_of(sends(), settlements(), FLOWS, OTHERS)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """What a client sends after CONNECT; the last frame may be wrong."""
    stream = b"".join(draw(st.lists(FRAMES, max_size=6)))
    if draw(st.booleans()):
        last = bytearray(draw(FRAMES))
        last[draw(st.integers(0, len(last) - 1))] = draw(st.integers(0, 255))
        stream += bytes(last)
    return stream


class Trace:
    """What came out of one inbox, for each connection."""

    def __init__(self) -> None:
        self.read_buffer = bytearray(4_096)
        self.first = kernel.Inbox(bytearray(1))
        self.inbox = kernel.PulsarInbox(self.read_buffer, self.first)
        self.arrivals = kernel.Arrivals()
        self.found = [pulsar.Decoded() for _ in range(CONNECTIONS)]
        for connection in range(CONNECTIONS):
            self.inbox.open(connection)
            self.inbox.accept(
                connection, frame_bytes_maximum=CLIENT.frame_bytes_maximum, silence_us=1_000
            )
            for producer, name in (CLIENT.topics | {7: b"closed"}).items():
                self.inbox.add_producer(connection, producer, topic_name=name, party=1, key_slot=0)
            self.inbox.remove_producer(connection, 7)
            for consumer, ledger in CLIENT.ledgers.items():
                self.inbox.add_consumer(
                    connection,
                    consumer,
                    receiver=10 * connection,
                    ledger=ledger,
                    is_shared=consumer in CLIENT.shared,
                )

    def feed(self, connection: int, data: bytes) -> None:
        self.read_buffer[: len(data)] = data
        self.inbox.feed(connection, len(data), 0)

    def turn(self) -> None:
        assert self.first.decode(self.arrivals) == []
        commands = self.inbox.decode(self.arrivals)
        entered, said, permits, pings = kernel.arrived(self.arrivals)
        for connection, *rest in entered:
            self.found[connection].entries.append(tuple(rest))  # type: ignore[arg-type]
        for connection, receiver, says, numbers, request in said:
            assert receiver == 10 * connection
            self.found[connection].settlements.append((says, numbers, request))
        for receiver, messages in permits:
            self.found[receiver // 10].permits.append(messages)
        for connection in pings:
            self.found[connection].pings += 1
        for connection, one in commands:
            found = self.found[connection]
            assert not found.is_faulted
            found.is_faulted = one.fault is not None
            if one.fault is None:
                found.controls.append((one.kind, one.data))
            self.inbox.release(connection)

    def drain(self) -> None:
        self.turn()
        while self.inbox.ready():
            self.turn()


@given(st.data())
def test_an_inbox_agrees_with_its_twin_however_bytes_are_split(data: st.DataObject) -> None:
    sent = [data.draw(streams()) for _ in range(CONNECTIONS)]
    trace = Trace()
    waiting = list(sent)
    while any(waiting):
        index = data.draw(st.sampled_from([i for i, stream in enumerate(waiting) if stream]))
        size = data.draw(st.integers(1, min(len(waiting[index]), 4_096)))
        trace.feed(index, waiting[index][:size])
        waiting[index] = waiting[index][size:]
        if data.draw(st.booleans()):
            trace.turn()
    trace.drain()
    assert trace.found == [pulsar.decode(stream, CLIENT) for stream in sent]


@given(st.binary(max_size=300))
def test_any_bytes_end_in_commands_or_one_fault(stream: bytes) -> None:
    trace = Trace()
    trace.feed(0, stream)
    trace.drain()
    assert trace.found[0] == pulsar.decode(stream, CLIENT)


@given(st.lists(st.booleans(), max_size=6))
def test_who_asks_whether_anybody_is_there_is_answered(asked: list[bool]) -> None:
    trace = Trace()
    outboxes = kernel.PulsarOutboxes()
    outboxes.open(0, frame_bytes_maximum=4_096)
    for ping in asked:
        trace.feed(0, framed(command(pulsar.PING if ping else pulsar.PONG)))
    trace.turn()
    outboxes.pass_through(trace.arrivals)
    pongs = framed(command(pulsar.PONG)) * sum(asked)
    assert outboxes.waiting_bytes(0) == len(pongs)
    assert outboxes.take() == ([(0, pongs)] if pongs else [])
    assert outboxes.counters()["pings_answered"] == sum(asked)
