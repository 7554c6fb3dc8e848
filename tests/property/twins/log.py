"""The twin of the kernel's log: a list of messages.

Owns: what is stored and what is durable. Never: a file. Invariant: an offset is an index into
`messages`, and everything below `durable` survives a crash.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.property.twins.routes import filter_matches


@dataclass(frozen=True)
class Message:
    """One message as it was published."""

    topic: bytes
    payload: bytes
    qos: int
    retain: bool


@dataclass
class Log:
    """Everything that was ever appended, in order."""

    messages: list[Message] = field(default_factory=list)
    durable: int = 0

    def append(self, message: Message, store_all: Iterable[bytes] = ()) -> int | None:
        """The message's offset; None if it is not to be stored."""
        always = any(filter_matches(each, message.topic) for each in store_all)
        if message.qos == 0 and not message.retain and not always:
            return None
        self.messages.append(message)
        return len(self.messages) - 1

    def commit(self) -> None:
        """Everything so far is durable."""
        self.durable = len(self.messages)

    def recover(self, end: int) -> None:
        """After a crash the log ends at `end`: what was not durable is gone from there on."""
        assert self.durable <= end <= len(self.messages)
        del self.messages[end:]
        self.durable = end

    def queued(self, topic_filter: bytes, begin: int, end: int) -> list[int]:
        """Offsets of the durable messages that a queue with this subscription has in a range."""
        return [
            offset
            for offset in range(begin, min(end, self.durable))
            if self.messages[offset].qos > 0
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
