"""Environments: list, and look at one; with who takes messages of whom."""

from typing import Annotated

from msgspec import Meta, Struct

from holdfast.broker.admin.http.operation import (
    Answered,
    Asked,
    Next,
    Operation,
    ProblemError,
    listing,
)
from holdfast.broker.observe.environments import (
    EnvironmentsSeen,
    EnvironmentStanding,
    GroupStanding,
)
from holdfast.broker.observe.thefts import Theft


class EnvironmentRow(Struct, kw_only=True):
    """An environment, as of the last round over all clients and groups."""

    name: str
    clients: Annotated[int, Meta(description="Those of its clients that are connected.")]
    groups: int
    waiting: Annotated[
        int,
        Meta(
            description="Messages that wait in its groups; where there is much to count, at least"
            " so many."
        ),
    ]
    in_flight: int
    thefts: Annotated[
        int, Meta(description="Groups that it shares with other environments now, whoever's.")
    ]


class EnvironmentGroup(Struct, kw_only=True):
    """A group of an environment."""

    group: str
    members: int
    waiting: int
    in_flight: int


class TakerRow(Struct, kw_only=True):
    """What one environment took of a group."""

    environment: Annotated[str | None, Meta(description="null: nothing tells it.")]
    messages: int
    share: Annotated[float, Meta(description="Of all that was taken of the group, from 0 to 1.")]


class TheftRow(Struct, kw_only=True):
    """A group that another environment than its own takes from."""

    group: str
    environment: Annotated[str, Meta(description="Whose group it is.")]
    since_us: int
    until_us: Annotated[int | None, Meta(description="null while it goes on.")]
    taken: Annotated[int, Meta(description="Messages that others have taken since it began.")]
    takers: Annotated[
        list[TakerRow],
        Meta(
            description="Who took what of it in environments.theft_window_s, the most first; of one"
            " that is over, what was last seen."
        ),
    ]
    told: Annotated[str, Meta(description="The same as people say it.")]


class EnvironmentDetail(EnvironmentRow, kw_only=True):
    """An environment in detail."""

    its_groups: list[EnvironmentGroup]
    its_thefts: list[TheftRow]


class EnvironmentPage(Struct, kw_only=True):
    """A page of environments, and whatever any of them takes of another one."""

    environments: list[EnvironmentRow]
    thefts: Annotated[
        list[TheftRow],
        Meta(description="Those that go on, the longest first, then the last ones that are over."),
    ]
    next: Next


class EnvironmentsView:
    """What can be asked about environments."""

    def __init__(self, environments: EnvironmentsSeen) -> None:
        self._environments = environments

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        return [
            listing(
                "environments",
                EnvironmentPage,
                self.page,
                summary="Environments that share the broker, and groups that several of them use.",
            ),
            Operation(
                method="GET",
                path="/v1/environments/{environment}",
                name="showEnvironment",
                summary="One environment with its groups, and what others take of them.",
                run=self.show,
                answers={
                    200: Answered("The environment.", EnvironmentDetail),
                    404: Answered("No environment of this name is known."),
                },
            ),
        ]

    async def page(self, asked: Asked) -> EnvironmentPage:
        """A page of environments."""
        limit = asked.query["limit"]
        rows = self._environments.page(asked.query["after"], limit + 1)
        thefts = self._environments.thefts
        return EnvironmentPage(
            environments=[_row(each) for each in rows[:limit]],
            thefts=[_theft(each) for each in (*thefts.going_on(), *thefts.over())],
            next=rows[limit - 1].name if len(rows) > limit else None,
        )

    async def show(self, asked: Asked) -> EnvironmentDetail:
        """One environment."""
        name = asked.path["environment"]
        found = self._environments.show(name)
        if found is None:
            sentence = f"no environment {name!r} is known: no setting and no client has named it"
            raise ProblemError(404, "no_such_environment", sentence)
        row = _row(found)
        return EnvironmentDetail(
            name=row.name,
            clients=row.clients,
            groups=row.groups,
            waiting=row.waiting,
            in_flight=row.in_flight,
            thefts=row.thefts,
            its_groups=[_group(each) for each in found.groups],
            its_thefts=[_theft(each) for each in found.thefts],
        )


def _row(found: EnvironmentStanding) -> EnvironmentRow:
    return EnvironmentRow(
        name=found.name,
        clients=found.clients,
        groups=len(found.groups),
        waiting=found.waiting,
        in_flight=found.in_flight,
        thefts=len(found.thefts),
    )


def _group(found: GroupStanding) -> EnvironmentGroup:
    return EnvironmentGroup(
        group=found.group,
        members=found.members,
        waiting=found.waiting,
        in_flight=found.in_flight,
    )


def _theft(theft: Theft) -> TheftRow:
    return TheftRow(
        group=theft.group,
        environment=theft.environment,
        since_us=theft.since_us,
        until_us=theft.until_us,
        taken=theft.taken,
        takers=[
            TakerRow(
                environment=taker.environment or None, messages=taker.messages, share=taker.share
            )
            for taker in theft.takers
        ],
        told=theft.told(),
    )
