"""Clients and their subscriptions page by page and by number, for tools that ask so.

Owns: which rows a page has. Never: counts more than a page needs.

Invariants:
1. Who is on record comes first, by client identifier; then whoever ends with the connection, in the
   order in which they came. So a page reads its own rows, and no list is sorted.
2. Between two turns at most CLIENTS_AT_ONCE clients are looked at.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, TypeVar

from holdfast.broker.chores import Pieces
from holdfast.broker.mqtt.session import Session
from holdfast.broker.observe.queue_length import QueueLength, QueueLengths
from holdfast.broker.state.broker import Broker
from holdfast.broker.state.connections import ConnectionSeen
from holdfast.broker.state.sessions import AttachedSeen
from holdfast.broker.state.wanted import ClientsWanted, SubscriptionsWanted
from holdfast.broker.store.questions import EXACT, LIST_EFFORT_MAXIMUM, SESSION_EFFORT, Inquiry
from holdfast.core.subscription import Subscription

Row = TypeVar("Row")
CLIENTS_AT_ONCE: Final = 500
"""Each is looked up in memory, which takes about a microsecond."""
EVERYBODY: Final = ClientsWanted()


@dataclass(frozen=True, slots=True)
class NumberedPage(Generic[Row]):
    """Rows of one page."""

    rows: list[Row]
    has_next: bool
    count: int | None
    """How many rows all pages have, where that is known without counting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionsWanted:
    """Which connections; what is empty or `None` chooses nothing. Who is not connected has none."""

    address: str = ""
    from_us: int | None = None
    until_us: int | None = None

    @property
    def chooses(self) -> bool:
        """True if a client that is not connected cannot be meant."""
        return bool(self.address) or self.from_us is not None or self.until_us is not None

    def fits(self, connection: ConnectionSeen) -> bool:
        """True if this one is meant."""
        opened_us = connection.opened_at_us
        return (
            self.address in ("", host_and_port(connection.peer)[0])
            and (self.from_us is None or opened_us >= self.from_us)
            and (self.until_us is None or opened_us <= self.until_us)
        )


@dataclass(frozen=True, slots=True)
class SubscriptionSeen:
    """A subscription, and whose it is."""

    client_identifier: str
    persistent: bool
    subscription: Subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSeen:
    """A client with what waits for it."""

    session: Session
    connection: ConnectionSeen | None
    keep_alive_s: int | None
    receive_maximum: int | None
    subscriptions: int
    length: QueueLength
    is_expired: bool
    environment: str | None


