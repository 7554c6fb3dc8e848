"""Wills on a record of their own: those of sessions that have ended.

Owns: the rows of WILLS. Never: decides when a Will is due.
"""

from collections.abc import Callable, Iterator

from holdfast.broker.dispatch.loopback import Publisher
from holdfast.broker.dispatch.wills import DueWill, Wills
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.tables import (
    Table,
    format_will,
    parse_will,
    parse_will_key,
    will_key,
)
from holdfast.kernel import key_slot
from holdfast.protocols.mqtt.session import Session

SWEEP_WILLS_MAXIMUM = 100
"""Wills found due in one sweep; the next one goes on."""


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
                client, due_at_us = parse_will_key(key)
                yield DueWill(parse_will(value), client, due_at_us, publisher(client, party_of(client)))
