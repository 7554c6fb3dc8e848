"""A session as a value.

Owns: what a session is, on a connection and at rest. Never: knows which connection holds it, or
what is in flight.

Invariants:
1. A session is persistent exactly if its `expiry_s` is not 0.
2. A session at rest has `expires_at_us`, unless it is kept for ever; a connected one never has it.
"""

from dataclasses import dataclass, replace

from holdfast.broker.access.access import Identity
from holdfast.broker.environments import Environments
from holdfast.broker.store.tables import QueueRecord
from holdfast.core.client_type import ClientType
from holdfast.core.subscription import Subscription
from holdfast.core.units import SECOND_US
from holdfast.protocols.mqtt.handshake import Opening
from holdfast.protocols.mqtt.packets import Will


@dataclass(slots=True, kw_only=True)
class Session:
    """What is known of a client beyond its connection, subscriptions and delivery state apart.
    Nothing changes one; as a frozen class it took four times as long to make, which was a
    twentieth of a CONNECT."""

    client_identifier: str
    party: int
    protocol_version: int
    created_at_offset: int
    """Where its queue begins to read as long as it has no delivery state."""
    expiry_s: int | None
    """How long it is kept after its connection has ended; 0 not at all, `None` for ever."""
    connected: bool
    expires_at_us: int | None = None
    will: Will | None = None
    user_name: str | None = None
    """Whose session it is; `None`: it was opened without a credential."""
    will_due_at_us: int | None = None
    """When the Will of a session at rest is published, if it still has one."""
    client_type: ClientType = "DEVICE"
    """What its client was when it last connected."""
    queue_name: str | None = None
    """The name of its queue, if it has one of its own."""
    sent_before_offset: int = 0
    """What lies below may have been sent to it at QoS 1, which is on no record: it was connected
    when the broker died."""
    identified: bool = False
    """Its deliveries tell which message each is: its client has asked for that."""
    clean_start: bool = False
    """Whether its client asked for a new session when it last connected."""
    environment: str = ""
    """Which environment its client said that it is of when it last connected."""
    created_at_us: int | None = None
    """When it was opened; former versions have not written it down."""

    @property
    def persistent(self) -> bool:
        """True if it outlives its connection."""
        return self.expiry_s != 0

    @property
    def application(self) -> bool:
        """True if it is delivered to as an APPLICATION is: its type alone does not do (S0.87)."""
        return self.client_type == "APPLICATION" and self.persistent

    @property
    def unkept_application(self) -> bool:
        """True if it is an APPLICATION client's and ends with its connection: then it has no queue
        of its own, and what is published while its client is away is lost to it (S2.37)."""
        return self.client_type == "APPLICATION" and not self.persistent

    @property
    def nameless_application(self) -> bool:
        """True if it is an APPLICATION client's that may not have a queue of its own, for its
        identifier can be no name: it is queued for as for a DEVICE client (S0.13)."""
        return self.application and self.queue_name is None

    @property
    def rests_since_us(self) -> int | None:
        """When its connection ended; `None` for one that is attached, and one that is kept for ever
        does not tell."""
        if self.expires_at_us is None or self.expiry_s is None:
            return None
        return self.expires_at_us - self.expiry_s * SECOND_US

    def expired(self, now_us: int) -> bool:
        """True if it is no longer there for its client, whether or not it has been cleared away."""
        return self.expires_at_us is not None and self.expires_at_us <= now_us


def environment_of(environments: Environments, session: Session) -> str:
    """The environment of the session's client; empty if none is known."""
    return environments.of_client(session.client_identifier, session.environment)


def own_queue(session: Session, reads: tuple[Subscription, ...]) -> QueueRecord:
    """The session's own queue, which reads this."""
    return QueueRecord(
        party=session.party,
        kind="client",
        owner=session.client_identifier,
        created_at_offset=session.created_at_offset,
        reads=reads,
        queue_name=session.queue_name,
    )


def new_session(
    opening: Opening, identity: Identity, party: int, created_at_offset: int, now_us: int
) -> Session:
    """The session of a client that has none to come back to; it reads from this offset on."""
    terms = opening.terms
    return Session(
        client_identifier=opening.client_identifier,
        party=party,
        protocol_version=terms.protocol_version,
        created_at_offset=created_at_offset,
        expiry_s=terms.expiry_s,
        connected=True,
        user_name=identity.user_name,
        will=opening.will,
        client_type=identity.client_type,
        clean_start=terms.clean_start,
        environment=opening.environment,
        created_at_us=now_us,
    )


def resume(session: Session, opening: Opening, identity: Identity) -> Session:
    """The session now that its client has come back; its Will is the new one."""
    terms = opening.terms
    return replace(
        session,
        protocol_version=terms.protocol_version,
        expiry_s=terms.expiry_s,
        connected=True,
        user_name=identity.user_name,
        expires_at_us=None,
        will=opening.will,
        will_due_at_us=None,
        client_type=identity.client_type,
        clean_start=terms.clean_start,
        environment=opening.environment,
    )


def rest(session: Session, *, will_due_at_us: int | None, now_us: int) -> Session:
    """The session after its connection has ended; its expiry counts from now (S2.12, S2.45)."""
    lasts = session.expiry_s
    return replace(
        session,
        connected=False,
        expires_at_us=None if lasts is None else now_us + lasts * SECOND_US,
        will=None if will_due_at_us is None else session.will,
        will_due_at_us=will_due_at_us,
    )
