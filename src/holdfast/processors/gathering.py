"""How messages become batches: by number, bytes and age.

Owns: what has come and is in no batch yet. Never: waits or reads a clock; whoever drives it says
what time it is.

Flow: session -> here -> work.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.client.consumer import Arrival


@dataclass(frozen=True, slots=True)
class Bounds:
    """When a batch is closed."""

    messages: int
    bytes: int
    age_s: float


class Came(NamedTuple):
    """A message and when it came."""

    arrival: Arrival
    at_s: float
    """By the loop's clock."""
    at_us: int
    """By the wall's."""


class Gathering:
    """Messages in the order in which they came."""

    def __init__(self, bounds: Bounds) -> None:
        self._bytes = 0
        """Of their payloads."""
        self._bounds = bounds
        self._waiting: deque[Came] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, arrivals: Sequence[Arrival], at_s: float, at_us: int) -> None:
        """They came together."""
        self._waiting.extend([Came(arrival, at_s, at_us) for arrival in arrivals])
        self._bytes += sum([len(arrival.payload) for arrival in arrivals])

    def batches(self) -> float:
        """How many batches they fill, by number or by bytes."""
        by_number = len(self._waiting) / self._bounds.messages
        return max(by_number, self._bytes / self._bounds.bytes)

    def due_at_s(self) -> float | None:
        """When a batch is to be closed; None while nothing waits. Has passed where it is full."""
        if not self._waiting:
            return None
        if self.batches() >= 1:
            return self._waiting[0].at_s
        return self._waiting[0].at_s + self._bounds.age_s

    def oldest_at_s(self) -> float | None:
        """When the first of what waits came."""
        return self._waiting[0].at_s if self._waiting else None

    def take(self) -> list[Came]:
        """The next batch, which has at least one message if any waits."""
        batch: list[Came] = []
        size = 0
        while self._waiting and len(batch) < self._bounds.messages and size < self._bounds.bytes:
            batch.append(self._waiting.popleft())
            size += len(batch[-1].arrival.payload)
        self._bytes -= size
        return batch
