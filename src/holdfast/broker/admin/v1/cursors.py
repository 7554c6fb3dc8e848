"""Cursors: make, look at, hold, release, fork, move and remove them.

Owns: who may ask for what, and how it is told. Never: knows what a cursor is kept as.

A reader makes cursors, holds and releases them, and removes its own; moving one, and removing
somebody else's, is for administrators.
"""

from collections.abc import Awaitable, Sequence
from typing import Annotated, Final

from aiohttp import web
from msgspec import Meta, Struct
from msgspec.structs import asdict

from holdfast.broker.admin.http.operation import (
    Answered,
    Asked,
    Audience,
    Next,
    Nothing,
    Operation,
    ProblemError,
    bad_request,
    listing,
)
from holdfast.broker.admin.http.protection import ROLE
from holdfast.broker.admin.http.query import OFFSET_MAXIMUM
from holdfast.broker.commands import CommandRefusedError, Refusal
from holdfast.broker.cursor_commands import Asker, Begin, CursorCommands
from holdfast.broker.observe.cursors import CursorQueue, CursorsSeen
from holdfast.broker.state.broker import Broker
from holdfast.core.cursor import CursorSeen
from holdfast.core.limits import (
    CURSOR_HOLDER_CHARACTERS_MAXIMUM,
    SUBSCRIPTION_BYTES_PER_SESSION_MAXIMUM,
    SUBSCRIPTIONS_PER_SESSION_MAXIMUM,
)
from holdfast.core.queue_names import CURSOR_NAME_RULE, is_cursor_name
from holdfast.core.share_name import is_shared
from holdfast.core.units import SECOND_US
from holdfast.kernel import is_valid_topic_filter

Offset = Annotated[int, Meta(ge=0, le=OFFSET_MAXIMUM)]
Place = Annotated[
    str | int,
    Meta(description="earliest: where the log begins; latest: at its end; or an offset."),
]
Holder = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=CURSOR_HOLDER_CHARACTERS_MAXIMUM,
        description="By what its holder is known, after a restart of its own too.",
    ),
]
MISSING: Final = Answered("There is no cursor of this name.")
CONFLICT: Final = Answered("It cannot be done as things are: `error` and `detail` say why.")
STATUS: Final = {Refusal.NO_SUCH_CURSOR: 404, Refusal.NOT_YOURS: 403}
"""Of whatever is refused; 409 of all others."""


class NewCursor(Struct, forbid_unknown_fields=True, kw_only=True):
    """A cursor to be made."""

    selection: Annotated[
        list[str],
        Meta(
            min_length=1,
            max_length=SUBSCRIPTIONS_PER_SESSION_MAXIMUM,
            description="Topic filters of what is kept for it.",
        ),
    ]
    place: Place = "latest"


class Hold(Struct, forbid_unknown_fields=True, kw_only=True):
    """Who holds a cursor from now on."""

    holder: Holder
    held_as: Annotated[
        str,
        Meta(
            max_length=CURSOR_HOLDER_CHARACTERS_MAXIMUM,
            description="How it calls itself, for people; empty: as before.",
        ),
    ] = ""


class Release(Struct, forbid_unknown_fields=True, kw_only=True):
    """How far the holder has come."""

    holder: Holder
    offset: Annotated[Offset, Meta(description="What is below needs to be kept no more.")]
    let_go: Annotated[bool, Meta(description="True: nobody holds it from now on.")] = False


class Move(Struct, forbid_unknown_fields=True, kw_only=True):
    """Where a cursor is to be."""

    place: Place


class Fork(Struct, forbid_unknown_fields=True, kw_only=True):
    """What another cursor with the same selection and place is called."""

    name: str


class CursorPlace(Struct, kw_only=True):
    """Where a cursor is, and who holds it."""

    name: str
    epoch: Annotated[str, Meta(description="Of the log that its place is a place in.")]
    selection: list[str]
    place: Annotated[int, Meta(description="Everything below is released, or lost.")]
    made_by: Annotated[str, Meta(description="The user; empty without credentials.")]
    holder: Annotated[str, Meta(description="Empty: nobody holds it.")]
    held_as: str
    hold_ends_in_s: Annotated[int | None, Meta(description="If its holder asks for nothing more.")]


class Cursor(CursorPlace, kw_only=True):
    """A cursor with what it has not released."""

    waiting: Annotated[int, Meta(description="Messages that it has not released.")]
    exact: Annotated[
        bool,
        Meta(description="False: there was too much to count for a list; waiting is at least so."),
    ]
    oldest_at_us: Annotated[int | None, Meta(description="When the oldest of them was stored.")]
    first_loss_in_s: Annotated[
        int | None,
        Meta(description="When it is beyond its quota, at the rate of the last minute."),
    ]


class CursorPage(Struct, kw_only=True):
    """A page of cursors."""

    cursors: list[Cursor]
    next: Next


