"""Wills on a record of their own: of sessions that have ended, or that end with their connection.

Owns: the rows of WILLS. Never: decides when a Will is due.

Invariants:
1. A session that has a Will and no record has a row here from its CONNECT until its Will is in the
   log, or is not published any more. Nobody waits until that row is durable, so the Will of who
   connected in the last second before a crash may be lost.
2. A client without a Will costs nothing here.
"""

from collections.abc import Callable, Iterator

from holdfast.broker.chores import Pieces
from holdfast.broker.delivery.entrance import Publisher
from holdfast.broker.mqtt.attached import Attached
from holdfast.broker.mqtt.session import Session
from holdfast.broker.mqtt.session_records import format_will, parse_will_row, will_key
from holdfast.broker.mqtt.wills import DueWill, Wills
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.tables import WILL_OF_CONNECTED, Table
from holdfast.kernel import key_slot

SWEEP_WILLS_MAXIMUM = 100
"""Wills found due in one sweep; the next one goes on."""
PIECE_WILLS_MAXIMUM = 20
"""Wills that are read and owed in one piece."""


def publisher(client_identifier: str, party: int) -> Publisher:
    """A client as the publisher of its Will."""
    return Publisher(party, key_slot(client_identifier.encode()))


def due_will(session: Session) -> DueWill | None:
    """The Will of a session at rest, due when its record says so; `None` if it has none."""
    if session.will is None or session.will_due_at_us is None:
        return None
    client = session.client_identifier
    return DueWill(session.will, client, session.will_due_at_us, publisher(client, session.party))


class WillRecords:
    """Puts Wills on record and takes them off."""

    def __init__(self, records: ControlRecords, wills: Wills) -> None:
        self._records = records
        self._wills = wills

    def owe_apart(self, session: Session, now_us: int) -> None:
        """The session's record is about to forget its Will, which gets a record of its own until it
        is in the log."""
        if session.will is not None and session.will_due_at_us is not None:
            # Due now, if it was not before: Wills that have to wait go out in the order of these.
            client, due_at_us = session.client_identifier, min(session.will_due_at_us, now_us)
            while self._records.get(Table.WILLS, will_key(client, due_at_us)):
                due_at_us += 1
            value = format_will(session.will)
            self._records.put(Table.WILLS, will_key(client, due_at_us), value, now_us)
            by = publisher(client, session.party)
            self._wills.owe(DueWill(session.will, client, due_at_us, by))

    def put_connected(self, attached: Attached, now_us: int) -> None:
        """Its session has no record, and may have a Will, which a crash would make due."""
        client, will = attached.session.client_identifier, attached.session.will
        if will is None:
            return
        number = WILL_OF_CONNECTED | now_us
        while self._records.get(Table.WILLS, will_key(client, number)):
            number += 1
        self._records.put(Table.WILLS, will_key(client, number), format_will(will), now_us)
        attached.will_number = number

    def end_connected(self, attached: Attached, due_at_us: int | None, now_us: int) -> None:
        """Its connection has ended, and its session with it: its Will is due, or (`None`) is not
        published."""
        session, number = attached.session, attached.will_number
        if number is None:
            return
        client, attached.will_number = session.client_identifier, None
        if session.will is None or due_at_us is None:
            self.take_off(client, number, now_us)
        else:
            by = publisher(client, session.party)
            self._wills.owe(DueWill(session.will, client, due_at_us, by, number))

    def owe_left(
        self,
        number_of: Callable[[str], int | None],
        party_of: Callable[[str], int],
        clock_us: Callable[[], int],
    ) -> Pieces[None]:
        """Wills of those who were connected when the broker died are due, in pieces. `number_of`
        tells which one is a client's that is connected now."""
        after = b""
        while rows := self._records.refresh().wills_of_connected(after, PIECE_WILLS_MAXIMUM):
            after, _ = rows[-1]
            for key, value in rows:
                will, client, number = parse_will_row(key, value)
                # The view may be behind.
                if number != number_of(client) and self._records.get(Table.WILLS, key):
                    by = publisher(client, party_of(client))
                    self._wills.owe(DueWill(will, client, clock_us(), by, number))
            yield self._wills.is_near

    def take_off(self, client_identifier: str, due_at_us: int, now_us: int) -> None:
        """The Will is in the log."""
        key = will_key(client_identifier, due_at_us)
        if self._records.get(Table.WILLS, key):
            self._records.put(Table.WILLS, key, b"", now_us)

    def due(self, party_of: Callable[[str], int]) -> Iterator[DueWill]:
        """Those on record, the earliest first, as far as a view that may be behind tells of them.
        They count as published by whoever their client is now."""
        for key, value in self._records.refresh().wills_of_ended(SWEEP_WILLS_MAXIMUM):
            if self._records.get(Table.WILLS, key):
                will, client, due_at_us = parse_will_row(key, value)
                by = publisher(client, party_of(client))
                yield DueWill(will, client, due_at_us, by)
