"""A session and its subscriptions as values, and how long a session is kept.

Owns: the rules of session typing (acceptance S2.23 to S2.30, S2.41 to S2.44). Never: knows which
connection holds a session, or what is in flight.

Invariants:
1. A session is persistent exactly if its `expiry_s` is not 0.
2. A session at rest has `expires_at_us`, unless it is kept for ever; a connected one never has it.
3. A subscription holds for the offsets from `from_offset` up to, without, `until_offset`.
"""

from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from holdfast.protocols.mqtt.packets import Will
from holdfast.protocols.mqtt.shared import is_shared

ClientType = Literal["DEVICE", "APPLICATION"]
"""What a client is: a DEVICE, of which there are many and each gets little; or an APPLICATION, a
service that takes high-rate streams and has a queue with a name of its own."""
CLIENT_TYPES: Final = ("DEVICE", "APPLICATION")
IN_FORCE: Final = 2**64 - 1
"""`until_offset` of a subscription that has not ended: larger than any offset."""
SESSION_EXPIRY_NEVER: Final = 0xFFFFFFFF
"""The Session Expiry Interval that means "never" [MQTT 5 section 3.1.2.11.2]."""
MICROSECONDS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """One subscription of a session, present or past."""

    topic_filter: str
    qos: int
    no_local: bool
    retain_as_published: bool
    identifier: int | None
    from_offset: int
    until_offset: int = IN_FORCE

    @property
    def in_force(self) -> bool:
        """False once it has been replaced or ended."""
        return self.until_offset == IN_FORCE

    @property
    def shared(self) -> bool:
        """True if it is a part in a group's queue, and none of the session's own."""
        return is_shared(self.topic_filter)

    def table(self) -> dict[str, Any]:
        """As the kernel takes it."""
        return {
            "topic_filter": self.topic_filter.encode(),
            "qos": self.qos,
            "no_local": self.no_local,
            "retain_as_published": self.retain_as_published,
            "identifier": self.identifier,
            "from_offset": self.from_offset,
            "until_offset": self.until_offset,
        }


def own_of(subscriptions: tuple[Subscription, ...]) -> tuple[Subscription, ...]:
    """Those by which the session's own queue is read."""
    return tuple(item for item in subscriptions if not item.shared)


def shared_of(subscriptions: tuple[Subscription, ...]) -> tuple[Subscription, ...]:
    """Those that are parts in groups."""
    return tuple(item for item in subscriptions if item.shared)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What is known of a client beyond its connection, subscriptions and delivery state apart."""

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
    def bounded(self) -> bool:
        """True if what waits for it is limited in number and age, as it is for every client without
        a queue of its own."""
        return self.queue_name is None

    def expired(self, now_us: int) -> bool:
        """True if it is no longer there for its client, whether or not it has been cleared away."""
        return self.expires_at_us is not None and self.expires_at_us <= now_us


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPolicy:
    """What the operator has decided about how long sessions are kept."""

    expiry_maximum_s: int
    ttl_s: int
    """For sessions that the protocol would keep for ever; 0 or less keeps them."""
    strict_expiry: bool
    """True: Clean Start 0 with expiry 0 ends with its connection in MQTT 5, as the standard
    says."""


def plan_expiry_s(
    policy: SessionPolicy, *, protocol_version: int, clean_start: bool, requested_s: int | None
) -> int | None:
    """How long a new connection's session is kept; `requested_s` is `None` where CONNECT says
    nothing."""
    kept_without_limit = policy.ttl_s if policy.ttl_s > 0 else None
    if protocol_version < 5:
        return 0 if clean_start else kept_without_limit
    if requested_s:
        # "Never" is a number like any other here: one week of cap makes it one week.
        return min(requested_s, policy.expiry_maximum_s)
    if clean_start or policy.strict_expiry:
        return 0
    return kept_without_limit


def rest(session: Session, *, will_due_at_us: int | None, now_us: int) -> Session:
    """The session after its connection has ended; its expiry counts from now (S2.12, S2.45)."""
    lasts = session.expiry_s
    return replace(
        session,
        connected=False,
        expires_at_us=None if lasts is None else now_us + lasts * MICROSECONDS,
        will=None if will_due_at_us is None else session.will,
        will_due_at_us=will_due_at_us,
    )
