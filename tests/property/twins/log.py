"""The twin of the kernel's log: a list of messages.

Owns: what is stored and what is durable. Never: a file.

Invariants: an offset is an index into `messages`, everything below `durable` survives a crash, and
what came as one entry is there whole or not at all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tests.property.twins.routes import filter_matches


@dataclass(frozen=True)
class Message:
    """One message as it was published."""

    topic: bytes
    payload: bytes
    qos: int
    retain: bool
    is_kept: bool = False
    """It is of QoS 0, and there for queues that are given entries whole."""


@dataclass
class Log:
    """Everything that was ever appended, in order."""

    messages: list[Message] = field(default_factory=list)
    durable: int = 0
    keeping: set[bytes] = field(default_factory=set)
    """Topics of which what comes at QoS 0 is kept."""
    begins: list[int] = field(default_factory=list)
    """The first offset of each record: an entry has several."""

    def append(self, message: Message, store_all: Iterable[bytes] = ()) -> int | None:
        """The message's offset; None if it is not to be stored."""
        always = any(filter_matches(each, message.topic) for each in store_all)
        is_kept = message.qos == 0 and message.topic in self.keeping
        if message.qos == 0 and not message.retain and not always and not is_kept:
            return None
        self.begins.append(len(self.messages))
        self.messages.append(replace(message, is_kept=is_kept))
        return len(self.messages) - 1

    def append_entry(self, topic: bytes, payloads: Sequence[bytes]) -> None:
        """One record with as many messages, each of which has an offset."""
        self.begins.append(len(self.messages))
        self.messages += [Message(topic, payload, 1, retain=False) for payload in payloads]

    def entries(self, topic: bytes) -> int:
        """How many records a topic has."""
        return sum(self.messages[begin].topic == topic for begin in self.begins)

    def commit(self) -> None:
        """Everything so far is durable."""
        self.durable = len(self.messages)

    def recover(self, end: int) -> None:
        """After a crash the log ends at `end`: what was not durable is gone from there on."""
        assert self.durable <= end <= len(self.messages)
        # A record is there whole or not at all.
        assert end in {*self.begins, len(self.messages)}
        del self.messages[end:]
        self.begins = [begin for begin in self.begins if begin < end]
        self.keeping.clear()
        self.durable = end

    def queued(
        self, topic_filter: bytes, begin: int, end: int, *, keeps_all: bool = False
    ) -> list[int]:
        """Offsets of the durable messages that a queue with this subscription has in a range; with
        what is kept of QoS 0 if it wants that."""
        return [
            offset
            for offset in range(begin, min(end, self.durable))
            if (self.messages[offset].qos > 0 or (keeps_all and self.messages[offset].is_kept))
            and filter_matches(topic_filter, self.messages[offset].topic)
        ]

    def retained(self, topic_filter: bytes) -> list[int]:
        """Offsets of the retained messages that match."""
        newest: dict[bytes, int] = {}
        for offset, message in enumerate(self.messages):
            if message.retain:
                newest[message.topic] = offset
        return sorted(
            offset
            for topic, offset in newest.items()
            if self.messages[offset].payload and filter_matches(topic_filter, topic)
        )
