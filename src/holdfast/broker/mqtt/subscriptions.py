"""A session's subscriptions as the kernel takes them: routes for what comes, terms for what is
stored; and with them what it may publish and receive.

Owns: that routes and terms say the same. Never: decides what is granted.

Invariant: routes hold exactly the subscriptions in force of attached queues, and grants of attached
connections alone.
"""

from collections.abc import Iterable, Sequence

from holdfast.broker.access.rules import Grant
from holdfast.broker.stages import KernelStages
from holdfast.core.subscription import Subscription


class Subscriptions:
    """Keeps the routes and the queues' terms in step."""

    def __init__(self, kernel: KernelStages) -> None:
        self._routes = kernel.routes
        self._deliveries = kernel.deliveries

    def add(
        self, queue: int, connection: int, party: int, subscriptions: Sequence[Subscription]
    ) -> None:
        """From now on the queue gets what those in force match; one to the same filter is
        replaced."""
        self._routes.subscribe(queue, connection, party, subscriptions)

    def remove(self, queue: int, topic_filters: Iterable[str]) -> None:
        """The queue gets nothing more through these."""
        for topic_filter in topic_filters:
            self._routes.unsubscribe(queue, topic_filter.encode())

    def read_by(
        self, queue: int, before: tuple[Subscription, ...], now: tuple[Subscription, ...]
    ) -> None:
        """The queue, which has read the log on the terms `before`, reads it on these now."""
        # Of one more beside ten thousand the kernel is told one.
        kept = len(before) if now[: len(before)] == before else 0
        self._deliveries.subscribe(queue, kept, now[kept:])

    def grant(
        self, queue: int, connection: int, publish: Grant | None, receive: Grant | None
    ) -> None:
        """From now on these grants hold for what comes from the connection, and for what the queue
        gets; each is a list of filters of which the first match decides, `None` allows all."""
        self._routes.grant(connection, publish, receive)
        self._deliveries.grant(queue, receive)

    def forget(self, queue: int, connection: int) -> None:
        """The queue is no longer attached."""
        self._routes.remove(queue)
        self._routes.ungrant(connection)
