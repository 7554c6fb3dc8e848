"""What a run looks at inside the broker, as events.

Owns: the few places where the simulation reads the broker's own state. Never: judges, or changes
anything.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from holdfast.broker.chores import at_once
from holdfast.broker.mqtt.session import Session
from holdfast.broker.mqtt.session_records import parse_session
from holdfast.broker.server import Server
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.tables import Loss, Table, parse_loss, parse_subscriptions
from holdfast.core.subscription import Subscription
from holdfast.kernel import LIMITS, describe_state
from tests.equipment.history import (
    Event,
    GivenUp,
    Held,
    History,
    Ledger,
    Mark,
    Opened,
    Recovered,
    Sent,
)
from tests.equipment.packs import GIVE_UPS

LASTING_S = 86_400

LONGEST_EXPIRY_S = 120.0
"""Longer than the longest Session Expiry Interval below `LASTING_S`, and the drift of a clock."""

LEDGER_ROWS = 100_000


def sent(history: History) -> int:
    """How many messages were sent."""
    return sum(1 for event in history.events if isinstance(event, Sent))


def retained_topics(*histories: History) -> set[str]:
    """Topics on which somebody has published with the RETAIN flag."""
    return {
        event.message.topic
        for history in histories
        for event in history.events
        if isinstance(event, Sent) and event.message.retain
    }


def tell_give_ups(server: Server, note: Callable[[Event], None]) -> None:
    """Notes whenever the broker gives up what an APPLICATION client has not acknowledged."""
    losses = server.stages.losses
    add = losses.add

    def add_and_tell(loss: Loss) -> None:
        if loss.reason in GIVE_UPS:
            note(GivenUp(loss.client_identifier))
        add(loss)

    losses.add = add_and_tell  # type: ignore[method-assign]


def recovered(server: Server, topics: set[str]) -> Recovered:
    """Control state as it is when a broker has begun."""
    subscriptions: dict[str, dict[str, int]] = {}
    queued: dict[str, int] = {}
    log = server.stages.kernel.log
    for session_value, subscriptions_value in server.records.catch_up().sessions():
        session = parse_session(session_value)
        items = parse_subscriptions(subscriptions_value)
        subscriptions[session.client_identifier] = {
            item.topic_filter: item.qos for item in items if item.in_force
        }
        queued[session.client_identifier] = _queued(server, session, items)
    retained = frozenset(topic for topic in topics if log.retained(topic.encode(), 0, 1)[0])
    return Recovered(subscriptions, queued, retained)


def _queued(server: Server, session: Session, items: tuple[Subscription, ...]) -> int:
    """What a session at rest still has to get: from its mark, less what is acknowledged above."""
    log = server.stages.kernel.log
    state = log.delivery_state(session.party)
    told = describe_state(state) if state else {"mark": session.created_at_offset}
    wanted = [item for item in items if not item.shared]
    inquiry = Inquiry(log)
    begin, count, end = told["mark"], 0, log.end_offset()
    for first, after in [*told.get("acknowledged", ()), (end, end)]:
        if first > begin:
            count += at_once(inquiry.count(wanted, session.party, begin, first))
        begin = max(begin, after)
    return count


def amounts(server: Server, life: int) -> Iterator[Event]:
    """Where each attached queue has got to, and how much the broker holds."""
    stages = server.stages
    deliveries, outboxes = stages.kernel.deliveries, stages.kernel.outboxes
    waiting_maximum = LIMITS["outbox_bytes_maximum"] + LIMITS["allot_bytes_maximum"]
    for party, queue, connection in deliveries.queues():
        # A crash forgets up to a second of acknowledgements, so each life counts by itself.
        yield Mark(f"party {party} in life {life}", deliveries.mark(queue))
        waiting = outboxes.waiting_bytes(connection)
        yield Held(f"bytes to connection {connection}", waiting, waiting_maximum)


def leavings(server: Server, history: History) -> Iterator[Event]:
    """When everybody has gone: the ledger, and what is left of sessions that must have ended."""
    view = server.records.catch_up()
    counts: Counter[tuple[str, str]] = Counter()
    for _key, value in view.losses(LEDGER_ROWS):
        loss = parse_loss(value)
        counts[loss.client_identifier, loss.reason] += loss.count
    for (client, reason), count in counts.items():
        yield Ledger(client, reason, count)
    lasting = {
        event.client: event.expiry_s >= LASTING_S
        for event in history.events
        if isinstance(event, Opened)
    }
    for session_value, _ in view.sessions():
        client = parse_session(session_value).client_identifier
        yield Held(f"sessions of {client}", 1, 1 if lasting.get(client, True) else 0)
    sessions, memberships = view.session_count(), view.count(Table.SUBSCRIPTIONS)
    yield Held("sets of memberships", memberships, sessions)
    own = view.count(Table.QUEUES) - len(view.shared_queues())
    yield Held("queues of sessions", own, sessions)
    yield Held("connections", len(server.stages.connections), 0)
