"""Sessions as an operator sees them: in pages, and one in detail.

Owns: what is told of a session. Never: shows a payload; of a Will there is only whether there is
one.

Invariant: between two turns at most SESSIONS_AT_ONCE sessions are looked at.
"""

import asyncio
from dataclasses import dataclass
from typing import Final, Literal

from holdfast.broker.chores import Pieces
from holdfast.broker.mqtt.session import Session
from holdfast.broker.observe.consumers import Consumer, Consumers
from holdfast.broker.observe.queue_length import QueueLength, QueueLengths
from holdfast.broker.observe.watch import Stuck, Watch
from holdfast.broker.state.broker import Broker
from holdfast.broker.state.sessions import AttachedSeen
from holdfast.core.subscription import Subscription

State = Literal["connected", "at_rest", "expired"]
SESSIONS_AT_ONCE: Final = 50
"""Each is read from its record or looked up, which takes some 20 us."""
UNKEPT: Final = (
    "an APPLICATION client without a persistent session: what is published while it is away is lost"
    " to it"
)
NAMELESS: Final = (
    "an APPLICATION client without a queue of its own, since its identifier has other characters"
    " than letters and digits and application.client_id_validation is false: it is queued for as"
    " for a DEVICE client"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSeen:
    """A session."""

    client_identifier: str
    user_name: str | None
    client_type: str
    queue_name: str | None
    state: State
    protocol_version: int
    persistent: bool
    expiry_s: int | None
    expires_at_us: int | None
    will: bool
    peer: str | None
    transport: str | None
    connected_since_us: int | None
    warning: str | None
    environment: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDetail:
    """A session with what it subscribes to and what waits for it."""

    session: SessionSeen
    length: QueueLength
    stuck: Stuck | None
    consumers: list[Consumer]
    strategy: str | None
    unsent_bytes: int
    subscriptions: list[Subscription]


class SessionsSeen:
    """Looks at sessions, attached or at rest."""

    def __init__(self, broker: Broker, watch: Watch) -> None:
        self._broker = broker
        self._watch = watch
        self._consumers = Consumers(broker)
        self._lengths = QueueLengths(broker)

    async def page(
        self, after: str, search: str, user_name: str, state: str, limit: int
    ) -> list[SessionSeen]:
        """Sessions in the order of their client identifiers: those that contain `search`, of this
        user if it is not empty, and in this state or `any`."""
        broker = self._broker
        recorded = await broker.recorded.sessions(
            after, search, user_name, state, broker.now_us(), limit
        )
        found: dict[str, Session] = {}
        for session in recorded:
            found[session.client_identifier] = session
            await _give_way(len(found))
        if state in ("any", "connected"):
            # Those that end with their connection are in no record.
            transient = broker.sessions.transient(after, search, user_name, limit)
            found |= {name: attached.session for name, attached in transient.items()}
        # Text in UTF-8 has the same order as bytes, in the view, and as characters, here.
        page: list[SessionSeen] = []
        for name in sorted(found)[:limit]:
            attached = broker.sessions.attached(name)
            page.append(self._seen(found[name], attached))
            await _give_way(len(page))
        return page

    async def show(self, client_identifier: str) -> SessionDetail | None:
        """One session in detail."""
        sessions = self._broker.sessions
        attached = sessions.attached(client_identifier)
        session = sessions.on_record(client_identifier) if attached is None else attached.session
        if session is None:
            return None
        if attached is None:
            subscriptions = sessions.subscriptions(session)
        else:
            subscriptions = attached.subscriptions
        seen = self._seen(session, attached)
        counting = self._length(session, attached, subscriptions)
        length = await self._broker.chores.outcome(counting)
        strategy = self._broker.config().application_strategy
        return SessionDetail(
            session=seen,
            length=length,
            stuck=self._watch.stuck_of(session.party),
            consumers=[] if attached is None else self._consumers.of(attached),
            strategy=strategy if session.application else None,
            unsent_bytes=0 if attached is None else self._unsent_bytes(attached),
            subscriptions=[item for item in subscriptions if item.in_force],
        )

    async def subscriptions(
        self, after: str, search: str, limit: int
    ) -> dict[str, tuple[Subscription, ...]]:
        """What the first clients after one subscribe to whose client identifiers contain this, in
        their order."""
        found: dict[str, tuple[Subscription, ...]] = {}
        for name, subscriptions in await self._broker.recorded.subscriptions(after, search, limit):
            found[name] = subscriptions
            await _give_way(len(found))
        for name, attached in self._broker.sessions.transient(after, search, "", limit).items():
            found[name] = attached.subscriptions
        return {name: found[name] for name in sorted(found)[:limit]}

    def _length(
        self,
        session: Session,
        attached: AttachedSeen | None,
        subscriptions: tuple[Subscription, ...],
    ) -> Pieces[QueueLength]:
        inquiry = self._broker.log.inquire()
        now = self._broker.sessions.attached(session.client_identifier)
        # Its connection may just have ended.
        if attached is not None and now is not None and now.connection == attached.connection:
            attached = now
            if attached.queue is not None:
                return (yield from self._lengths.attached(inquiry, attached))
        return (yield from self._lengths.at_rest(inquiry, session, subscriptions))

    def _unsent_bytes(self, attached: AttachedSeen) -> int:
        connection = self._broker.connections.of(attached.connection)
        return 0 if connection is None else connection.kept_bytes + connection.written_bytes

    def _state(self, session: Session, attached: AttachedSeen | None) -> State:
        if attached is not None:
            return "connected"
        # It waits to be cleared away; nobody comes back to it.
        return "expired" if session.expired(self._broker.now_us()) else "at_rest"

    def _seen(self, session: Session, attached: AttachedSeen | None) -> SessionSeen:
        connection = None
        if attached is not None:
            connection = self._broker.connections.of(attached.connection)
        return SessionSeen(
            client_identifier=session.client_identifier,
            user_name=session.user_name,
            client_type=session.client_type,
            queue_name=session.queue_name,
            state=self._state(session, attached),
            protocol_version=session.protocol_version,
            persistent=session.persistent,
            expiry_s=session.expiry_s,
            expires_at_us=session.expires_at_us,
            will=session.will is not None,
            peer=None if connection is None else connection.peer,
            transport=None if connection is None else connection.transport,
            connected_since_us=None if connection is None else connection.opened_at_us,
            warning=_warning(session),
            environment=self._broker.environments.of_session(session),
        )


async def _give_way(count: int) -> None:
    if count % SESSIONS_AT_ONCE == 0:
        await asyncio.sleep(0)


def _warning(session: Session) -> str | None:
    if session.unkept_application:
        return UNKEPT
    return NAMELESS if session.nameless_application else None
