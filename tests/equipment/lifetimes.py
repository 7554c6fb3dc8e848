"""Judges of what a moment in time decides: Wills, Message Expiry, Session Expiry.

Owns: what "when due" and "after its expiry" mean, as far as clients can tell.
Never: asks the broker.

A client knows when it last heard of the broker and when it noticed the end of a connection; the
broker noticed some time between, or up to one and a half Keep Alives later. Where that interval, or
a restart (after which the wall clock may be another), leaves two answers open, both are right.
"""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from tests.equipment.history import (
    Acknowledged,
    Closed,
    Connecting,
    History,
    Ledger,
    LifeEnded,
    Message,
    Opened,
    Received,
    Sent,
)

SLACK_S = 12.0
"""Longer than anything is on its way, and than a silent connection is kept."""

SETTLES_S = 5.0
"""What was appended is durable after this time."""

DRIFT = 0.06
"""Clocks of runs are wrong by less than this part."""

NEVER_PUBLISHED = "was never published"


@dataclass(slots=True)
class _Connection:
    """One connection of one client, and what became of it."""

    terms: Opened
    opened_s: float
    """When its CONNECT was sent."""
    closed: Closed | None = None
    closed_s: float = float("inf")
    next: Opened | None = None
    next_s: float = float("inf")
    unheard_before: int = 0
    """CONNECTs between the connection before and this one, less the one that made it."""
    attempts: int = 0
    """CONNECTs after it, the one that made the next connection included."""
    will_received_s: list[float] = field(default_factory=list)


class _Lives:
    """When lives of the broker ended, and the end of the history."""

    def __init__(self, history: History) -> None:
        timed = list(history.timed())
        self._ends_s = [at_s for at_s, event in timed if isinstance(event, LifeEnded)]
        self.end_s = timed[-1][0] if timed else 0.0

    def one_ended(self, from_s: float, to_s: float) -> bool:
        place = bisect_left(self._ends_s, from_s)
        return place < len(self._ends_s) and self._ends_s[place] <= to_s


def _connections(history: History) -> list[_Connection]:
    """All connections in the order of their beginnings."""
    found: list[_Connection] = []
    present: dict[str, _Connection] = {}
    by_will: dict[Message, _Connection] = {}
    attempts: Counter[str] = Counter()
    asked_s: dict[str, float] = {}
    for at_s, event in history.timed():
        match event:
            case Opened(client):
                # The broker's life may have ended while CONNACK was on its way.
                since_s = asked_s.get(client, at_s)
                connection = _Connection(event, since_s, unheard_before=attempts[client] - 1)
                attempts[client] = 0
                if client in present:
                    present[client].next, present[client].next_s = event, at_s
                present[client] = connection
                found.append(connection)
                if event.will is not None:
                    by_will[event.will] = connection
            case Connecting(client):
                asked_s[client] = at_s
                attempts[client] += 1
                if client in present:
                    present[client].attempts += 1
            case Closed(client) if client in present:
                present[client].closed, present[client].closed_s = event, at_s
            case Received(_, message, _, dup) if message in by_will:
                # A repeated delivery at QoS 1 is no second Will.
                if not dup or not by_will[message].will_received_s:
                    by_will[message].will_received_s.append(at_s)
            case _:
                pass
    return found


def check_wills_are_published_when_due(history: History) -> list[str]:
    """Was each Will published once, when it was due and not before, and never after a normal
    DISCONNECT or where its client came back in time?"""
    lives = _Lives(history)
    violations: list[str] = []
    unseen: list[str] = []
    for connection in _connections(history):
        if connection.terms.will is not None:
            fault = _fault_of_will(connection, lives)
            found = unseen if fault == NEVER_PUBLISHED else violations
            if fault:
                found.append(f"the Will {connection.terms.will} {fault}")
    # Whoever watches may have lost as many as the ledger says.
    return violations + (unseen if len(unseen) > _lost_by_watchers(history) else [])


def _lost_by_watchers(history: History) -> int:
    """The losses, by the ledger, of those who subscribe to Wills."""
    wills = {connection.terms.will for connection in _connections(history)}
    watchers = {
        event.subscriber
        for event in history.events
        if isinstance(event, Received) and event.message in wills
    }
    return sum(
        event.count
        for event in history.events
        if isinstance(event, Ledger) and event.subscriber in watchers
    )


def _fault_of_will(connection: _Connection, lives: _Lives) -> str:
    """What is wrong with what became of a Will; empty if nothing is."""
    received = connection.will_received_s
    closed = connection.closed
    if closed is None:
        return "was published while its client was connected" if received else ""
    if closed.said:
        # A crash may forget a DISCONNECT that nobody waits for.
        forgotten = lives.one_ended(closed.heard_s, connection.closed_s + SETTLES_S)
        return "was published after DISCONNECT" if received and not forgotten else ""
    repeated = received and lives.one_ended(connection.opened_s, received[-1])
    if len(received) > 1 and not repeated:
        return f"was published {len(received)} times"
    if received and received[0] < _due_from_s(connection, lives):
        return f"was published at {received[0]:.1f}, before it was due"
    if received and _is_cancelled(connection, lives):
        return "was published although its client came back in time"
    if not received and not closed.leaving and _is_owed(connection, lives):
        return NEVER_PUBLISHED
    return ""


