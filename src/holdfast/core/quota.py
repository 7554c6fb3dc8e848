"""How much a queue may have: messages, age, bytes, and which of too many it keeps.

Owns: the value, and the one decision which queue has which. Never: counts, cuts or forecasts; all
who do are handed a value of these.

A queue with a name is limited by age and bytes, every other by number, and a client's own by age
besides.
"""

from dataclasses import dataclass
from typing import Final, Literal

from holdfast.core.config import Config
from holdfast.core.loss_reason import LossReason
from holdfast.core.topic_properties import UNLIMITED as NO_LIMIT
from holdfast.core.units import MILLISECOND_US, SECOND_US

QueueKind = Literal["client", "group", "redrive", "cursor", "bridge", "subscription"]
"""Whose queue it is: a client's own, that of a group of shared subscriptions, of a loss that is
driven again, of a reader of the log that keeps its place here, of a bridge to another broker, or of
a durable subscription of Pulsar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What one queue may have; what is `None` has no limit."""

    messages: int | None = None
    keep: Literal["newest", "oldest"] = "newest"
    """Which of more messages than that."""
    age_us: int | None = None
    bytes: int | None = None
    step_bytes: int = 0
    """Beyond age and bytes it loses so many bytes at a time, the oldest first, and only whole
    steps; 0: single messages, and no bytes."""
    carried_messages: int | None = None
    """How many that nobody has read outlive the segment that they are in, when the log lets it
    go."""

    @property
    def loses_whole_steps(self) -> bool:
        """True if it loses many messages at a time."""
        return self.step_bytes > 1

    @property
    def age_reason(self) -> LossReason:
        """Why the oldest of it are lost."""
        return LossReason.RETENTION if self.step_bytes else LossReason.TTL

    def plan_drop(self, held_bytes: int, aged_bytes: int) -> int:
        """How many of the oldest bytes go: whole steps, where `held_bytes` are there, and
        `aged_bytes` of them are too old."""
        too_many = 0 if self.bytes is None else max(held_bytes - self.bytes, 0)
        return max(too_many, aged_bytes) // self.step_bytes * self.step_bytes


UNLIMITED: Final = Quota()
"""As much as there is."""


def quota_of(config: Config, kind: QueueKind, *, named: bool, messages_maximum: int = 0) -> Quota:
    """What a queue of this kind may have; `named`: it has a name of its own. A bridge's own record
    says how many messages; 0 is as many as the log keeps."""
    if kind == "bridge":
        return Quota(messages=messages_maximum or None, carried_messages=messages_maximum)
    if kind == "cursor":
        return Quota(
            age_us=config.cursor_unreleased_age_s * SECOND_US,
            bytes=config.cursor_unreleased_bytes,
            step_bytes=1,
        )
    if named:
        properties = config.application_queue_properties
        retention_ms, retention_bytes = properties.retention_ms, properties.retention_bytes
        return Quota(
            age_us=None if retention_ms == NO_LIMIT else retention_ms * MILLISECOND_US,
            bytes=None if retention_bytes == NO_LIMIT else retention_bytes,
            step_bytes=properties.segment_bytes,
        )
    maximum = config.queue_messages_maximum
    ages = kind == "client" and config.queue_ttl_s > 0
    return Quota(
        messages=maximum or None,
        keep=config.queue_keep,
        age_us=config.queue_ttl_s * SECOND_US if ages else None,
        # Without a number it is the log that says how much there is.
        carried_messages=maximum,
    )
