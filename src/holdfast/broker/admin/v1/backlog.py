"""What sessions at rest have waiting for them, all together."""

from typing import Annotated

from msgspec import Meta, Struct

from holdfast.broker.admin.http.operation import AFTER, LIMIT, Answered, Asked, Next, Operation
from holdfast.broker.observe.backlog import Backlogs
from holdfast.broker.observe.forecast import Forecast
from holdfast.broker.state.broker import Broker


class Behind(Struct, kw_only=True):
    """A session at rest with messages waiting."""

    client_identifier: str
    environment: str | None
    messages: int
    oldest_at_us: int | None
    first_loss_in_s: int | None


class BacklogPage(Struct, kw_only=True):
    """Totals of some sessions, and the longest."""

    sessions: Annotated[int, Meta(description="Sessions at rest that were looked at.")]
    behind: Annotated[int, Meta(description="Those with messages waiting.")]
    messages: Annotated[
        int,
        Meta(
            description="Messages that have not expired; queue.messages_maximum, which is applied"
            " when a session comes back, is not subtracted."
        ),
    ]
    first_loss_in_s: Annotated[
        int | None,
        Meta(
            description="When the first of these messages will be lost, to the limit of a queue or"
            " to its age, at the rate of the last minute; null while that is not in sight."
        ),
    ]
    longest: list[Behind]
    next: Next


class Backlog:
    """What can be asked about queues at rest."""

    def __init__(self, broker: Broker, forecast: Forecast) -> None:
        self._backlogs = Backlogs(broker, forecast)
        self._environments = broker.environments

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        return [
            Operation(
                method="GET",
                path="/v1/backlog",
                name="countBacklog",
                summary="Messages that wait for sessions at rest, `limit` sessions at a time.",
                run=self.count,
                parameters=(LIMIT, AFTER),
                answers={200: Answered("Totals of these sessions, and the longest.", BacklogPage)},
            )
        ]

    async def count(self, asked: Asked) -> BacklogPage:
        """Totals over a page of sessions."""
        limit = asked.query["limit"]
        found = await self._backlogs.count(asked.query["after"], limit)
        ahead = [each.ahead.first_loss_in_s for each in found.behind]
        return BacklogPage(
            sessions=found.sessions,
            behind=len(found.behind),
            messages=sum(each.messages for each in found.behind),
            first_loss_in_s=min((in_s for in_s in ahead if in_s is not None), default=None),
            longest=[
                Behind(
                    client_identifier=each.client_identifier,
                    environment=self._environments.of_owner(each.client_identifier),
                    messages=each.messages,
                    oldest_at_us=each.ahead.oldest_at_us,
                    first_loss_in_s=each.ahead.first_loss_in_s,
                )
                for each in found.longest()
            ],
            next=found.last if found.sessions == limit else None,
        )
