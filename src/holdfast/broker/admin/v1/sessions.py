"""Sessions: list, search, look at one, end its connection, remove it.

Owns: what an administrator sees of a session. Never: shows a payload; of a Will there is only
whether there is one.
"""

import heapq
import logging
from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta, Struct, convert
from msgspec.structs import asdict

from holdfast.broker.admin.http.operation import (
    Answered,
    Asked,
    Next,
    Nothing,
    Operation,
    ProblemError,
    choice,
    listing,
    text,
)
from holdfast.broker.admin.v1.consumers import Consumer, Consumers
from holdfast.broker.admin.v1.view_reader import ViewReader
from holdfast.broker.chores import Pieces
from holdfast.broker.mqtt.attached import Attached, is_durable
from holdfast.broker.mqtt.session import Session
from holdfast.broker.mqtt.session_records import parse_session
from holdfast.broker.observe.queue_length import QueueLengths
from holdfast.broker.observe.watch import Watch
from holdfast.broker.server import Server
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.tables import Table, parse_subscriptions
from holdfast.core.subscription import Subscription
from holdfast.protocols.mqtt.reason_code import ReasonCode

log = logging.getLogger(__name__)

STATES = ("any", "connected", "at_rest", "expired")
UNKEPT = (
    "an APPLICATION client without a persistent session: what is published while it is away is lost"
    " to it"
)
NAMELESS = (
    "an APPLICATION client without a queue of its own, since its identifier has other characters"
    " than letters and digits and application.client_id_validation is false: it is queued for as"
    " for a DEVICE client"
)
MISSING = Answered("There is no such session.")
_LIST = (
    "SELECT value FROM sessions WHERE key > ?1 AND instr(key, ?2) > 0"
    " AND (?3 = '' OR json_extract(value, '$.user_name') = ?3)"
    " AND (?4 = 'any' OR ?4 = CASE WHEN connected THEN 'connected'"
    " WHEN expires_at_us <= ?5 THEN 'expired' ELSE 'at_rest' END)"
    " ORDER BY key LIMIT ?6"
)


class SessionRow(Struct, kw_only=True):
    """A session."""

    client_identifier: str
    user_name: str | None
    client_type: str
    queue_name: str | None
    state: str
    protocol_version: int
    persistent: bool
    expiry_s: int | None
    expires_at_us: int | None
    will: bool
    peer: str | None
    transport: str | None
    connected_since_us: int | None
    warning: str | None


class SubscriptionRow(Struct, kw_only=True):
    """A subscription of a session."""

    topic_filter: str
    qos: int
    no_local: bool
    retain_as_published: bool
    identifier: int | None


class SessionDetail(SessionRow, kw_only=True):
    """A session in detail."""

    queue_messages: Annotated[
        int,
        Meta(
            description="Messages that wait or are in flight; what has expired is not one. What a"
            " group has is the group's."
        ),
    ]
    in_flight: Annotated[
        int, Meta(description="Sent and not acknowledged; at rest: to be sent again first.")
    ]
    stuck: Annotated[
        str,
        Meta(
            description="Not empty where nothing was sent for 30 s although something waits and the"
            " client takes bytes: unacknowledged, it has in flight what it allows; stalled, it"
            " could be sent more."
        ),
    ]
    mark: Annotated[int, Meta(description="Everything below it is acknowledged.")]
    consumers: Annotated[
        list[Consumer],
        Meta(
            description="What is read for an APPLICATION client that is connected: its own queue"
            " (consumer_group null), and one for each of its shared subscriptions."
        ),
    ]
    strategy: Annotated[
        str | None,
        Meta(description="What becomes of a pack that is not acknowledged in time."),
    ]
    unsent_bytes: Annotated[
        int,
        Meta(
            description="Written and not taken by the client; beyond"
            " limits.write_buffer_high_bytes it is given nothing more."
        ),
    ]
    subscriptions: list[SubscriptionRow]


