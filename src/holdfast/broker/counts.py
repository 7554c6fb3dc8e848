"""What is counted of what happens at the broker's doors, and why it happened.

Owns: the events, and how often each was, by its reason. Never: names a metric; `observe.metrics`
does.

Invariants:
1. An event and its reason are members of enums, or codes of a protocol, and never a text that a
   client chooses: the number of counts is bounded.
2. Text is made of them only where they are shown.
"""

from collections import Counter
from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import NamedTuple


class Event(StrEnum):
    """Something that is counted, by the name that it has where no metric of its own shows it."""

    CONNECTIONS_OPENED = "connections_opened"
    CONNECTIONS_TURNED_AWAY = "connections_turned_away"
    """By the limit that was reached."""
    CONNECTIONS_ACCEPTED = "connections_accepted"
    CONNECTIONS_REFUSED = "connections_refused"
    """By the reason code that is answered."""
    CONNECTIONS_ENDED = "connections_ended"
    """By the reason code that is told."""
    CONNECTIONS_ENDED_BEFORE_CONNECT = "connections_ended_before_connect"
    CONNECTIONS_NO_LONGER_ALLOWED = "connections_no_longer_allowed"
    SESSIONS_REFUSED = "sessions_refused"
    SESSIONS_TAKEN_OVER = "sessions_taken_over"
    APPLICATIONS_NOT_PERSISTENT = "applications_not_persistent"
    APPLICATIONS_WITHOUT_QUEUE = "applications_without_queue"
    LOGINS = "logins"
    """By what became of them."""
    ADDRESSES_BANNED = "addresses_banned"
    SUBSCRIPTIONS_REFUSED = "subscriptions_refused"
    """By the reason code that is answered."""
    GROUPS_WITHOUT_ENVIRONMENT = "groups_without_environment"
    SUBSCRIPTIONS_NO_LONGER_ALLOWED = "subscriptions_no_longer_allowed"
    PUBLISHES_REFUSED = "publishes_refused"
    """By the reason code that is answered."""
    OWN_PUBLISHES_REFUSED = "own_publishes_refused"
    WILLS_PUBLISHED = "wills_published"
    WILLS_LOST = "wills_lost"
    TLS_HANDSHAKES_REFUSED = "tls_handshakes_refused"
    TLS_HANDSHAKES_UNFINISHED = "tls_handshakes_unfinished"
    TLS_CONNECTIONS_BROKEN = "tls_connections_broken"
    TLS_PEERS_NOT_READING = "tls_peers_not_reading"
    WEBSOCKET_HANDSHAKES_REFUSED = "websocket_handshakes_refused"
    """By the status of HTTP that is answered."""
    WEBSOCKET_HANDSHAKES_UNFINISHED = "websocket_handshakes_unfinished"
    WEBSOCKET_CLOSED = "websocket_closed"
    """For a fault of the peer, by the code that it is told."""
    WEBSOCKET_PEERS_NOT_READING = "websocket_peers_not_reading"
    LINK_HANDSHAKES_REFUSED = "link_handshakes_refused"
    """TLS or WebSocket on a connection that was opened from here, and so are the next three."""
    LINK_HANDSHAKES_UNFINISHED = "link_handshakes_unfinished"
    LINK_CONNECTIONS_BROKEN = "link_connections_broken"
    LINK_PEERS_NOT_READING = "link_peers_not_reading"
    PULSAR_REQUESTS_REFUSED = "pulsar_requests_refused"
    """By the refusal."""
    PULSAR_CONNECTIONS_ENDED = "pulsar_connections_ended"
    """By the reason."""
    PROXY_HEADERS_TAKEN = "proxy_headers_taken"
    PROXY_HEADERS_REFUSED = "proxy_headers_refused"
    PROXY_HANDSHAKES_UNFINISHED = "proxy_handshakes_unfinished"
    PROXY_PEERS_NOT_READING = "proxy_peers_not_reading"


Reason = Enum | int
"""Why: a member of an enum, or a code of a protocol."""


class Counted(NamedTuple):
    """An event with its reason."""

    event: Event
    reason: Reason | None = None


class Counts:
    """How often each event was, since the start."""

    def __init__(self) -> None:
        # By event first: an event has its hash, and a pair of both would be made and hashed anew
        # each time.
        self._totals = {event: Counter[Reason | None]() for event in Event}

    def add(self, event: Event, reason: Reason | None = None, times: int = 1) -> None:
        """It has happened, for this reason."""
        self._totals[event][reason] += times

    def total(self, event: Event, reason: Reason | None = None) -> int:
        """How often it has happened for this reason."""
        return self._totals[event][reason]

    def all(self) -> Mapping[Counted, int]:
        """All that has happened at all."""
        return {
            Counted(event, reason): count
            for event, totals in self._totals.items()
            for reason, count in totals.items()
        }
