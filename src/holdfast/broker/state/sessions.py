"""Sessions as they are seen from outside: attached to a connection, or as they are on record."""

from dataclasses import dataclass
from heapq import nsmallest

from holdfast.broker.mqtt.attached import Attached, is_durable
from holdfast.broker.mqtt.session import Session
from holdfast.broker.mqtt.session_records import parse_session
from holdfast.broker.mqtt.sessions import Sessions
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.tables import Table
from holdfast.core.subscription import Subscription


@dataclass(frozen=True, slots=True)
class AttachedSeen:
    """A session and the connection that holds it."""

    session: Session
    subscriptions: tuple[Subscription, ...]
    connection: int
    queue: int | None
    """Its queue, once something can be delivered to it."""
    receive_maximum: int
    keep_alive_s: int

    @property
    def recorded(self) -> bool:
        """False if it ends with its connection, and is in no record."""
        return is_durable(self.session)


class SessionsState:
    """Looks at sessions, one or some at a time."""

    def __init__(self, sessions: Sessions, records: ControlRecords) -> None:
        self._sessions = sessions
        self._records = records

    def on(self, connection: int) -> AttachedSeen | None:
        """The session that a connection holds."""
        return _seen(self._sessions.of(connection))

    def client_on(self, connection: int) -> str:
        """Whose session that is; empty if it holds none any more."""
        attached = self._sessions.of(connection)
        return "" if attached is None else attached.session.client_identifier

    def queue_on(self, connection: int) -> int | None:
        """The queue of that session."""
        attached = self._sessions.of(connection)
        return None if attached is None else attached.queue

    def attached(self, client_identifier: str) -> AttachedSeen | None:
        """The session of a client that is connected."""
        return _seen(self._sessions.attached(client_identifier))

    def on_record(self, client_identifier: str) -> Session | None:
        """The session of a client as it is on record; none if it ends with its connection."""
        return self._sessions.on_record(client_identifier)

    def at_rest(self, party: int) -> Session | None:
        """The session of a party, if it is on no connection."""
        name = self._sessions.name_of(party)
        return None if self._sessions.attached(name) else self._sessions.on_record(name)

    def subscriptions(self, session: Session) -> tuple[Subscription, ...]:
        """What a session on record subscribes to."""
        return self._sessions.subscriptions(session)

    def recorded_after(self, client_identifier: str, limit: int) -> list[Session]:
        """Sessions as their records have them, in the order of their client identifiers; as far as
        a view that may be behind tells of them."""
        after = client_identifier.encode()
        rows = self._records.refresh().rows(Table.SESSIONS, after, limit)
        return [parse_session(value) for _, value in rows]

    def transient(
        self, after: str, search: str, user_name: str, limit: int
    ) -> dict[str, AttachedSeen]:
        """The first of those that end with their connections, and are in no record."""
        wanted = {
            item.session.client_identifier: item
            for item in self._sessions.all_attached()
            if not is_durable(item.session)
            and item.session.client_identifier > after
            and search in item.session.client_identifier
            and user_name in ("", item.session.user_name)
        }
        found = {name: _seen(wanted[name]) for name in nsmallest(limit, wanted)}
        return {name: seen for name, seen in found.items() if seen is not None}

    def connected(self) -> list[str]:
        """The client identifiers of all who are connected, in the order in which they came."""
        return self._sessions.clients()

    def persistent_devices(self) -> int:
        """How many DEVICE clients with a session that is kept are connected."""
        attached = (item.session for item in self._sessions.all_attached())
        return sum(session.persistent and not session.application for session in attached)


def _seen(attached: Attached | None) -> AttachedSeen | None:
    if attached is None:
        return None
    return AttachedSeen(
        session=attached.session,
        subscriptions=attached.subscriptions,
        connection=attached.connection,
        queue=attached.queue,
        receive_maximum=attached.opening.terms.receive_maximum,
        keep_alive_s=attached.opening.terms.keep_alive_s,
    )
