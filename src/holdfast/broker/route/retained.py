"""Retained messages for new subscriptions [MQTT 5 section 3.3.1.3].

Owns: which of them a subscription is sent when it begins. Never: holds one; they are records of the
log, and `Dispatch` is told their offsets.
"""

from collections import Counter
from collections.abc import Iterable

from holdfast.broker.stages import KernelStages
from holdfast.core.limits import RETAINED_PER_SUBSCRIBE_MAXIMUM
from holdfast.protocols.mqtt.session import Subscription


class Retained:
    """Sends retained messages to new subscriptions."""

    def __init__(self, kernel: KernelStages, counts: Counter[str]) -> None:
        self._log = kernel.log
        self._dispatch = kernel.dispatch
        self._counts = counts

    def send(self, queue: int, subscriptions: Iterable[Subscription]) -> None:
        """Owes the queue what each subscription matches, the RETAIN flag set."""
        for subscription in subscriptions:
            topic_filter = subscription.topic_filter.encode()
            offsets = self._log.retained(topic_filter, RETAINED_PER_SUBSCRIBE_MAXIMUM)
            if len(offsets) == RETAINED_PER_SUBSCRIBE_MAXIMUM:
                self._counts["retained_cut_off"] += 1
            if offsets:
                self._dispatch.owe(
                    queue, offsets, qos=subscription.qos, identifier=subscription.identifier
                )
