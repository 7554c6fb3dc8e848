"""A session and the connection that holds it.

Owns: these values. Never: changes anything.
"""

from dataclasses import dataclass

from holdfast.broker.access.access import Identity
from holdfast.broker.mqtt.session import Session
from holdfast.core.held_subscriptions import HeldSubscriptions
from holdfast.core.subscription import Subscription
from holdfast.kernel import TRANSIENT_PARTY
from holdfast.protocols.mqtt.handshake import Opening


@dataclass(slots=True)
class Attached:
    """A session and the connection that holds it."""

    session: Session
    held: HeldSubscriptions
    recorded: HeldSubscriptions
    """What it holds on record, where its session is durable."""
    connection: int
    opening: Opening
    identity: Identity
    queue: int | None = None
    """The kernel's queue, once CONNACK may leave; until then nothing is delivered."""
    will_number: int | None = None
    """By which its Will is on record, where its session is not."""
    changed_at: int = 0
    """Where the log has to be durable for all that SUBSCRIBE and UNSUBSCRIBE have changed; 0 before
    they have changed anything."""

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """All that it holds, past ones first."""
        return self.held.all()


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
