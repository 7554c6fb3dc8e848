"""Retained messages for new subscriptions [MQTT 5 section 3.3.1.3].

Owns: which of them a subscription is sent when it begins. Never: holds one; they are records of the
log, and `Dispatch` has it look them up, page by page, as fast as the client takes them.
"""

from collections.abc import Iterable

from holdfast.broker.stages import KernelStages
from holdfast.protocols.mqtt.session import Subscription


class Retained:
    """Sends retained messages to new subscriptions."""

    def __init__(self, kernel: KernelStages) -> None:
        self._log = kernel.log
        self._dispatch = kernel.dispatch

    def send(self, queue: int, subscriptions: Iterable[Subscription]) -> None:
        """Owes the queue what each subscription matches, the RETAIN flag set."""
        end = self._log.end_offset()
        for subscription in subscriptions:
            topic_filter = subscription.topic_filter.encode()
            first, reached = self._log.retained(topic_filter, 0, 1)
            # Most subscriptions match none, and are owed nothing that would have to be remembered.
            if first or reached < end:
                self._dispatch.owe(
                    queue,
                    topic_filter,
                    qos=subscription.qos,
                    no_local=subscription.no_local,
                    identifier=subscription.identifier,
                    from_offset=first[0] if first else reached,
                    until_offset=end,
                )
