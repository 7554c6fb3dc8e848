"""A session and the connection that holds it.

Owns: these values. Never: changes anything.
"""

from dataclasses import dataclass

from holdfast.broker.access.access import Identity
from holdfast.broker.mqtt.session import Session
from holdfast.core.subscription import Subscription
from holdfast.kernel import TRANSIENT_PARTY
from holdfast.protocols.mqtt.handshake import Opening


@dataclass(slots=True)
class Attached:
    """A session and the connection that holds it."""

    session: Session
    subscriptions: tuple[Subscription, ...]
    connection: int
    opening: Opening
    identity: Identity
    queue: int | None = None
    """The kernel's queue, once CONNACK may leave; until then nothing is delivered."""
    will_number: int | None = None
    """By which its Will is on record, where its session is not."""


@dataclass(slots=True)
class Opened:
    """The outcome of a CONNECT that is accepted."""

    attached: Attached
    session_present: bool
    displaced: Attached | None
    """The connection that held the session before, to be told and closed."""
    position: int | None
    """CONNACK waits for the log to be durable up to here; `None`: it waits for nothing."""


def is_durable(session: Session) -> bool:
    """True if its delivery state is in the log: it is persistent, or was until this connection."""
    return session.party < TRANSIENT_PARTY
