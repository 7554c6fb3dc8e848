"""Bridges: list, show, make, change, remove, start and stop them, and say where a message is.

Owns: how a bridge is told. Never: tells a password, or knows how a bridge works.

All of it is for administrators: a bridge hands on what any client may publish, with a password.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from holdfast.broker.admin.http.operation import (
    Answered,
    Asked,
    Next,
    Nothing,
    Operation,
    ProblemError,
    bad_request,
    listing,
    number,
)
from holdfast.broker.admin.http.query import OFFSET_MAXIMUM
from holdfast.broker.admin.v1.reading import LogReaders
from holdfast.broker.bridge_commands import BridgeCommands, Checked
from holdfast.broker.commands import CommandRefusedError, Refusal
from holdfast.broker.log_lines import FIELD_CHARACTERS_MAXIMUM, shortened
from holdfast.broker.observe.bridges import BridgesSeen, BridgeStanding, MessageSeen, MessageState
from holdfast.core.bridge import HIDDEN, Bridge
from holdfast.reading.criteria import Criteria
from holdfast.reading.directory import LogDirectory
from holdfast.reading.log import Question, RecordsGoneError, UnreadableLogError
from holdfast.reading.progress import done_at_us

FIRST_UNACKNOWLEDGED: Final = -1
"""In place of an offset to begin at."""
MESSAGES_MAXIMUM: Final = 1_000
MISSING: Final = Answered("There is no bridge of this name.")
WRONG: Final = Answered("The settings contradict themselves: `detail` says where.")
CONFLICT: Final = Answered("It cannot be done as things are: `error` and `detail` say why.")
STATUS: Final = {Refusal.NO_SUCH_BRIDGE: 404, Refusal.WRONG_BRIDGE: 400}
"""Of whatever is refused; 409 of all others."""
Time = Annotated[int | None, Meta(description="In microseconds since 1970; null: never, or none.")]


class BridgeRow(Struct, kw_only=True):
    """A bridge, how far it is, and what it has done since it was started."""

    name: str
    address: str
    in_file: Annotated[
        bool,
        Meta(description="It stands in the configuration file, and is changed and removed there."),
    ]
    state: Annotated[
        str,
        Meta(
            description="stopped, connecting, draining (what waited in memory goes first),"
            " connected; or it waits for the next attempt: waiting, refused by the remote, or"
            " stalled, since nothing was acknowledged any more; or looping, since what it sent came"
            " back: it waits until it is started."
        ),
    ]
    last_error: Annotated[str, Meta(description="Why it is not connected; empty: it is.")]
    next_attempt_at_us: Time
    connected_at_us: Time
    waiting: Annotated[
        int,
        Meta(description="Messages that the remote has not acknowledged, at QoS 2 by PUBCOMP."),
    ]
    exact: Annotated[
        bool,
        Meta(description="False: there was too much to count for a list; waiting is at least so."),
    ]
    oldest_at_us: Time
    drained_in_s: Annotated[
        int | None,
        Meta(description="When nothing waits any more, at the rate of the last minute."),
    ]
    first_loss_in_s: Annotated[
        int | None,
        Meta(description="When it is beyond its quota, at the rate of the last minute."),
    ]
    buffered: Annotated[
        int,
        Meta(description="Messages in memory that are not sent: of QoS 0, and positions of more."),
    ]
    shelf_messages: Annotated[int, Meta(description="Those of them that are of QoS 0.")]
    shelf_bytes: Annotated[int, Meta(description="Memory that these take.")]
    in_flight: Annotated[int, Meta(description="Sent and not acknowledged.")]
    sent: Annotated[int, Meta(description="Messages, each as often as it was sent.")]
    repeated: Annotated[int, Meta(description="Those that were sent again.")]
    acknowledged: Annotated[int, Meta(description="By the remote.")]
    received: Annotated[int, Meta(description="From the remote, and taken over.")]
    received_and_dropped: Annotated[
        int,
        Meta(description="From the remote, carried too often or without a topic to become here."),
    ]
    lost: Annotated[dict[str, int], Meta(description="For the remote, by reason.")]
    attempts: int
    connections: int
    refusals: int
    failures: Annotated[
        dict[str, int],
        Meta(description="Attempts that have failed and connections that were lost, by reason."),
    ]
    stalls: int
    sessions_forgotten: Annotated[
        int, Meta(description="Times that the remote had forgotten the session.")
    ]
    subscriptions_refused: int


class BridgePage(Struct, kw_only=True):
    """A page of bridges."""

    bridges: list[BridgeRow]
    next: Next


class BridgeEvent(Struct, kw_only=True):
    """Something that happened to a bridge."""

    at_us: int
    kind: str
    detail: str
    offset: Annotated[int | None, Meta(description="Of the message that it is about.")]
    topic_name: Annotated[
        str | None,
        Meta(
            description="Of that message, as long as the log has it; what is longer than"
            f" {FIELD_CHARACTERS_MAXIMUM} characters is cut off."
        ),
    ]


class BridgeShown(BridgeRow, kw_only=True):
    """A bridge with its settings."""

    settings: Annotated[Bridge, Meta(description=f"A password shows as {HIDDEN}.")]
    warnings: Annotated[list[str], Meta(description="What may not be what was meant.")]
    events: Annotated[list[BridgeEvent], Meta(description="The newest ones, the oldest first.")]


class BridgeMessage(Struct, kw_only=True):
    """A message that a bridge carries."""

    offset: int
    state: MessageState
    reason: Annotated[str | None, Meta(description="Why it was lost.")]
    since_us: Annotated[
        int | None,
        Meta(
            description="In microseconds since 1970. Received, queued: when it was stored. Waiting"
            " for its acknowledgement: when it was sent last. Retry pending: when the connection"
            " ended. Delivered: when the acknowledgement was put on record, which is known when"
            " another message is stored behind that. Lost: when the ledger had it. null: not"
            " known, as when it was read from the log."
        ),
    ]


class BridgeMessages(Struct, kw_only=True):
    """Messages of a bridge in the order of the log."""

    messages: list[BridgeMessage]
    next_offset: Annotated[int | None, Meta(description="`from` of the next page.")]


class BridgeAllowed(Struct, kw_only=True):
    """What a remote takes."""

    maximum_qos: int
    receive_maximum: Annotated[int, Meta(description="Messages in flight to it.")]
    maximum_packet_size_bytes: int
    topic_alias_maximum: int
    keep_alive_s: int
    retain_available: bool
    wildcards_available: bool


class BridgeChecked(Struct, kw_only=True):
    """What came of an attempt to connect."""

    accepted: bool
    reason: Annotated[str, Meta(description="Why it was not reached, or has refused.")]
    warnings: Annotated[list[str], Meta(description="What will be otherwise than was asked for.")]
    allows: BridgeAllowed | None


class BridgesView:
    """What can be asked about bridges, and done to them."""

    def __init__(self, commands: BridgeCommands, bridges: BridgesSeen, readers: LogReaders) -> None:
        self._commands = commands
        self._bridges = bridges
        self._readers = readers

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        one, shown = "/v1/bridges/{name}", Answered("The bridge.", BridgeShown)
        return [
            listing(
                "bridges",
                BridgePage,
                self.page,
                summary="Bridges by name: how far each is, and what waits for its remote.",
            ),
            Operation(
                method="POST",
                path="/v1/bridges",
                name="makeBridge",
                summary="Make a bridge; it connects at once, and is there after a restart.",
                run=self.make,
                body=Bridge,
                answers={200: shown, 400: WRONG, 409: CONFLICT},
            ),
            Operation(
                method="GET",
                path=one,
                name="showBridge",
                summary="One bridge with its settings.",
                run=self.show,
                answers={200: shown, 404: MISSING},
            ),
            Operation(
                method="PUT",
                path=one,
                name="changeBridge",
                summary="Change a bridge; it keeps its queue, and goes on where it was."
                f" The password {HIDDEN} is the one that it has, for the same address and TLS.",
                run=self.change,
                body=Bridge,
                answers={200: shown, 400: WRONG, 404: MISSING, 409: CONFLICT},
            ),
            Operation(
                method="DELETE",
                path=one,
                name="removeBridge",
                summary="Remove a bridge: what waits for its remote is lost.",
                run=self.remove,
                answers={200: Answered("It is gone.", Nothing), 404: MISSING, 409: CONFLICT},
            ),
            *self._running(shown),
            self._checking(),
            self._messages(),
        ]

    def _running(self, shown: Answered) -> list[Operation]:
        return [
            Operation(
                method="POST",
                path=f"/v1/bridges/{{name}}/{action}",
                name=f"{action}Bridge",
                summary=summary,
                run=getattr(self, action),
                body=Nothing,
                answers={200: shown, 404: MISSING},
            )
            for action, summary in (
                ("start", "Start a bridge, until the broker starts anew."),
                ("stop", "Stop a bridge, until the broker starts anew: its queue goes on filling."),
            )
        ]

    def _checking(self) -> Operation:
        return Operation(
            method="POST",
            path="/v1/bridges/check",
            name="checkBridge",
            summary="Connect with a remote once and say what it allows; nothing is saved.",
            run=self.check,
            body=Bridge,
            answers={200: Answered("What it says.", BridgeChecked), 400: WRONG},
        )

    def _messages(self) -> Operation:
        from_offset = number(
            "from",
            FIRST_UNACKNOWLEDGED,
            0,
            OFFSET_MAXIMUM,
            "The first offset; without it, the first that the remote has not acknowledged.",
        )
        # What stands for none is no offset, and so no default that could be given.
        del from_offset.schema["default"]
        limit = number("limit", 100, 1, MESSAGES_MAXIMUM, "The most messages of one answer.")
        return Operation(
            method="GET",
            path="/v1/bridges/{name}/messages",
            name="listBridgeMessages",
            summary="Messages of QoS 1 and 2 that a bridge carries, with the state of each.",
            run=self.messages,
            parameters=(from_offset, limit),
            answers={200: Answered("Messages.", BridgeMessages), 404: MISSING},
        )

    async def page(self, asked: Asked) -> BridgePage:
        """A page of bridges."""
        found, following = await self._bridges.page(asked.query["after"], asked.query["limit"])
        return BridgePage(bridges=[_row(each) for each in found], next=following)

    async def show(self, asked: Asked) -> BridgeShown:
        """One bridge."""
        return await self._shown(asked.path["name"])

    async def make(self, asked: Asked) -> BridgeShown:
        """There is such a bridge."""
        await _done(self._commands.make(asked.body))
        return await self._shown(asked.body.name)

    async def check(self, asked: Asked) -> BridgeChecked:
        """What a remote allows."""
        try:
            found = await self._commands.check(asked.body)
        except CommandRefusedError as error:
            raise _refused(error) from error
        return BridgeChecked(
            accepted=found.granted is not None,
            reason=found.reason,
            warnings=list(found.doubts),
            allows=_allowed(found),
        )

    async def change(self, asked: Asked) -> BridgeShown:
        """It is another one."""
        name = asked.path["name"]
        if asked.body.name != name:
            raise bad_request(
                f"name is {asked.body.name!r}, and this is the bridge {name!r}: a bridge keeps its"
                " name; make another one and remove this one"
            )
        await _done(self._commands.change(asked.body))
        return await self._shown(name)

    async def remove(self, asked: Asked) -> Nothing:
        """It is gone."""
        await _done(self._commands.remove(asked.path["name"]))
        return Nothing()

    async def start(self, asked: Asked) -> BridgeShown:
        """It runs."""
        return await self._run(asked.path["name"], is_running=True)

    async def stop(self, asked: Asked) -> BridgeShown:
        """It rests."""
        return await self._run(asked.path["name"], is_running=False)

    async def messages(self, asked: Asked) -> BridgeMessages:
        """Messages with their states."""
        name, first = asked.path["name"], asked.query["from"]
        self._check(name)
        from_offset = None if first == FIRST_UNACKNOWLEDGED else first
        found, following = await self._bridges.messages(
            name, from_offset, asked.query["limit"], self._done_at
        )
        return BridgeMessages(messages=list(map(_message, found)), next_offset=following)

    async def _done_at(self, party: int, offsets: Sequence[int]) -> Mapping[int, int]:
        async with self._readers.lend() as reader:
            return await asyncio.to_thread(done_at_us, reader, party, offsets)

    async def _run(self, name: str, *, is_running: bool) -> BridgeShown:
        try:
            self._commands.run(name, is_running=is_running)
        except CommandRefusedError as error:
            raise _refused(error) from error
        return await self._shown(name)

    async def _shown(self, name: str) -> BridgeShown:
        while (found := await self._bridges.show(name)) is None:
            # It was removed; another one of its name may be there by now.
            self._check(name)
        bridge, events = found.seen.bridge, found.seen.events
        hidden = bridge if bridge.password is None else replace(bridge, password=HIDDEN)
        topics = await self._topics({it.offset for it in events if it.offset is not None})
        return BridgeShown(
            **asdict(_row(found)),
            settings=hidden,
            warnings=list(self._commands.doubts(bridge)),
            events=[
                BridgeEvent(
                    at_us=it.at_us,
                    kind=it.kind,
                    detail=it.detail,
                    offset=it.offset,
                    topic_name=None if it.offset is None else topics.get(it.offset),
                )
                for it in events
            ],
        )

    async def _topics(self, offsets: set[int]) -> dict[int, str]:
        if not offsets:
            return {}
        async with self._readers.lend() as reader:
            return await asyncio.to_thread(_topics_at, reader, sorted(offsets))

    def _check(self, name: str) -> None:
        try:
            self._commands.find(name)
        except CommandRefusedError as error:
            raise _refused(error) from error


async def _done(command: Awaitable[None]) -> None:
    try:
        await command
    except CommandRefusedError as error:
        raise _refused(error) from error


def _refused(error: CommandRefusedError) -> ProblemError:
    return ProblemError(STATUS.get(error.refusal, 409), error.refusal.value, str(error))


def _allowed(found: Checked) -> BridgeAllowed | None:
    granted = found.granted
    if granted is None:
        return None
    return BridgeAllowed(
        maximum_qos=granted.maximum_qos,
        receive_maximum=granted.receive_maximum,
        maximum_packet_size_bytes=granted.maximum_packet_size_bytes,
        topic_alias_maximum=granted.topic_alias_maximum,
        keep_alive_s=granted.keep_alive_s,
        retain_available=granted.retain_available,
        wildcards_available=granted.wildcards_available,
    )


def _message(seen: MessageSeen) -> BridgeMessage:
    return BridgeMessage(
        offset=seen.offset, state=seen.state, reason=seen.reason, since_us=seen.since_us
    )


def _topics_at(reader: LogDirectory, offsets: Sequence[int]) -> dict[int, str]:
    """The topics of messages, shortened, as far as the log still has them."""
    found = {}
    for offset in offsets:
        try:
            chunk = reader.read(Question(Criteria(), offset, offset + 1, ("topic",)))
        except (RecordsGoneError, UnreadableLogError):
            # What is told of the bridge beside is good without it.
            continue
        for row in chunk.batch.to_pylist():
            found[offset] = shortened(row["topic"])
    return found


def _row(found: BridgeStanding) -> BridgeRow:
    seen, counts, ahead = found.seen, found.seen.counts, found.ahead
    return BridgeRow(
        name=seen.bridge.name,
        address=seen.bridge.address,
        in_file=seen.is_configured,
        state=seen.state.value,
        last_error=seen.last_error,
        next_attempt_at_us=seen.next_attempt_at_us,
        connected_at_us=seen.connected_at_us,
        waiting=ahead.messages,
        exact=found.exact,
        oldest_at_us=ahead.oldest_at_us,
        drained_in_s=found.drained_in_s,
        first_loss_in_s=ahead.first_loss_in_s,
        buffered=seen.shelf[0] + found.polled,
        shelf_messages=seen.shelf[0],
        shelf_bytes=seen.shelf[1],
        in_flight=found.in_flight,
        sent=seen.sent,
        repeated=seen.repeated,
        acknowledged=seen.acknowledged,
        received=seen.received,
        received_and_dropped=seen.received_and_lost,
        lost={reason.value: count for reason, count in seen.lost.items()},
        attempts=counts.attempts,
        connections=counts.connections,
        refusals=counts.refusals,
        failures={failure.value: count for failure, count in counts.failures.items()},
        stalls=counts.stalls,
        sessions_forgotten=counts.sessions_forgotten,
        subscriptions_refused=counts.subscriptions_refused,
    )