class CursorsView:
    """What can be asked about cursors, and done to them."""

    def __init__(self, broker: Broker, commands: CursorCommands, cursors: CursorsSeen) -> None:
        self._broker = broker
        self._commands = commands
        self._cursors = cursors

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        place = Answered("Where it is now.", CursorPlace)

        def post(
            action: str,
            summary: str,
            body: type[Struct],
            audience: Audience = Audience.READERS,
        ) -> Operation:
            return Operation(
                method="POST",
                path=f"/v1/cursors/{{name}}/{action}",
                name=f"{action}Cursor",
                summary=summary,
                run=getattr(self, action),
                body=body,
                answers={200: place, 404: MISSING, 409: CONFLICT},
                audience=audience,
            )

        return [
            listing(
                "cursors",
                CursorPage,
                self.page,
                summary="Cursors by name: where each is, who holds it, what it has not released.",
                audience=Audience.READERS,
            ),
            *self._of_one(place),
            post("hold", "Hold a cursor, or go on holding it.", Hold),
            post("release", "Say how far its holder has come.", Release),
            post("fork", "Make another cursor with the same selection and place.", Fork),
            post("move", "Put a cursor elsewhere.", Move, Audience.ADMINISTRATORS),
        ]

    def _of_one(self, place: Answered) -> list[Operation]:
        one, readers = "/v1/cursors/{name}", Audience.READERS
        return [
            Operation(
                method="GET",
                path=one,
                name="showCursor",
                summary="One cursor.",
                run=self.show,
                answers={200: Answered("The cursor.", Cursor), 404: MISSING},
                audience=readers,
            ),
            Operation(
                method="PUT",
                path=one,
                name="makeCursor",
                summary="Make a cursor. One with the same selection is left where it is.",
                run=self.make,
                body=NewCursor,
                answers={200: place, 409: CONFLICT},
                audience=readers,
            ),
            Operation(
                method="DELETE",
                path=one,
                name="removeCursor",
                summary="Remove a cursor, whoever holds it: nothing is kept for it any more.",
                run=self.remove,
                answers={
                    200: Answered("It is gone.", Nothing),
                    403: Answered("Another user has made it."),
                    404: MISSING,
                },
                audience=readers,
            ),
        ]

    async def page(self, asked: Asked) -> CursorPage:
        """A page of cursors."""
        found, following = await self._cursors.page(asked.query["after"], asked.query["limit"])
        return CursorPage(cursors=[self._row(each) for each in found], next=following)

    async def show(self, asked: Asked) -> Cursor:
        """One cursor."""
        name = asked.path["name"]
        found = await self._cursors.show(name)
        if found is None:
            raise _refused(self._commands.missing(name))
        return self._row(found)

    async def make(self, asked: Asked) -> CursorPlace:
        """There is a cursor of this name."""
        name, wanted = _name(asked.path["name"]), asked.body
        _check_selection(wanted.selection)
        begin, asker = _begin(wanted.place), _asker(asked.request)
        return await self._done(self._commands.make(name, wanted.selection, begin, asker))

    async def hold(self, asked: Asked) -> CursorPlace:
        """Somebody holds it."""
        name, body = asked.path["name"], asked.body
        return await self._done(self._commands.hold(name, body.holder, body.held_as))

    async def release(self, asked: Asked) -> CursorPlace:
        """Its holder has come so far."""
        name, body = asked.path["name"], asked.body
        return await self._done(
            self._commands.release(name, body.holder, body.offset, let_go=body.let_go)
        )

    async def fork(self, asked: Asked) -> CursorPlace:
        """There is another one like it."""
        original, name = asked.path["name"], _name(asked.body.name)
        return await self._done(self._commands.fork(original, name, _asker(asked.request)))

    async def move(self, asked: Asked) -> CursorPlace:
        """It is elsewhere."""
        return await self._done(self._commands.move(asked.path["name"], _begin(asked.body.place)))

    async def remove(self, asked: Asked) -> Nothing:
        """It is gone."""
        try:
            await self._commands.remove(asked.path["name"], _asker(asked.request))
        except CommandRefusedError as error:
            raise _refused(error) from error
        return Nothing()

    async def _done(self, command: Awaitable[CursorSeen]) -> CursorPlace:
        try:
            return self._place(await command)
        except CommandRefusedError as error:
            raise _refused(error) from error

    def _place(self, seen: CursorSeen) -> CursorPlace:
        left_us = seen.hold_ends_at_us - self._broker.now_us()
        return CursorPlace(
            name=seen.name,
            epoch=self._broker.log.epoch(),
            selection=list(seen.selection),
            place=seen.place,
            made_by=seen.made_by,
            holder=seen.holder,
            held_as=seen.held_as,
            hold_ends_in_s=max(left_us, 0) // SECOND_US if seen.holder else None,
        )

    def _row(self, queue: CursorQueue) -> Cursor:
        return Cursor(
            **asdict(self._place(queue.seen)),
            waiting=queue.ahead.messages,
            exact=queue.exact,
            oldest_at_us=queue.ahead.oldest_at_us,
            first_loss_in_s=queue.ahead.first_loss_in_s,
        )


def _refused(error: CommandRefusedError) -> ProblemError:
    return ProblemError(STATUS.get(error.refusal, 409), error.refusal.value, str(error))


def _asker(request: web.Request) -> Asker:
    role = request.get(ROLE)
    if role is None:
        # Nobody has to say who they are, or this is the broker's own host.
        return Asker(user_name="", administrator=True)
    return Asker(user_name=role.user_name or "", administrator=role.administrator)


def _name(name: str) -> str:
    if not is_cursor_name(name):
        raise bad_request(f"a cursor cannot be called {name!r}: its name has {CURSOR_NAME_RULE}")
    return name


def _begin(place: str | int) -> Begin:
    if place == "earliest":
        return "earliest"
    if place == "latest":
        return "latest"
    if isinstance(place, str) or not 0 <= place <= OFFSET_MAXIMUM:
        raise bad_request("place must be earliest, latest or an offset of the log")
    return place


def _check_selection(selection: Sequence[str]) -> None:
    for topic_filter in selection:
        if is_shared(topic_filter) or not is_valid_topic_filter(topic_filter.encode()):
            raise bad_request(f"selection has {topic_filter!r}, which selects nothing of the log")
    if sum(map(len, selection)) > SUBSCRIPTION_BYTES_PER_SESSION_MAXIMUM:
        raise bad_request(
            "the filters of selection have more than"
            f" {SUBSCRIPTION_BYTES_PER_SESSION_MAXIMUM} characters together"
        )
