"""What has happened to a bridge, as it is told.

Owns: the two values. Never: notes anything.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from holdfast.broker.bridge.failure import Failure

EVENTS_KEPT: Final = 100
"""Of each bridge, the newest."""


@dataclass(frozen=True, slots=True)
class LinkEvent:
    """Something that happened to a bridge."""

    at_us: int
    kind: str
    detail: str
    offset: int | None = None
    """Of the message that it is about."""


@dataclass(slots=True)
class LinkCounts:
    """What has happened since the broker began."""

    attempts: int = 0
    connections: int = 0
    refusals: int = 0
    failures: Counter[Failure] = field(default_factory=Counter)
    stalls: int = 0
    sessions_forgotten: int = 0
    subscriptions_refused: int = 0
    inbound: int = 0
    """Messages from the remote over connections that have ended, without what found no room."""
    inbound_lost: int = 0
    """Messages from the remote: carried too often already, or without a topic to become."""