class SessionPage(Struct, kw_only=True):
    """A page of sessions."""

    sessions: list[SessionRow]
    next: Next


class SessionDone(Struct, kw_only=True):
    """What was done to a session."""

    client_identifier: str
    done: str


class SessionsView:
    """What can be asked about sessions, and done to them."""

    def __init__(self, server: Server, view: ViewReader, watch: Watch) -> None:
        self._server = server
        self._watch = watch
        self._view = view
        self._sessions = server.stages.sessions
        self._consumers = Consumers(server)
        self._lengths = QueueLengths(server)

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        one = "/v1/sessions/{client_identifier}"
        search = text("search", "Only client identifiers that contain this.")
        user = text("user_name", "Only sessions of this user.")
        state = choice("state", STATES, "Only sessions in this state.")
        return [
            listing(
                *("listSessions", "sessions", SessionPage, self.page),
                summary="Sessions in the order of their client identifiers.",
                parameters=(search, user, state),
            ),
            Operation(
                method="GET",
                path=one,
                name="showSession",
                summary="One session with its subscriptions and its queue.",
                run=self.show,
                answers={200: Answered("The session.", SessionDetail), 404: MISSING},
            ),
            Operation(
                method="POST",
                path=f"{one}/disconnect",
                name="disconnectSession",
                summary="End its connection; MQTT 5 is told 0x98, administrative action.",
                run=self.disconnect,
                body=Nothing,
                answers={200: Answered("It is disconnected.", SessionDone), 404: MISSING},
            ),
            Operation(
                method="DELETE",
                path=one,
                name="removeSession",
                summary="End its connection and remove all that it has: queue, subscriptions.",
                run=self.remove,
                answers={200: Answered("It is gone.", SessionDone), 404: MISSING},
            ),
        ]

    async def page(self, asked: Asked) -> SessionPage:
        """A page of sessions."""
        search, user, after = (asked.query[name] for name in ("search", "user_name", "after"))
        state, limit = asked.query["state"], asked.query["limit"]
        rows = await self._view.rows(
            *(_LIST, after.encode(), search.encode(), user),
            *(state, self._server.now_us(), limit),
        )
        recorded = [parse_session(value.encode()) for (value,) in rows]
        found = {session.client_identifier: session for session in recorded}
        if state in ("any", "connected"):
            # Those that end with their connection are in no record.
            found |= {
                item.session.client_identifier: item.session
                for item in self._transient(after, search, user, limit)
            }
        # Text in UTF-8 has the same order as bytes, in the view, and as characters, here.
        page = [found[name] for name in sorted(found)[:limit]]
        more = len(page) == limit
        return SessionPage(
            sessions=[self._row(session) for session in page],
            next=page[-1].client_identifier if more else None,
        )

    async def show(self, asked: Asked) -> SessionDetail:
        """One session in detail."""
        session, attached = self._find(asked)
        subscriptions = self._subscriptions(session, attached)
        row = self._row(session)
        stages = self._server.stages
        counting = self._length(session, attached, subscriptions)
        messages, in_flight, mark = await stages.chores.outcome(counting)
        strategy = self._server.config.application_strategy
        return SessionDetail(
            **asdict(row),
            queue_messages=messages,
            in_flight=in_flight,
            stuck=self._watch.stuck_of(session.party),
            mark=mark,
            consumers=[] if attached is None else self._consumers.of(attached),
            strategy=strategy if session.application else None,
            unsent_bytes=0 if attached is None else self._unsent_bytes(attached),
            subscriptions=[
                convert(item, SubscriptionRow, from_attributes=True)
                for item in subscriptions
                if item.in_force
            ],
        )

    async def disconnect(self, asked: Asked) -> SessionDone:
        """Ends the connection; what a persistent session has stays."""
        session, attached = self._find(asked)
        if attached is None:
            sentence = f"the session of {session.client_identifier!r} is at rest, not connected"
            raise ProblemError(404, "not_connected", sentence)
        self._expel(attached)
        return SessionDone(client_identifier=session.client_identifier, done="disconnected")

    async def remove(self, asked: Asked) -> SessionDone:
        """Ends the connection, and removes the session; it is gone for good when answered."""
        session, attached = self._find(asked)
        client_identifier = session.client_identifier
        if attached is not None:
            self._expel(attached)
        recorded = self._sessions.on_record(client_identifier)
        if recorded is not None:
            stages = self._server.stages
            left = await stages.chores.outcome(self._sessions.left(recorded))
            if self._sessions.on_record(client_identifier) == recorded:
                self._sessions.end(recorded, self._server.now_us(), left)
            await stages.promises.wait_durable(stages.kernel.log.end_position())
        log.info("session removed", extra={"fields": {"client_identifier": client_identifier}})
        return SessionDone(client_identifier=client_identifier, done="removed")

    def _length(
        self, session: Session, attached: Attached | None, subscriptions: tuple[Subscription, ...]
    ) -> Pieces[tuple[int, int, int]]:
        """Messages, those in flight, and the mark; its connection may just have ended."""
        inquiry = Inquiry(self._server.stages.kernel.log)
        is_there = attached is self._sessions.attached(session.client_identifier)
        if attached is not None and attached.queue is not None and is_there:
            return (yield from self._lengths.attached(inquiry, attached))
        return (yield from self._lengths.at_rest(inquiry, session, subscriptions))

    def _unsent_bytes(self, attached: Attached) -> int:
        connection = self._server.stages.connections.get(attached.connection)
        if connection is None:
            return 0
        kept = self._server.stages.kernel.outboxes.waiting_bytes(attached.connection)
        return kept + connection.transport.get_write_buffer_size()

    def _expel(self, attached: Attached) -> None:
        connection = self._server.stages.connections.get(attached.connection)
        assert connection is not None, "who is attached has a connection"
        closing = self._server.stages.closing
        closing.expel(connection, ReasonCode.ADMINISTRATIVE_ACTION, self._server.now_us())
        self._server.ask_turn()

    def _find(self, asked: Asked) -> tuple[Session, Attached | None]:
        client_identifier = asked.path["client_identifier"]
        attached = self._sessions.attached(client_identifier)
        session = self._sessions.on_record(client_identifier) if attached is None else None
        if attached is None and session is None:
            sentence = f"no session has the client identifier {client_identifier!r}"
            raise ProblemError(404, "no_such_session", sentence)
        if attached is not None:
            return attached.session, attached
        assert session is not None, "it was looked for above"
        return session, None

    def _transient(self, after: str, search: str, user_name: str, limit: int) -> Iterable[Attached]:
        wanted = {
            item.session.client_identifier: item
            for item in self._sessions.all_attached()
            if not is_durable(item.session)
            and item.session.client_identifier > after
            and search in item.session.client_identifier
            and user_name in ("", item.session.user_name)
        }
        return [wanted[name] for name in heapq.nsmallest(limit, wanted)]

    def _subscriptions(
        self, session: Session, attached: Attached | None
    ) -> tuple[Subscription, ...]:
        if attached is not None:
            return attached.subscriptions
        key = session.client_identifier.encode()
        return parse_subscriptions(self._server.records.get(Table.SUBSCRIPTIONS, key))

    def _state(self, session: Session, attached: Attached | None) -> str:
        if attached is not None:
            return "connected"
        # It waits to be cleared away; nobody comes back to it.
        return "expired" if session.expired(self._server.now_us()) else "at_rest"

    def _row(self, session: Session) -> SessionRow:
        attached = self._sessions.attached(session.client_identifier)
        connection = None
        if attached is not None:
            connection = self._server.stages.connections.get(attached.connection)
        return SessionRow(
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
            transport=None if connection is None else connection.transport_name,
            connected_since_us=None if connection is None else connection.opened_at_us,
            warning=_warning(session),
        )


def _warning(session: Session) -> str | None:
    if session.unkept_application:
        return UNKEPT
    return NAMELESS if session.nameless_application else None