def _delay_s(terms: Opened) -> float:
    return min(terms.will_delay_s, terms.expiry_s)


def _due_from_s(connection: _Connection, lives: _Lives) -> float:
    """The earliest moment at which the Will may have been due."""
    closed = connection.closed
    assert closed is not None
    from_s = closed.heard_s - SLACK_S
    returned = connection.next
    discarded = returned is not None and not returned.present
    if discarded or lives.one_ended(from_s, connection.will_received_s[0]):
        return from_s
    return from_s + _delay_s(connection.terms) * (1 - DRIFT)


def _is_cancelled(connection: _Connection, lives: _Lives) -> bool:
    closed, returned = connection.closed, connection.next
    assert closed is not None
    if returned is None or not returned.present:
        return False
    if lives.one_ended(closed.heard_s - SLACK_S, connection.next_s):
        return False
    within_s = _delay_s(connection.terms) * (1 - DRIFT) - SLACK_S
    return connection.next_s < closed.heard_s + within_s


def _is_owed(connection: _Connection, lives: _Lives) -> bool:
    terms = connection.terms
    if not terms.expiry_s and lives.one_ended(connection.opened_s, connection.opened_s + SETTLES_S):
        return False  # It has no record but its Will's, which nobody waits for.
    if not terms.will_delay_s:
        due_s = connection.closed_s + 2 * SLACK_S
    elif connection.next is None or connection.next.present:
        due_s = connection.closed_s + _delay_s(terms) * (1 + DRIFT) + 2 * SLACK_S
    else:
        due_s = connection.next_s + 2 * SLACK_S
    unheard = connection.attempts - (connection.next is not None)
    if due_s > lives.end_s or (terms.will_delay_s and unheard):
        return False  # Its time has not come, or its client may have come back unheard.
    if terms.will_delay_s and lives.one_ended(connection.opened_s, due_s):
        # The delay counts anew from the restart.
        return connection.next is None and lives.end_s > due_s + 100
    return not terms.will_delay_s or due_s < connection.next_s or not connection.next


def check_messages_expire(history: History) -> list[str]:
    """Was no message sent on after its Message Expiry Interval, and did the others tell what was
    left of it?"""
    lives = _Lives(history)
    sent_s: dict[Message, float] = {}
    acknowledged_s: dict[Message, float] = {}
    tells: set[str] = set()
    violations = []
    for at_s, event in history.timed():
        match event:
            case Opened(client) if event.protocol_version == 5:
                tells.add(client)
            case Sent(message):
                sent_s[message] = at_s
            case Acknowledged(message):
                acknowledged_s.setdefault(message, at_s)
            case Received(subscriber, message) if message.expiry_s:
                left_s = event.expires_in_s
                if subscriber in tells and (left_s is None or left_s > message.expiry_s):
                    violations.append(f"{subscriber} got {message} with {left_s} s left")
                ended_s = acknowledged_s.get(message, at_s) + message.expiry_s * (1 + DRIFT)
                # What was on its way in time is sent again however long that takes; and after a
                # restart the clock may be another.
                if event.dup or lives.one_ended(sent_s.get(message, at_s), at_s):
                    continue
                if at_s > ended_s + SLACK_S:
                    violations.append(f"{subscriber} got {message} at {at_s:.1f}: it had expired")
            case _:
                pass
    return violations


def check_sessions_expire(history: History) -> list[str]:
    """Was each session there until its Session Expiry Interval had passed, and then no more?"""
    lives = _Lives(history)
    violations = []
    known: set[str] = set()
    for connection in _connections(history):
        # A CONNECT of which no answer came may have made a session, or kept it.
        heard = connection.unheard_before <= 0
        if connection.terms.client not in known and connection.terms.present and heard:
            violations.append(f"{connection.terms.client} began with a session")
        known.add(connection.terms.client)
        returned, closed = connection.next, connection.closed
        if returned is None or closed is None:
            continue
        expiry_s, absent_s = connection.terms.expiry_s, connection.next_s - closed.heard_s
        name = f"the session of {returned.client}, gone for {absent_s:.1f} s of {expiry_s}"
        if returned.clean_start:
            if returned.present:
                violations.append(f"{name}, was there after a clean start")
        elif lives.one_ended(closed.heard_s - SLACK_S, connection.next_s):
            continue
        elif returned.present:
            gone_s = connection.next_s - connection.closed_s
            if connection.attempts <= 1 and gone_s > expiry_s * (1 + DRIFT) + SLACK_S:
                violations.append(f"{name}, was still there")
        elif absent_s + SLACK_S < expiry_s * (1 - DRIFT):
            violations.append(f"{name}, was not there any more")
    return violations