class ClientsSeen:
    """Looks at clients."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._sessions = broker.sessions
        self._lengths = QueueLengths(broker)

    async def page(
        self, wanted: ClientsWanted, over: ConnectionsWanted, first: int, limit: int
    ) -> NumberedPage[ClientSeen]:
        """Clients, without the `first` ones."""
        found, before = list[Session | AttachedSeen](), 0
        if not over.chooses:
            found += await self._broker.recorded.clients(wanted, first, limit + 1)
            before = first + len(found)
            if first and not found:
                before = await self._broker.recorded.count_clients(wanted)
        if len(found) <= limit and wanted.connected is not False:
            skipped = max(first - before, 0)
            async for attached in self._attached(wanted, over):
                skipped -= 1
                if skipped < 0:
                    found.append(attached)
                if len(found) > limit:
                    break
        rows = await self._broker.chores.outcome(
            self._rows(found[:limit], self._broker.log.inquire(LIST_EFFORT_MAXIMUM))
        )
        count = first + len(found) if found or not first else None
        if len(found) > limit:
            is_all = wanted == EVERYBODY and not over.chooses
            count = self._count() if is_all else None
        return NumberedPage(rows, len(found) > limit, count)

    async def show(self, client_identifier: str) -> ClientSeen | None:
        """One client."""
        session = self._sessions.attached(client_identifier) or self._sessions.on_record(
            client_identifier
        )
        if session is None:
            return None
        inquiry = self._broker.log.inquire(EXACT)
        (row,) = await self._broker.chores.outcome(self._rows([session], inquiry))
        return row

    async def subscriptions(
        self, wanted: SubscriptionsWanted, first: int, limit: int
    ) -> NumberedPage[SubscriptionSeen]:
        """Subscriptions with whose they are, without the `first` ones."""
        recorded = self._broker.recorded
        rows = await recorded.each_subscription(wanted, first, limit + 1)
        before = first + len(rows)
        if first and not rows:
            before = await recorded.count_subscriptions(wanted)
        found = []
        for name, subscription in rows:
            session = self._session(name)
            if session is not None:
                found.append(_seen(session, subscription))
        if len(rows) <= limit:
            skipped = max(first - before, 0)
            chosen = ClientsWanted(
                names=(wanted.client_identifier,) if wanted.client_identifier else ()
            )
            async for attached in self._attached(chosen, ConnectionsWanted()):
                name = attached.session.client_identifier
                fitting = [item for item in attached.subscriptions if wanted.fits(name, item)]
                found += [_seen(attached.session, item) for item in fitting[skipped:]]
                skipped = max(skipped - len(fitting), 0)
                if len(found) > limit:
                    break
        has_next = len(rows) > limit or len(found) > limit
        count = None if has_next or (first and not found) else first + len(found)
        return NumberedPage(found[:limit], has_next, count)

    def subscriptions_of(self, client_identifier: str) -> list[SubscriptionSeen] | None:
        """What one client subscribes to."""
        session = self._session(client_identifier)
        if session is None:
            return None
        attached = self._sessions.attached(client_identifier)
        if attached is None:
            reads = self._sessions.subscriptions(session)
        else:
            reads = attached.subscriptions
        return [_seen(session, item) for item in reads if item.in_force]

    def _session(self, client_identifier: str) -> Session | None:
        attached = self._sessions.attached(client_identifier)
        if attached is not None:
            return attached.session
        return self._sessions.on_record(client_identifier)

    def _count(self) -> int:
        numbers = self._broker.numbers()
        transient = numbers.sessions_attached - numbers.sessions_recorded_attached
        return numbers.sessions_recorded + transient

    async def _attached(
        self, wanted: ClientsWanted, over: ConnectionsWanted
    ) -> AsyncIterator[AttachedSeen]:
        """Clients that are connected, in the order in which they came: those that are in no record,
        or all of them where connections are chosen."""
        names = iter(self._sessions.connected())
        while some := list(islice(names, CLIENTS_AT_ONCE)):
            for name in some:
                attached = self._sessions.attached(name)
                if attached is None or (attached.recorded and not over.chooses):
                    continue
                if wanted.fits(attached.session) and self._is_over(attached, over):
                    yield attached
            await asyncio.sleep(0)

    def _is_over(self, attached: AttachedSeen, over: ConnectionsWanted) -> bool:
        connection = self._broker.connections.of(attached.connection)
        return not over.chooses or (connection is not None and over.fits(connection))

    def _rows(
        self, found: list[Session | AttachedSeen], inquiry: Inquiry
    ) -> Pieces[list[ClientSeen]]:
        rows = []
        for each in found:
            rows.append((yield from self._row(each, inquiry)))
            yield from inquiry.rest(SESSION_EFFORT)
        return rows

    def _row(self, found: Session | AttachedSeen, inquiry: Inquiry) -> Pieces[ClientSeen]:
        session = found.session if isinstance(found, AttachedSeen) else found
        # It may have come or gone since it was found.
        attached = self._sessions.attached(session.client_identifier)
        session = session if attached is None else attached.session
        if attached is None:
            reads = self._sessions.subscriptions(session)
        else:
            reads = attached.subscriptions
        if attached is not None and attached.queue is not None:
            length = yield from self._lengths.attached(inquiry, attached)
        else:
            length = yield from self._lengths.at_rest(inquiry, session, reads)
        connection = None
        if attached is not None:
            connection = self._broker.connections.of(attached.connection)
        return ClientSeen(
            session=session,
            connection=connection,
            keep_alive_s=None if attached is None else attached.keep_alive_s,
            receive_maximum=None if attached is None else attached.receive_maximum,
            subscriptions=sum(item.in_force for item in reads),
            length=length,
            is_expired=attached is None and session.expired(self._broker.now_us()),
            environment=self._broker.environments.of_session(session),
        )


def _seen(session: Session, subscription: Subscription) -> SubscriptionSeen:
    return SubscriptionSeen(session.client_identifier, session.persistent, subscription)


def host_and_port(peer: str) -> tuple[str, int | None]:
    """The two of a peer; one that came over a Unix socket has no port."""
    host, colon, port = peer.rpartition(":")
    if not colon or not port.isdecimal():
        return peer, None
    return host.removeprefix("[").removesuffix("]"), int(port)
