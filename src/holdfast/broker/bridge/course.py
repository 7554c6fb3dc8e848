"""How a connection has gone since the remote accepted it.

Owns: what its queue had done until then, with which that is compared. Never: changes anything.
"""

from holdfast.broker.bridge.backoff import LASTING_S
from holdfast.broker.bridge.queue import BridgeQueue
from holdfast.broker.bridge.suspicion import QUIET_S, SOON_S, Parting
from holdfast.core.units import SECOND_US


class Course:
    """One connection that the remote has accepted just now."""

    def __init__(self, queue: BridgeQueue, now_us: int, *, is_alone: bool) -> None:
        self.is_alone = is_alone
        """It is for one message, to see whether the remote takes it."""
        self._queue = queue
        self._began_at_us = now_us
        carried = queue.carried()
        self._passing, self._sent = carried.passing, carried.sent
        self._acknowledged = queue.acknowledged()
        self._oldest = queue.oldest_in_flight()
        """Only an answer to that takes the mark past it, and a refusal is one, too."""

    def stood_s(self, now_us: int) -> float:
        """How long it has been there."""
        return (now_us - self._began_at_us) / SECOND_US

    def has_lasted(self, now_us: int) -> bool:
        """It is a success, whatever ends it."""
        return self.stood_s(now_us) >= LASTING_S

    def has_drained(self) -> bool:
        """What waited on the shelf has left it."""
        # The oldest leave it first, so as many as have come since are those.
        return self._queue.shelved()[0] <= self._queue.carried().passing - self._passing

    def is_answered(self) -> bool:
        """The remote has acknowledged or refused a message."""
        is_refused = self._oldest is not None and self._queue.mark() > self._oldest
        return is_refused or self._queue.acknowledged() > self._acknowledged

    def may_send_one(self, now_us: int) -> bool:
        """It is for one message, and has stood for long enough before that."""
        return not self._has_sent() and self.stood_s(now_us) >= QUIET_S

    def has_tried(self, now_us: int) -> bool:
        """The one message that it is for is answered, or there is none."""
        is_time_over = self._has_sent() or self.stood_s(now_us) > QUIET_S + SOON_S
        return self.is_answered() or (is_time_over and not self._queue.in_flight())

    def parting(self, now_us: int, *, by_remote: bool) -> Parting:
        """How it has gone, now that it ends."""
        sent = self._queue.sent_at_us().items()
        return Parting(
            by_remote=by_remote,
            is_answered=self.is_answered(),
            sent=self._queue.carried().sent - self._sent,
            unanswered={offset: (now_us - at_us) / SECOND_US for offset, at_us in sent},
        )

    def _has_sent(self) -> bool:
        return self._queue.carried().sent > self._sent
