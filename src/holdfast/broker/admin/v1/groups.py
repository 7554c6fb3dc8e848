"""Groups of shared subscriptions: list, and look at one: who has what of it.

Owns: what an administrator sees of a group. Never: knows how its members are chosen.
"""

from typing import Annotated, Final

from msgspec import Meta, Struct, convert
from msgspec.structs import asdict

from holdfast.broker.admin.http.operation import (
    Answered,
    Asked,
    Next,
    Operation,
    ProblemError,
    listing,
)
from holdfast.broker.commands import CommandRefusedError, Refusal
from holdfast.broker.group_commands import GroupCommands
from holdfast.broker.observe.forecast import Forecast
from holdfast.broker.observe.groups import GroupQueue, GroupsSeen
from holdfast.broker.observe.watch import Watch
from holdfast.broker.state.broker import Broker
from holdfast.core.queue_names import consumer_group

TIME_US_MAXIMUM: Final = 2**63 - 1


class GroupRow(Struct, kw_only=True):
    """A group of shared subscriptions, with its queue."""

    group: str
    name: str
    topic_filter: str
    queue_name: str | None
    consumer_group: str | None
    strategy: str
    members: list[str]
    subscribers: int
    queued: int
    exact: Annotated[
        bool,
        Meta(
            description="False: there was too much to count for a list; queued is then told as at"
            " least so many."
        ),
    ]
    in_flight: int
    stuck: str
    mark: int
    ends_at_us: int | None
    oldest_at_us: int | None
    first_loss_in_s: int | None
    environment: Annotated[
        str | None,
        Meta(
            description="The one whose name its share name ends with, else the one that used it"
            " first; null where nothing tells it."
        ),
    ]


class Share(Struct, kw_only=True):
    """What one member got and has."""

    client_identifier: str
    qos: int
    delivered: int
    in_flight: int
    key_slots: int


class Awaited(Struct, kw_only=True):
    """A session at rest that was sent what it has not received."""

    client_identifier: str
    messages: int
    first_offset: int
    since_us: Annotated[
        int | None, Meta(description="When its connection ended; null if it is kept for ever.")
    ]
    ends_at_us: Annotated[
        int | None, Meta(description="When the session ends, and with it the waiting.")
    ]


class HeldKey(Struct, kw_only=True):
    """A key with messages in flight."""

    key_slot: int
    client_identifier: str
    in_flight: int
    waiting: int
    since_us: int
    first_offset: int


class Group(GroupRow, kw_only=True):
    """A group in detail."""

    shares: Annotated[
        list[Share], Meta(description="Attached members: delivered since they came, and in flight.")
    ]
    awaited: Annotated[
        list[Awaited],
        Meta(
            description="Sessions at rest that are waited for: what they were sent at QoS 2 and"
            " have not received is nobody else's before they end."
        ),
    ]
    waiting_for_keys: Annotated[
        int,
        Meta(description="By key: messages that wait for their key's member, or until it moves."),
    ]
    keys_held: Annotated[
        list[HeldKey],
        Meta(description="By key: those with messages in flight, held longest first."),
    ]


class GroupPage(Struct, kw_only=True):
    """A page of groups."""

    groups: list[GroupRow]
    next: Next


class Fork(Struct, forbid_unknown_fields=True):
    """A group that is to be made from another one."""

    share_name: Annotated[str, Meta(description="What it is called, without $share/ and filter.")]
    at_us: Annotated[
        Annotated[int, Meta(ge=0, le=TIME_US_MAXIMUM)] | None,
        Meta(
            description="It begins with what was published then or later, and with whatever the"
            " original has not had yet. Without it only with that."
        ),
    ] = None


class Forked(Struct, kw_only=True):
    """A group that was made."""

    group: str
    place: Annotated[int, Meta(description="The offset at which it begins.")]
    messages: Annotated[int, Meta(description="How many wait for it.")]
    ends_at_us: Annotated[int, Meta(description="When it is gone if nobody subscribes to it.")]


class GroupsView:
    """What can be asked about groups."""

    def __init__(
        self, broker: Broker, commands: GroupCommands, watch: Watch, forecast: Forecast
    ) -> None:
        self._groups = GroupsSeen(broker, watch, forecast)
        self._commands = commands

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        return [
            listing(
                "groups",
                GroupPage,
                self.page,
                summary="Groups of shared subscriptions with their queues, by name.",
            ),
            Operation(
                method="GET",
                path="/v1/groups/{group}",
                name="showGroup",
                summary="One group, by its whole $share/... name: what each member got and has,"
                " for whom it waits, and which keys are held by whom.",
                run=self.show,
                answers={
                    200: Answered("The group.", Group),
                    404: Answered("There is no such group."),
                },
            ),
            Operation(
                method="POST",
                path="/v1/groups/{group}/fork",
                name="forkGroup",
                summary="Make another group that reads the same, from a time on, at its own pace;"
                " the original stays where it is.",
                run=self.fork,
                body=Fork,
                answers={
                    200: Answered("It is there, and on record.", Forked),
                    404: Answered("There is no such group."),
                    409: Answered("It cannot be done: `error` and `detail` say why."),
                },
            ),
        ]

    async def page(self, asked: Asked) -> GroupPage:
        """A page of groups."""
        found, following = await self._groups.page(asked.query["after"], asked.query["limit"])
        return GroupPage(groups=[_row(each) for each in found], next=following)

    async def fork(self, asked: Asked) -> Forked:
        """There is another one like it."""
        body = asked.body
        try:
            made = await self._commands.fork(asked.path["group"], body.share_name, body.at_us)
        except CommandRefusedError as error:
            status = 404 if error.refusal is Refusal.NO_SUCH_GROUP else 409
            raise ProblemError(status, error.refusal.value, str(error)) from error
        return convert(made, Forked, from_attributes=True)

    async def show(self, asked: Asked) -> Group:
        """One group in detail."""
        name = asked.path["group"]
        found = await self._groups.show(name)
        if found is None:
            sentence = f"no group is called {name!r}; the name begins with $share/"
            raise ProblemError(404, "no_such_group", sentence)
        return Group(
            **asdict(_row(found.queue)),
            shares=convert(found.shares, list[Share], from_attributes=True),
            awaited=convert(found.awaited, list[Awaited], from_attributes=True),
            waiting_for_keys=found.keys.waiting,
            keys_held=convert(found.keys.held, list[HeldKey], from_attributes=True),
        )


def _row(queue: GroupQueue) -> GroupRow:
    seen = queue.seen
    named = None if seen.queue_name is None else consumer_group(seen.name, seen.queue_name)
    return GroupRow(
        group=seen.group,
        name=seen.name,
        topic_filter=seen.topic_filter,
        queue_name=seen.queue_name,
        consumer_group=named,
        strategy=seen.strategy,
        members=list(seen.members),
        subscribers=seen.subscribers,
        queued=queue.queued,
        exact=queue.exact,
        in_flight=seen.in_flight,
        stuck=queue.stuck or "",
        mark=seen.mark,
        ends_at_us=seen.ends_at_us,
        oldest_at_us=queue.ahead.oldest_at_us,
        first_loss_in_s=queue.ahead.first_loss_in_s,
        environment=queue.environment,
    )
