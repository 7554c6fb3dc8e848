"""Sessions: list, search, look at one, end its connection, remove it."""

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
from holdfast.broker.commands import CommandRefusedError, Commands
from holdfast.broker.observe.sessions import SessionsSeen
from holdfast.broker.observe.watch import Watch
from holdfast.broker.state.broker import Broker

STATES = ("any", "connected", "at_rest", "expired")
MISSING = Answered("There is no such session.")


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
    environment: Annotated[
        str | None,
        Meta(
            description="What its client has said of itself when it connected, or what its"
            " identifier tells; null where nothing tells it."
        ),
    ]


class SubscriptionRow(Struct, kw_only=True):
    """A subscription of a session."""

    topic_filter: str
    qos: int
    no_local: bool
    retain_as_published: bool
    identifier: int | None


class ConsumerRow(Struct, kw_only=True):
    """What is read for a client: from its own queue, or as a member of a group."""

    queue_name: str
    consumer_group: str | None
    pack_first_offset: int | None
    pack_messages: int
    pack_unacknowledged: int
    pack_rounds: int


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
        list[ConsumerRow],
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

    def __init__(self, broker: Broker, commands: Commands, watch: Watch) -> None:
        self._sessions = SessionsSeen(broker, watch)
        self._commands = commands

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        one = "/v1/sessions/{client_identifier}"
        search = text("search", "Only client identifiers that contain this.")
        user = text("user_name", "Only sessions of this user.")
        state = choice("state", STATES, "Only sessions in this state.")
        return [
            listing(
                "sessions",
                SessionPage,
                self.page,
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
        limit = asked.query["limit"]
        found = await self._sessions.page(
            asked.query["after"],
            asked.query["search"],
            asked.query["user_name"],
            asked.query["state"],
            limit,
        )
        return SessionPage(
            sessions=convert(found, list[SessionRow], from_attributes=True),
            next=found[-1].client_identifier if len(found) == limit else None,
        )

    async def show(self, asked: Asked) -> SessionDetail:
        """One session in detail."""
        client_identifier = asked.path["client_identifier"]
        found = await self._sessions.show(client_identifier)
        if found is None:
            sentence = f"no session has the client identifier {client_identifier!r}"
            raise ProblemError(404, "no_such_session", sentence)
        return SessionDetail(
            **asdict(convert(found.session, SessionRow, from_attributes=True)),
            queue_messages=found.length.messages,
            in_flight=found.length.in_flight,
            stuck=found.stuck or "",
            mark=found.length.mark,
            consumers=convert(found.consumers, list[ConsumerRow], from_attributes=True),
            strategy=found.strategy,
            unsent_bytes=found.unsent_bytes,
            subscriptions=convert(
                [item._asdict() for item in found.subscriptions], list[SubscriptionRow]
            ),
        )

    async def disconnect(self, asked: Asked) -> SessionDone:
        """Ends the connection; what a persistent session has stays."""
        client_identifier = asked.path["client_identifier"]
        try:
            self._commands.disconnect(client_identifier)
        except CommandRefusedError as error:
            raise ProblemError(404, error.refusal.value, str(error)) from error
        return SessionDone(client_identifier=client_identifier, done="disconnected")

    async def remove(self, asked: Asked) -> SessionDone:
        """Ends the connection, and removes the session; it is gone for good when answered."""
        client_identifier = asked.path["client_identifier"]
        try:
            await self._commands.end_session(client_identifier)
        except CommandRefusedError as error:
            raise ProblemError(404, error.refusal.value, str(error)) from error
        return SessionDone(client_identifier=client_identifier, done="removed")
