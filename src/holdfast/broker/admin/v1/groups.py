"""Groups of shared subscriptions: list, and look at one: who has what of it.

Owns: what an administrator sees of a group. Never: knows how its members are chosen.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import asdict

from holdfast.broker.admin.http.operation import (
    Answered,
    Asked,
    Next,
    Operation,
    ProblemError,
    listing,
)
from holdfast.broker.chores import Pieces
from holdfast.broker.observe.forecast import Ahead, Forecast
from holdfast.broker.observe.watch import Watch
from holdfast.broker.server import Server
from holdfast.broker.store.questions import EXACT, LIST_EFFORT_MAXIMUM, Inquiry
from holdfast.core.queue_names import consumer_group


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


class Share(Struct, kw_only=True):
    """What one member got and has."""

    client_identifier: str
    qos: int
    delivered: int
    in_flight: int
    key_slots: int


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


class GroupsView:
    """What can be asked about groups."""

    def __init__(self, server: Server, watch: Watch, forecast: Forecast) -> None:
        self._forecast = forecast
        self._chores = server.stages.chores
        self._log = server.stages.kernel.log
        self._now_us = server.now_us
        self._watch = watch
        self._sessions = server.stages.sessions
        self._groups = server.stages.groups

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        return [
            listing(
                *("listGroups", "groups", GroupPage, self.page),
                summary="Groups of shared subscriptions with their queues, by name.",
            ),
            Operation(
                method="GET",
                path="/v1/groups/{group}",
                name="showGroup",
                summary="One group, by its whole $share/... name: what each member got and has,"
                " and which keys are held by whom.",
                run=self.show,
                answers={
                    200: Answered("The group.", Group),
                    404: Answered("There is no such group."),
                },
            ),
        ]

    async def page(self, asked: Asked) -> GroupPage:
        """A page of groups."""
        limit, after = asked.query["limit"], asked.query["after"]
        names = [name for name in self._groups.names() if name > after]
        page = names[:limit]
        rows = await self._chores.outcome(self._rows(page, LIST_EFFORT_MAXIMUM))
        return GroupPage(groups=rows, next=page[-1] if len(names) > limit else None)

    async def show(self, asked: Asked) -> Group:
        """One group in detail."""
        name = asked.path["group"]
        if name not in self._groups:
            sentence = f"no group is called {name!r}; the name begins with $share/"
            raise ProblemError(404, "no_such_group", sentence)
        rows = await self._chores.outcome(self._rows([name], EXACT))
        if not rows:
            raise ProblemError(404, "no_such_group", f"group {name!r} has just ended")
        keys = self._groups.keys(name, self._client_on)
        return Group(
            **asdict(rows[0]),
            shares=[Share(**share) for share in self._groups.shares(name, self._client_on)],
            waiting_for_keys=keys["waiting"],
            keys_held=[HeldKey(**held) for held in keys["held"]],
        )

    def _rows(self, names: list[str], effort_maximum: int) -> Pieces[list[GroupRow]]:
        """Those that are still there."""
        rows, inquiry = [], Inquiry(self._log, effort_maximum)
        for name in names:
            if name in self._groups:
                rows.append((yield from self._row(name, inquiry)))
            yield from inquiry.rest()
        return [row for row in rows if row.group in self._groups]

    def _row(self, name: str, inquiry: Inquiry) -> Pieces[GroupRow]:
        seen = self._groups.describe(name, self._client_on)
        queue_name = seen["queue_name"]
        named = None if queue_name is None else consumer_group(seen["name"], queue_name)
        stuck = self._watch.stuck_of(self._groups.party_of(name))
        ahead = yield from self._ahead(name, seen, inquiry)
        queued = yield from self._groups.queued(name, inquiry)
        return GroupRow(
            group=name,
            stuck=stuck,
            queued=queued,
            consumer_group=named,
            oldest_at_us=ahead.oldest_at_us,
            first_loss_in_s=ahead.first_loss_in_s,
            exact=inquiry.is_exact,
            **seen,
        )

    def _ahead(self, name: str, seen: dict[str, Any], inquiry: Inquiry) -> Pieces[Ahead]:
        """What is ahead of a group; while members are there, nothing is cut off its queue."""
        record = self._groups.record(name)
        assert record is not None, "nobody has removed it since its name was taken"
        ahead = self._forecast.of_queue(
            *(inquiry, [item.table() for item in record.reads]),
            *(record.party, seen["mark"], self._now_us()),
            bounded=not seen["members"],
            ages=False,
        )
        return (yield from ahead)

    def _client_on(self, connection: int) -> str:
        attached = self._sessions.of(connection)
        return "" if attached is None else attached.session.client_identifier
