"""Subscriptions of all sessions: list, and search by client, filter, or a topic that they match."""

from msgspec import Struct

from holdfast.broker.admin.http.operation import (
    Asked,
    Next,
    Operation,
    bad_request,
    listing,
    text,
)
from holdfast.broker.admin.v1.sessions import SubscriptionRow
from holdfast.broker.admin.v1.view_reader import ViewReader
from holdfast.broker.mqtt.attached import is_durable
from holdfast.broker.server import Server
from holdfast.broker.store.tables import parse_subscriptions
from holdfast.core.subscription import Subscription
from holdfast.kernel import is_valid_topic_name, topic_matches

SESSIONS_PER_PAGE_MAXIMUM = 1_000
"""Sessions looked through for one answer, so that a search that finds nothing ends too."""
_LIST = (
    "SELECT key, value FROM subscriptions WHERE key > ? AND instr(key, ?) > 0 ORDER BY key LIMIT ?"
)


class ClientSubscription(SubscriptionRow, kw_only=True):
    """A subscription, and whose it is."""

    client_identifier: str


class SubscriptionPage(Struct, kw_only=True):
    """A page of subscriptions."""

    subscriptions: list[ClientSubscription]
    next: Next


class SubscriptionsView:
    """What can be asked about subscriptions."""

    def __init__(self, server: Server, view: ViewReader) -> None:
        self._sessions = server.stages.sessions
        self._view = view

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        return [
            listing(
                *("listSubscriptions", "subscriptions", SubscriptionPage, self.page),
                summary="Subscriptions by client identifier. A page has whole sessions; it may be"
                " empty and have a next one where a search finds little.",
                parameters=(
                    text("client_identifier", "Only clients whose identifier contains this."),
                    text("filter", "Only topic filters that contain this."),
                    text("topic", "Only topic filters that match this topic."),
                ),
            ),
        ]

    async def page(self, asked: Asked) -> SubscriptionPage:
        """A page: whole sessions, until there are enough rows."""
        topic = asked.query["topic"].encode()
        if topic and not is_valid_topic_name(topic):
            raise bad_request("topic is not a topic name: it is empty or has a wildcard")
        rows: list[ClientSubscription] = []
        by_client = await self._by_client(asked)
        last = None
        for place, (client_identifier, subscriptions) in enumerate(by_client):
            rows += [
                _row(client_identifier, item)
                for item in subscriptions
                if _is_wanted(item, asked.query["filter"], topic)
            ]
            enough = len(rows) >= asked.query["limit"] or place + 1 == SESSIONS_PER_PAGE_MAXIMUM
            if enough:
                last = client_identifier if place + 1 < len(by_client) else None
                break
        if last is None and len(by_client) >= SESSIONS_PER_PAGE_MAXIMUM:
            last = by_client[-1][0]
        return SubscriptionPage(subscriptions=rows, next=last)

    async def _by_client(self, asked: Asked) -> list[tuple[str, tuple[Subscription, ...]]]:
        after, search = asked.query["after"].encode(), asked.query["client_identifier"]
        recorded = await self._view.rows(_LIST, after, search.encode(), SESSIONS_PER_PAGE_MAXIMUM)
        found = {key: parse_subscriptions(value.encode()) for key, value in recorded}
        for item in self._sessions.all_attached():
            client_identifier = item.session.client_identifier
            key = client_identifier.encode()
            if not is_durable(item.session) and key > after and search in client_identifier:
                found[key] = item.subscriptions
        in_order = sorted(found)[:SESSIONS_PER_PAGE_MAXIMUM]
        return [(key.decode(), found[key]) for key in in_order]


def _row(client_identifier: str, subscription: Subscription) -> ClientSubscription:
    return ClientSubscription(
        client_identifier=client_identifier,
        topic_filter=subscription.topic_filter,
        qos=subscription.qos,
        no_local=subscription.no_local,
        retain_as_published=subscription.retain_as_published,
        identifier=subscription.identifier,
    )


def _is_wanted(subscription: Subscription, part: str, topic: bytes) -> bool:
    if not subscription.in_force or part not in subscription.topic_filter:
        return False
    return not topic or topic_matches(subscription.topic_filter.encode(), topic)
