"""Retained messages for new subscriptions [MQTT 5 section 3.3.1.3].

Owns: which of them a subscription is sent when it begins. Never: holds one; they are records of the
log, and `Deliveries` has it look them up, page by page, as fast as the client takes them.
"""

from collections.abc import Iterable
from typing import Final

from holdfast.broker.stages import KernelStages
from holdfast.core.subscription import Subscription

LOOKED_UP_MAXIMUM: Final = 1
"""Filters with wildcards of one packet that are looked up at once, some 0.1 to 1 ms each. The
others are owed unseen, and looked up in turns of their own."""


class Retained:
    """Sends retained messages to new subscriptions."""

    def __init__(self, kernel: KernelStages) -> None:
        self._log = kernel.log
        self._deliveries = kernel.deliveries

    def send(
        self, queue: int, subscriptions: Iterable[Subscription], *, goes_on: bool = False
    ) -> None:
        """Owes the queue what each subscription matches, the RETAIN flag set. Whether it goes on
        with a packet of which there were some before."""
        end, looked_up = self._log.end_offset(), LOOKED_UP_MAXIMUM if goes_on else 0
        for subscription in subscriptions:
            topic_filter = subscription.topic_filter.encode()
            first, reached = list[int](), 0
            looked_up += b"+" in topic_filter or b"#" in topic_filter
            if looked_up <= LOOKED_UP_MAXIMUM:
                first, reached = self._log.retained(topic_filter, 0, 1)
            # Most subscriptions match none, and are owed nothing that would have to be remembered.
            if first or reached < end:
                self._deliveries.owe(
                    queue,
                    topic_filter,
                    qos=subscription.qos,
                    no_local=subscription.no_local,
                    identifier=subscription.identifier,
                    from_offset=first[0] if first else reached,
                    until_offset=end,
                )
