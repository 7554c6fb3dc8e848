"""What waits for the disk: the one place that decides when an answer may leave.

"Acknowledged" means: what it acknowledges is in force after a crash at any later moment, as far as
the setting `durability` promises (`fsync`: loss of power; `os`: death of this process; `memory`:
none).

1. PUBACK and PUBREC wait for the message, PUBCOMP for the released packet identifier, a PUBLISH of
   QoS 2 to a subscriber for its packet identifier: the kernel holds them (`Deliveries.admit`,
   `Deliveries.settle`), because there is one for every message.
2. CONNACK waits for the control records that its session wrote: a new or changed persistent
   session, the removal of an old one. Until it has left nothing else is sent or read (`Waiting`).
3. SUBACK and UNSUBACK of a persistent session wait for its subscriptions (`answer`).
4. An operator's change (a credential, a rule) is answered when it is durable; it is in force before
   (`Promises`).
5. Everything else waits for nothing: a subscriber's PUBACK, PINGRESP, QoS 0, and whatever belongs
   to a session that ends with its connection.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from holdfast.broker.stages import KernelStages

T = TypeVar("T")


class Waiting(deque[tuple[int, T]]):
    """Things to be done when the log is durable up to a position, in the order they came. Whether
    there are any costs each turn nothing but a look."""

    def add(self, position: int, item: T) -> None:
        """`item` waits for `position`, which is never below that of the item before it."""
        self.append((position, item))

    def take(self, durable_position: int) -> list[T]:
        """What need not wait any longer."""
        ready = []
        while self and self[0][0] <= durable_position:
            ready.append(self.popleft()[1])
        return ready


class Promises:
    """Coroutines that wait for the disk."""

    def __init__(self, soon: Callable[[], None]) -> None:
        """`soon` asks for a turn."""
        self._soon = soon
        self.waiting: Waiting[asyncio.Future[None]] = Waiting()
        """They wait for the disk."""

    async def wait_durable(self, position: int) -> None:
        """Returns once the log is durable up to `position`, which is its end or was lately."""
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.add(position, kept)
        self._soon()
        await kept

    def durable(self, durable_position: int) -> None:
        """The log is durable up to here."""
        for kept in self.waiting.take(durable_position):
            # Whoever waited may have gone.
            if not kept.done():
                kept.set_result(None)


class Answers:
    """SUBACK and UNSUBACK on their way out."""

    def __init__(self, kernel: KernelStages) -> None:
        self._deliveries = kernel.deliveries
        self._outboxes = kernel.outboxes

    def answer(self, connection: int, data: bytes, position: int | None) -> None:
        """Sends `data` once the log is durable up to `position`; at once where that is `None`."""
        if position is None:
            self._outboxes.write(connection, data)
        else:
            self._deliveries.hold(connection, data, position)
