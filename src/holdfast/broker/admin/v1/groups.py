"""Groups of shared subscriptions: list, and look at one: who has what of it.

Owns: what an administrator sees of a group. Never: knows how its members are chosen.
"""

from typing import Any

from holdfast.broker.admin.http.operation import (
    Answered,
    Asked,
    Operation,
    ProblemError,
    Schema,
    listing,
    row_of,
)
from holdfast.broker.chores import Pieces
from holdfast.broker.observe.forecast import Forecast
from holdfast.broker.observe.watch import Watch
from holdfast.broker.server import Server
from holdfast.broker.store.questions import EXACT, LIST_EFFORT_MAXIMUM, Inquiry
from holdfast.core.queue_names import consumer_group
from holdfast.core.quota import UNLIMITED

ROW = row_of(
    group="string",
    name="string",
    topic_filter="string",
    queue_name=("string", "null"),
    consumer_group=("string", "null"),
    strategy="string",
    members="array",
    subscribers="integer",
    queued="integer",
    exact="boolean",
    in_flight="integer",
    stuck="string",
    mark="integer",
    ends_at_us=("integer", "null"),
    oldest_at_us=("integer", "null"),
    first_loss_in_s=("integer", "null"),
)
ROW["properties"]["exact"]["description"] = (
    "False: there was too much to count for a list; queued is then told as at least so many."
)
SHARE = row_of(
    client_identifier="string",
    qos="integer",
    delivered="integer",
    in_flight="integer",
    key_slots="integer",
)
HELD_KEY = row_of(
    key_slot="integer",
    client_identifier="string",
    in_flight="integer",
    waiting="integer",
    since_us="integer",
    first_offset="integer",
)
DETAIL: Schema = {
    "type": "object",
    "properties": {
        **ROW["properties"],
        "shares": {
            "type": "array",
            "items": SHARE,
            "description": "Attached members: delivered since they came, and in flight.",
        },
        "waiting_for_keys": {
            "type": "integer",
            "description": "By key: messages that wait for their key's member, or until it moves.",
        },
        "keys_held": {
            "type": "array",
            "items": HELD_KEY,
            "description": "By key: those with messages in flight, held longest first.",
        },
    },
}
DETAIL["required"] = list(DETAIL["properties"])


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
        self._queues = server.stages.queues

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        return [
            listing(
                *("listGroups", "groups", ROW, self.page),
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
                    200: Answered("The group.", DETAIL),
                    404: Answered("There is no such group."),
                },
            ),
        ]

    async def page(self, asked: Asked) -> dict[str, Any]:
        """A page of groups."""
        limit, after = asked.query["limit"], asked.query["after"]
        names = [name for name in self._groups.names() if name > after]
        page = names[:limit]
        rows = await self._chores.outcome(self._rows(page, LIST_EFFORT_MAXIMUM))
        return {"groups": rows, "next": page[-1] if len(names) > limit else None}

    async def show(self, asked: Asked) -> dict[str, Any]:
        """One group in detail."""
        name = asked.path["group"]
        if name not in self._groups:
            sentence = f"no group is called {name!r}; the name begins with $share/"
            raise ProblemError(404, "no_such_group", sentence)
        rows = await self._chores.outcome(self._rows([name], EXACT))
        if not rows:
            raise ProblemError(404, "no_such_group", f"group {name!r} has just ended")
        keys = self._groups.keys(name, self._client_on)
        return rows[0] | {
            "shares": self._groups.shares(name, self._client_on),
            "waiting_for_keys": keys["waiting"],
            "keys_held": keys["held"],
        }

    def _rows(self, names: list[str], effort_maximum: int) -> Pieces[list[dict[str, Any]]]:
        """Those that are still there."""
        rows, inquiry = [], Inquiry(self._log, effort_maximum)
        for name in names:
            if name in self._groups:
                rows.append((yield from self._row(name, inquiry)))
            yield from inquiry.rest()
        return [row for row in rows if row["group"] in self._groups]

    def _row(self, name: str, inquiry: Inquiry) -> Pieces[dict[str, Any]]:
        seen = self._groups.describe(name, self._client_on)
        queue_name = seen["queue_name"]
        named = None if queue_name is None else consumer_group(seen["name"], queue_name)
        stuck = self._watch.stuck_of(self._groups.party_of(name))
        ahead = yield from self._ahead(name, seen, inquiry)
        queued = yield from self._groups.queued(name, inquiry)
        row = {"group": name, "stuck": stuck, **seen, "queued": queued, "consumer_group": named}
        return row | ahead | {"exact": inquiry.is_exact}

    def _ahead(
        self, name: str, seen: dict[str, Any], inquiry: Inquiry
    ) -> Pieces[dict[str, int | None]]:
        """What is ahead of a group; while members are there, nothing is cut off its queue."""
        record = self._groups.record(name)
        assert record is not None, "nobody has removed it since its name was taken"
        ahead = yield from self._forecast.of_queue(
            *(inquiry, [item.table() for item in record.reads]),
            *(record.party, seen["mark"]),
            UNLIMITED if seen["members"] else self._queues.quota(record),
            self._now_us(),
        )
        return {"oldest_at_us": ahead.oldest_at_us, "first_loss_in_s": ahead.first_loss_in_s}

    def _client_on(self, connection: int) -> str:
        attached = self._sessions.of(connection)
        return "" if attached is None else attached.session.client_identifier
