"""Subscriptions as EMQX's tools ask for them: those of all clients page by page, and of one."""

from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from holdfast.broker.admin.http.operation import (
    Answered,
    Asked,
    Operation,
    ProblemError,
    text,
    written,
)
from holdfast.broker.admin.v5.clients import MISSING, missing
from holdfast.broker.admin.v5.paging import NODE, PAGING, Paged, digit, first_of, told
from holdfast.broker.observe.clients import ClientsSeen, SubscriptionSeen
from holdfast.broker.state.wanted import SubscriptionsWanted
from holdfast.kernel import is_valid_topic_filter


class ClientSubscription(Struct, kw_only=True):
    """A subscription of a client."""

    topic: str
    clientid: str
    node: str
    qos: int
    nl: int
    rap: int
    rh: Annotated[
        int, Meta(description="Always 0: what was asked for of retained messages is done by then.")
    ]
    durable: bool


class ClientSubscriptionPage(Struct, kw_only=True):
    """A page of subscriptions."""

    data: list[ClientSubscription]
    meta: Paged


class ClientSubscriptionsView:
    """What can be asked about subscriptions."""

    def __init__(self, clients: ClientsSeen) -> None:
        self._clients = clients

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        return [
            Operation(
                method="GET",
                path="/api/v5/subscriptions",
                name="listClientSubscriptions",
                summary="Subscriptions of all clients, connected or away; as EMQX 5 has it.",
                run=self.page,
                parameters=(
                    *PAGING,
                    text("clientid", "Only those of this client."),
                    text("topic", "Only those to this topic filter, alone or in a group."),
                    text("match_topic", "Only those whose topics this filter matches all."),
                    text("share_group", "Only those of groups of this share name."),
                    digit("qos", (0, 1, 2), "Only those of this QoS."),
                ),
                answers={200: Answered("A page of subscriptions.", ClientSubscriptionPage)},
            ),
            Operation(
                method="GET",
                path="/api/v5/clients/{clientid}/subscriptions",
                name="listSubscriptionsOfClient",
                summary="Subscriptions of one client; as EMQX 5 has it.",
                run=self.of_client,
                answers={
                    200: Answered("Its subscriptions.", list[ClientSubscription]),
                    404: MISSING,
                },
            ),
        ]

    async def page(self, asked: Asked) -> ClientSubscriptionPage:
        """A page of subscriptions."""
        query = asked.query
        if query["match_topic"] and not is_valid_topic_filter(query["match_topic"].encode()):
            sentence = f"match_topic is not a topic filter: {query['match_topic']!r}"
            raise ProblemError(400, "invalid_parameter", sentence)
        wanted = SubscriptionsWanted(
            client_identifier=query["clientid"],
            topic_filter=query["topic"],
            within=query["match_topic"],
            share_name=query["share_group"],
            qos=query["qos"],
        )
        page = await self._clients.subscriptions(wanted, first_of(asked), query["limit"])
        rows = [_row(each) for each in page.rows]
        return ClientSubscriptionPage(data=rows, meta=told(asked, page))

    async def of_client(self, asked: Asked) -> web.Response:
        """Those of one client."""
        found = self._clients.subscriptions_of(asked.path["clientid"])
        if found is None:
            raise missing(asked.path["clientid"])
        return written([_row(each) for each in found])


def _row(seen: SubscriptionSeen) -> ClientSubscription:
    subscription = seen.subscription
    return ClientSubscription(
        topic=subscription.topic_filter,
        clientid=seen.client_identifier,
        node=NODE,
        qos=subscription.qos,
        nl=int(subscription.no_local),
        rap=int(subscription.retain_as_published),
        rh=0,
        durable=seen.persistent,
    )
