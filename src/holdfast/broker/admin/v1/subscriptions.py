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
from holdfast.broker.observe.sessions import SessionsSeen
from holdfast.core.subscription import Subscription
from holdfast.kernel import is_valid_topic_name, topic_matches

SESSIONS_PER_PAGE_MAXIMUM = 1_000
"""Sessions looked through for one answer, so that a search that finds nothing ends too."""


class ClientSubscription(SubscriptionRow, kw_only=True):
    """A subscription, and whose it is."""

    client_identifier: str


class SubscriptionPage(Struct, kw_only=True):
    """A page of subscriptions."""

    subscriptions: list[ClientSubscription]
    next: Next


class SubscriptionsView:
    """What can be asked about subscriptions."""

    def __init__(self, sessions: SessionsSeen) -> None:
        self._sessions = sessions

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        return [
            listing(
                "subscriptions",
                SubscriptionPage,
                self.page,
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
        found = await self._sessions.subscriptions(
            asked.query["after"], asked.query["client_identifier"], SESSIONS_PER_PAGE_MAXIMUM
        )
        by_client = list(found.items())
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
