"""What a user writes: which rows a message has, and which table takes them.

class Readings(Processor):
    table = Table("readings", (Column("sensor", ColumnType.TEXT), ...), key=("sensor", "at"))

    def parse(self, message):
        reading = json.loads(message.payload)
        return [{"sensor": message.topic.split("/")[1], "at": reading["at"], ...}]
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from holdfast.processors.message import Message
from holdfast.processors.table import Row, Table


class RejectedError(Exception):
    """A message that no other attempt will make better; the text says why, without the payload."""


class Processor(ABC):
    """One kind of message and its table. It is made once in each process, without arguments."""

    table: ClassVar[Table]

    @abstractmethod
    def parse(self, message: Message) -> Sequence[Row]:
        """The rows of one message, perhaps none. Has no effects: a message may be parsed again.

        Raises `RejectedError` for what can never be read. Whatever else it raises is an attempt
        that failed; after `MaximumAttempts` of them the message is a dead letter."""

    def identity(self, message: Message) -> str | None:
        """What makes a message itself where the broker gives no identity, from its payload; None:
        a digest of topic and payload, which takes two equal messages for one. So does what is no
        text that MQTT can carry: a number, a text with U+0000, or more than 65 535 bytes."""
        return None
