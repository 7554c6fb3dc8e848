"""The compiled log equals a list of messages, whatever the disk forgets when power is cut."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.broker.chores import at_once
from holdfast.broker.store.questions import Inquiry
from holdfast.kernel import Arrivals, Inbox, Log, SimulatedDisk, encode_packet
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

    def feed(self, data: bytes) -> None:
        self.read_buffer[: len(data)] = data
        self.inbox.feed(CONNECTION, len(data), self.now_us)

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

    @rule(topic_filter=FILTERS, part=st.tuples(st.floats(0, 1), st.floats(0, 1)))
    def count(self, topic_filter: bytes, part: tuple[float, float]) -> None:
        begin, end = (int(each * self.twin.durable) for each in part)
        expected = self.twin.queued(topic_filter, begin, end)
        counting = Inquiry(self.log).count([subscription(topic_filter)], 3, begin, end)
        assert at_once(counting) == len(expected)

    @rule(topic_filter=FILTERS, messages=st.integers(0, 10))
    def newest(self, topic_filter: bytes, messages: int) -> None:
        end = self.log.durable_offset()
        asked = ([subscription(topic_filter)], 3, 0, end, messages)
        first = at_once(Inquiry(self.log).newest(*asked))
        queued = self.twin.queued(topic_filter, 0, self.twin.durable)
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


def subscription(topic_filter: bytes) -> dict[str, Any]:
    return {
        "topic_filter": topic_filter,
        "qos": 1,
        "no_local": False,
        "retain_as_published": False,
        "identifier": None,
        "from_offset": 0,
        "until_offset": 2**64 - 1,
    }


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
