"""Topics that Pulsar clients know of: those that one of them has named to produce or to consume.

Owns: which those are, on record. Never: creates one because somebody looked it up.

The log knows a topic from its first message on, and devices may have a million of them; clients of
Pulsar are told of these alone.
"""

from collections.abc import Iterator

from holdfast.broker.stages import KernelStages
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.tables import Table, format_value
from holdfast.protocols.pulsar.topic_names import TopicName, log_name, pulsar_name

ROWS = 1_000
"""So many are read at once."""


class Topics:
    """All of them, by what the log calls them."""

    def __init__(self, kernel: KernelStages, records: ControlRecords) -> None:
        self._log = kernel.log
        self._records = records
        self._names: set[str] = set()

    def __len__(self) -> int:
        return len(self._names)

    def names(self) -> Iterator[TopicName]:
        """What clients call them."""
        return (topic for name in self._names if (topic := pulsar_name(name)) is not None)

    def is_there(self, topic: TopicName) -> bool:
        """True if somebody has named it, or published to it."""
        name = log_name(topic)
        return name in self._names or self._log.entries_end(name.encode()) is not None

    def declare(self, name: str, now_us: int) -> int:
        """The topic is there from now on, and with the next commit durable; returns its number."""
        if name not in self._names:
            self._names.add(name)
            self._records.put(Table.TOPICS, name.encode(), format_value({}), now_us)
        return self._log.declare(name.encode(), now_us)

    def recover(self) -> None:
        """Finds those on record."""
        view, after = self._records.refresh(), b""
        while rows := view.rows(Table.TOPICS, after, ROWS):
            after, _ = rows[-1]
            self._names.update(name.decode() for name, _ in rows)
