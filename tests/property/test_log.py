"""The compiled log equals a list of messages, whatever the disk forgets when power is cut."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.broker.chores import at_once
from holdfast.broker.store.questions import Inquiry
from holdfast.core.subscription import Subscription
from holdfast.kernel import Arrivals, Inbox, Log, PulsarInbox, SimulatedDisk, encode_packet
from tests.builders.entries import entry, send
from tests.property.twins import log as model

CONNECTION = 1
TOPICS = st.sampled_from([b"a", b"a/b", b"b/c", b"z"])
FILTERS = st.sampled_from([b"#", b"a/#", b"+/c", b"a/b", b"nobody"])
MESSAGES = st.builds(
    model.Message,
    topic=TOPICS,
    payload=st.one_of(st.just(b""), st.binary(max_size=30), st.just(bytes(3_000))),
    qos=st.integers(0, 2),
    retain=st.booleans(),
)
STORE_ALL = [b"z"]
ENTRIES = st.tuples(
    TOPICS,
    st.one_of(
        st.lists(st.binary(max_size=30), min_size=1, max_size=5),
        st.integers(1, 1_000).map(lambda count: [b"x"] * count),
    ),
)
PRODUCERS = {b"a": 1, b"a/b": 2, b"b/c": 3, b"z": 4}
SERVICE = 2


class LogMachine(RuleBasedStateMachine):
    """The same is appended to both; what the log says is what the list says."""

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.disk = SimulatedDisk(seed)
        self.twin = model.Log()
        self.now_us = 1_000
        self.packet_identifier = 0
        self.begin_connection()
        self.open()

    def begin_connection(self) -> None:
        self.read_buffer = bytearray(1 << 16)
        self.inbox, self.arrivals = Inbox(self.read_buffer), Arrivals()
        self.inbox.open(CONNECTION)
        self.feed(encode_packet("connect", CONNECT, protocol_version=5))
        self.inbox.decode(self.arrivals)
        self.inbox.accept(
            CONNECTION,
            party=7,
            protocol_version=5,
            keep_alive_s=0,
            receive_maximum=65_535,
            maximum_packet_size_bytes=1 << 16,
            topic_alias_maximum=0,
            unreleased=b"",
        )
        self.inbox.release(CONNECTION)
        self.begin_service()

    def feed(self, data: bytes) -> None:
        self.read_buffer[: len(data)] = data
        self.inbox.feed(CONNECTION, len(data), self.now_us)

    def begin_service(self) -> None:
        self.entries = PulsarInbox(self.read_buffer, self.inbox)
        self.entries.open(SERVICE)
        self.entries.accept(SERVICE, frame_bytes_maximum=1 << 16, silence_us=0)
        for topic, producer in PRODUCERS.items():
            self.entries.add_producer(SERVICE, producer, topic_name=topic, party=8, key_slot=0)

    def open(self) -> dict[str, Any]:
        self.log, found = Log.open_simulated(
            self.disk,
            segment_bytes=16_384,
            cache_bytes=10_000,
            reserve_bytes=0,
            durability="fsync",
            seed=5,
            now_us=self.now_us,
        )
        return found

    @rule(messages=st.lists(MESSAGES, min_size=1, max_size=8))
    def append(self, messages: list[model.Message]) -> None:
        for message in messages:
            self.packet_identifier += 1
            fields = {
                "packet_identifier": self.packet_identifier if message.qos else 0,
                "qos": message.qos,
                "retain": message.retain,
                "topic_name": message.topic.decode(),
                "payload": message.payload,
            }
            self.feed(encode_packet("publish", fields, protocol_version=5))
            self.twin.append(message, STORE_ALL)
        self.inbox.decode(self.arrivals)
        self.now_us += 1_000
        self.log.append(self.arrivals, STORE_ALL, self.now_us)

    @rule(some=st.lists(ENTRIES, min_size=1, max_size=3))
    def append_entries(self, some: list[tuple[bytes, list[bytes]]]) -> None:
        for number, (topic, payloads) in enumerate(some):
            frame = send(PRODUCERS[topic], number, entry(payloads), len(payloads))
            self.read_buffer[: len(frame)] = frame
            self.entries.feed(SERVICE, len(frame), self.now_us)
            self.twin.append_entry(topic, payloads)
        self.inbox.decode(self.arrivals)
        assert not self.entries.decode(self.arrivals, self.now_us)
        self.now_us += 1_000
        self.log.append(self.arrivals, STORE_ALL, self.now_us)

    @rule(topic=TOPICS, keeps_all=st.booleans())
    def keep_all(self, topic: bytes, keeps_all: bool) -> None:
        self.log.keep_all(topic, keeps_all)
        (self.twin.keeping.add if keeps_all else self.twin.keeping.discard)(topic)

    @rule(topic=TOPICS)
    def count_entries(self, topic: bytes) -> None:
        assert (self.log.entries_end(topic) or 0) == self.twin.entries(topic)

    @rule()
    def commit(self) -> None:
        self.log.commit()
        self.twin.commit()

    @rule()
    def begin_checkpoint(self) -> None:
        self.log.begin_checkpoint(self.now_us)

    @rule(effort=st.integers(1, 5))
    def go_on_with_the_checkpoint(self, effort: int) -> None:
        if self.log.checkpoint_piece(effort) and (job := self.log.checkpoint_job()):
            while job.step():
                pass
            self.log.finish(job)

    @rule()
    def cut_the_power(self) -> None:
        self.disk.crash()
        found = self.open()
        assert not found["damaged"]
        self.twin.recover(found["end_offset"])

    @rule(
        topic_filter=FILTERS, part=st.tuples(st.floats(0, 1), st.floats(0, 1)), whole=st.booleans()
    )
    def count(self, topic_filter: bytes, part: tuple[float, float], whole: bool) -> None:
        begin, end = (int(each * self.twin.durable) for each in part)
        expected = self.twin.queued(topic_filter, begin, end, keeps_all=whole)
        counting = Inquiry(self.log).count([subscription(topic_filter, whole)], 3, begin, end)
        assert at_once(counting) == len(expected)

    @rule(topic_filter=FILTERS, messages=st.integers(0, 10), whole=st.booleans())
    def newest(self, topic_filter: bytes, messages: int, whole: bool) -> None:
        end = self.log.durable_offset()
        asked = ([subscription(topic_filter, whole)], 3, 0, end, messages)
        first = at_once(Inquiry(self.log).newest(*asked))
        queued = self.twin.queued(topic_filter, 0, self.twin.durable, keeps_all=whole)
        expected = queued[max(0, len(queued) - messages) :]
        assert [each for each in queued if each >= first] == expected

    @rule(topic_filter=FILTERS, limit=st.integers(1, 5))
    def retained(self, topic_filter: bytes, limit: int) -> None:
        found: list[int] = []
        reached = 0
        while reached < self.log.end_offset():
            page, reached = self.log.retained(topic_filter, reached, limit)
            assert len(page) <= limit
            found += page
        assert found == self.twin.retained(topic_filter)

    @invariant()
    def the_ends_agree(self) -> None:
        assert self.log.end_offset() == len(self.twin.messages)
        assert self.log.durable_offset() == self.twin.durable


CONNECT: dict[str, Any] = {
    "client_identifier": "x",
    "protocol_version": 5,
    "clean_start": True,
    "keep_alive_s": 0,
    "user_name": None,
    "password": None,
    "will": None,
    "properties": {},
}


def subscription(topic_filter: bytes, keeps_all: bool) -> Subscription:
    return Subscription(
        topic_filter=topic_filter.decode(), qos=1, from_offset=0, keeps_all=keeps_all
    )


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
