"""Groups of shared subscriptions: list, and look at one: who has what of it.

Owns: what an administrator sees of a group. Never: knows how its members are chosen.
"""

from typing import Any

from holdfast.broker.admin.forecast import Forecast
from holdfast.broker.admin.operation import (
    Answered,
    Asked,
    Operation,
    ProblemError,
    Schema,
    listing,
    row_of,
)
from holdfast.broker.admin.watch import Watch
from holdfast.broker.server import Server
from holdfast.protocols.mqtt.queue_names import consumer_group

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
    in_flight="integer",
    stuck="string",
    mark="integer",
    ends_at_us=("integer", "null"),
    oldest_at_us=("integer", "null"),
    first_loss_in_s=("integer", "null"),
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
        self._now_us = server.now_us
        self._watch = watch
        self._sessions = server.stages.sessions
        self._groups = server.stages.groups

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
        return {
            "groups": [self._row(name) for name in page],
            "next": page[-1] if len(names) > limit else None,
        }

    async def show(self, asked: Asked) -> dict[str, Any]:
        """One group in detail."""
        name = asked.path["group"]
        if name not in self._groups:
            sentence = f"no group is called {name!r}; the name begins with $share/"
            raise ProblemError(404, "no_such_group", sentence)
        keys = self._groups.keys(name, self._client_on)
        return self._row(name) | {
            "shares": self._groups.shares(name, self._client_on),
            "waiting_for_keys": keys["waiting"],
            "keys_held": keys["held"],
        }

    def _row(self, name: str) -> dict[str, Any]:
        seen = self._groups.describe(name, self._client_on)
        queue_name = seen["queue_name"]
        named = None if queue_name is None else consumer_group(seen["name"], queue_name)
        stuck = self._watch.stuck_of(self._groups.party_of(name))
        ahead = self._ahead(name, seen)
        return {"group": name, "stuck": stuck, **seen, "consumer_group": named, **ahead}

    def _ahead(self, name: str, seen: dict[str, Any]) -> dict[str, int | None]:
        """What is ahead of a group; while members are there, nothing is cut off its queue."""
        record = self._groups.record(name)
        assert record is not None, "nobody has removed it since its name was taken"
        ahead = self._forecast.of_queue(
            [item.table() for item in record.reads],
            record.party,
            seen["mark"],
            self._now_us(),
            bounded=not seen["members"],
            ages=False,
        )
        return {"oldest_at_us": ahead.oldest_at_us, "first_loss_in_s": ahead.first_loss_in_s}

    def _client_on(self, connection: int) -> str:
        attached = self._sessions.of(connection)
        return "" if attached is None else attached.session.client_identifier
