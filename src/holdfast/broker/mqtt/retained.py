"""Retained messages for new subscriptions [MQTT 5 section 3.3.1.3].

Owns: which of them a subscription is sent when it begins. Never: holds one; they are records of the
log, and `Deliveries` has it look them up, page by page, as fast as the client takes them.
"""

from collections.abc import Iterable

from holdfast.broker.stages import KernelStages
from holdfast.core.subscription import Subscription


class Retained:
    """Sends retained messages to new subscriptions."""

    def __init__(self, kernel: KernelStages) -> None:
        self._log = kernel.log
        self._deliveries = kernel.deliveries

    def send(self, queue: int, subscriptions: Iterable[Subscription], look_ups: int) -> int:
        """Owes the queue what each subscription matches, the RETAIN flag set. So many filters with
        wildcards may be looked up at once; the others are owed unseen, and looked up in turns of
        their own. Returns how many were."""
        end, looked_up = self._log.end_offset(), 0
        for subscription in subscriptions:
            topic_filter = subscription.topic_filter.encode()
            first, reached = list[int](), 0
            has_wildcards = b"+" in topic_filter or b"#" in topic_filter
            if not has_wildcards or looked_up < look_ups:
                looked_up += has_wildcards
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
        return looked_up
