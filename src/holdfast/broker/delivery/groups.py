"""Groups of shared subscriptions: the group owns the backlog, members take from it.

Owns: which groups there are, who subscribes to them, who of those is attached, and the groups'
control records. Never: chooses who gets a message; the kernel does, as the group's strategy says
(`selection`).

Invariants:
1. A group is there while a session subscribes to it, attached or at rest, and for
   `shared.group_expiry_s` after that.
2. Its queue is in the routes only while a member is attached, or has messages of it in flight;
   else the queue is implied, like a session's.
3. A session's part ends with its subscription or the session, whatever ends those.

Flow: sessions -> here -> routes, dispatch, outboxes.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from holdfast.broker.chores import Pieces, at_once
from holdfast.broker.delivery.group_limits import (
    PreparedGroup,
    cut_group,
    group_at_rest,
    group_kept_from,
)
from holdfast.broker.delivery.losses import Losses, loss_of
from holdfast.broker.delivery.owners import Member
from holdfast.broker.delivery.parties import Parties
from holdfast.broker.delivery.queue_names import Owner, QueueNames
from holdfast.broker.delivery.queues import put_cut
from holdfast.broker.delivery.redrives import Redrives, Target
from holdfast.broker.delivery.selection import PART_SLOTS, Strategy, plan_owners, strategy_for
from holdfast.broker.stages import KernelStages
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.queue_retention import UNLIMITED_MESSAGES
from holdfast.broker.store.tables import (
    DELIVERY_STATE_REMOVED,
    SharedGroup,
    Table,
    format_group,
    parse_group,
    parse_subscriptions,
    party_key,
)
from holdfast.core.config import Config
from holdfast.core.limits import SHARED_GROUPS_MAXIMUM, SHARED_MEMBERS_MAXIMUM
from holdfast.core.loss_reason import LossReason
from holdfast.core.share_name import parse_shared
from holdfast.core.subscription import Subscription, shared_of
from holdfast.core.units import SECOND_US
from holdfast.kernel import GROUP_CONNECTION, describe_state, new_state, state_mark

log = logging.getLogger(__name__)

HELD_KEYS_SHOWN_MAXIMUM = 100
"""Keys that are shown of one group: those held longest are the ones that somebody looks for."""
SWEEP_GROUPS_MAXIMUM = 500
"""Groups that one sweep looks at, of each kind that it looks at; of ten thousand each has its turn
every twenty seconds."""
QOS_MAXIMUM = 2
"""A group reads whatever is stored; each member's own maximum decides how it is sent."""


@dataclass(slots=True)
class _Group:
    record: SharedGroup
    strategy: Strategy
    subscribers: set[int] = field(default_factory=set)
    """Parties of all sessions that subscribe to it."""
    attached: dict[int, Subscription] = field(default_factory=dict)
    """Those that are attached, by connection."""
    queue: int | None = None
    """The kernel's queue, while there is one."""
    prepared: PreparedGroup | None = None
    """What its queue comes to when it is opened, if somebody who comes back has had it counted."""
    owners: list[int] = field(default_factory=list)
    """Whose keys are whose, by connection, where the strategy is by key."""


class Groups:
    """All groups of the broker."""

    def __init__(
        self,
        config: Config,
        kernel: KernelStages,
        records: ControlRecords,
        losses: Losses,
        parties: Parties,
        names: QueueNames,
        redrives: Redrives,
    ) -> None:
        self._records = records
        self._losses = losses
        self._parties = parties
        self._names = names
        self._redrives = redrives
        self._log = kernel.log
        self._routes = kernel.routes
        self._dispatch = kernel.dispatch
        self._outboxes = kernel.outboxes
        self._groups: dict[str, _Group] = {}
        self._by_party: dict[int, _Group] = {}
        self._by_connection: dict[int, list[_Group]] = {}
        self._subscriptions = 0
        self._emptied: dict[str, None] = {}
        """Groups that are open without a member, or end some time; those first that no sweep has
        looked at for longest."""
        self._by_key: dict[str, _Group] = {}
        """Those whose strategy is by key."""
        self._keyed: list[_Group] = []
        """Groups whose keys this round has still to count."""
        self._keys_counted = 0
        self.by_strategy: Counter[str] = Counter()
        """How many groups have a strategy of which kind."""
        self.waiting_for_keys = 0
        """Messages of all groups that waited because of their key, as of the last round."""
        self.reconfigure(config)

    def reconfigure(self, config: Config) -> None:
        """Holds to these limits whatever rests or is attached from now on; each group has the
        strategy that it should have."""
        self._config = config
        self.by_strategy.clear()
        self._by_key.clear()
        for group in self._groups.values():
            strategy = self._strategy(group.record)
            if strategy != group.strategy:
                group.strategy = strategy
                self._share(group)
            self._classify(group)

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, name: str) -> bool:
        return name in self._groups

    def subscriptions(self) -> int:
        """How many sessions subscribe to groups, each once for each of its groups."""
        return self._subscriptions

    def name_of(self, party: int) -> str:
        """The name of a group's party; empty if it is none."""
        group = self._by_party.get(party)
        return "" if group is None else group.record.name

    def attached_mark(self, party: int) -> int | None:
        """Below which offset all of an attached group is acknowledged; `None` for one at rest."""
        group = self._by_party.get(party)
        return None if group is None or group.queue is None else self._dispatch.mark(group.queue)

    def has_room(self, name: str, party: int, others: int) -> bool:
        """True if the session may join, while it joins so many others."""
        group = self._groups.get(name)
        if group is None:
            return len(self._groups) + others < SHARED_GROUPS_MAXIMUM
        return party in group.subscribers or len(group.subscribers) < SHARED_MEMBERS_MAXIMUM

    def attach(
        self, connection: int, member: Member, subscriptions: Iterable[Subscription], now_us: int
    ) -> None:
        """The attached session takes its turn on these terms, from now on."""
        for subscription in subscriptions:
            group = self._subscribed(subscription, member.party, now_us)
            if member.application and group.record.queue_name is None:
                self._name(group, now_us)
            if group.queue is None:
                self._open(group, now_us)
            queue = group.queue
            assert queue is not None
            self._dispatch.join(
                queue,
                connection,
                qos=subscription.qos,
                retain_as_published=subscription.retain_as_published,
                identifier=subscription.identifier,
            )
            if connection not in group.attached:
                self._by_connection.setdefault(connection, []).append(group)
            group.attached[connection] = subscription
            self._redrives.join(group.record.party, connection, subscription)
            self._share(group)

    def prepare(self, name: str, now_us: int) -> Pieces[None]:
        """Somebody who takes from it is about to be attached: what its queue has to lose is found
        out, if it is at rest."""
        group = self._groups.get(name)
        if group is None or group.queue is not None:
            return
        prepared = yield from cut_group(self._log, self._config, group.record, now_us)
        if group.queue is None:
            group.prepared = prepared

    def detach(self, connection: int, now_us: int) -> None:
        """The session has left its connection, and with that (`Dispatch.detach`) the kernel's
        queues; it goes on subscribing."""
        for group in self._by_connection.pop(connection, []):
            del group.attached[connection]
            self._share(group)
            self._rest(group, now_us)

    def leave(self, connection: int | None, party: int, names: Iterable[str], now_us: int) -> None:
        """The session subscribes to these no more."""
        for name in names:
            group = self._groups.get(name)
            if group is None:
                continue
            self._subscriptions -= party in group.subscribers
            group.subscribers.discard(party)
            if connection in group.attached:
                assert connection is not None
                assert group.queue is not None
                self._dispatch.leave(group.queue, connection)
                self._redrives.leave(group.record.party, connection)
                del group.attached[connection]
                self._by_connection[connection].remove(group)
                self._share(group)
            if group.subscribers:
                self._rest(group, now_us)
            else:
                self._empty(group, now_us)

    def party_of(self, name: str) -> int:
        """The party of a group."""
        return self._groups[name].record.party

    def open_queues(self) -> list[tuple[int, int, int]]:
        """Party, queue and GROUP_CONNECTION of each group whose queue is attached."""
        return [
            (group.record.party, group.queue, GROUP_CONNECTION)
            for group in self._groups.values()
            if group.queue is not None
        ]

    def queue_of(self, party: int) -> int | None:
        """The attached queue of a group."""
        group = self._by_party.get(party)
        return None if group is None else group.queue

    def watched(
        self, party: int
    ) -> tuple[str, int, int, tuple[Subscription, ...], tuple[int, ...]] | None:
        """Of a group whose queue is attached: name, party, queue, what it reads, and the
        connections that take from it."""
        group = self._by_party.get(party)
        if group is None or group.queue is None:
            return None
        record = group.record
        return record.name, party, group.queue, record.reads, tuple(group.attached)

    def target(self, party: int) -> Target | None:
        """The group of this party as one whose losses can be driven again."""
        group = self._by_party.get(party)
        return None if group is None else Target(party, group.record.reads, {**group.attached})

    def recover(self, now_us: int) -> None:
        """Finds the groups on record and the sessions that subscribe to them."""
        view = self._records.refresh()
        for value in view.groups():
            record = self._add(parse_group(value)).record
            if record.queue_name is not None:
                self._names.take(record.queue_name, Owner("shared", record.parts.topic_filter))
        for party, subscriptions_value in list(view.sharing_sessions()):
            for subscription in shared_of(parse_subscriptions(subscriptions_value)):
                self._subscribed(subscription, party, now_us)
        for group in list(self._groups.values()):
            if not group.subscribers:
                self._empty(group, now_us)

    def sweep(self, now_us: int) -> None:
        """Groups whose last member has answered for what it had in flight, or whose time has
        come."""
        for name in list(islice(self._emptied, SWEEP_GROUPS_MAXIMUM)):
            group = self._groups[name]
            ends_at_us = group.record.ends_at_us
            # The others come first in the next sweep.
            self._emptied[name] = self._emptied.pop(name)
            if ends_at_us is not None and ends_at_us <= now_us:
                self._end(group, now_us)
            else:
                self._rest(group, now_us)
        self._count_keys()

    def _count_keys(self) -> None:
        for _ in range(min(SWEEP_GROUPS_MAXIMUM, len(self._keyed))):
            group = self._keyed.pop()
            # It may have gone to rest since the round began.
            if group.queue is not None:
                self._keys_counted += self._dispatch.keys(group.queue, 0)[0]
        if not self._keyed:
            self.waiting_for_keys, self._keys_counted = self._keys_counted, 0
            self._keyed = list(self._by_key.values())

    def cursors(self, now_us: int) -> Iterator[Pieces[dict[str, Any]]]:
        """What retention has to keep for groups. It asks in pieces: those that have ended since are
        left out."""
        for name in list(self._groups):
            group = self._groups.get(name)
            if group is not None:
                yield self._cursor(group, now_us)

    def _cursor(self, group: _Group, now_us: int) -> Pieces[dict[str, Any]]:
        keep_from, maximum, mark = 0, self._config.queue_messages_maximum, self._mark(group)
        if group.record.queue_name is not None:
            asked = (self._log, Inquiry(self._log), self._config, group.record)
            keep_from = yield from group_kept_from(*asked, now_us)
            maximum = UNLIMITED_MESSAGES
        return {
            "party": group.record.party,
            "mark": mark,
            "subscriptions": [item.table() for item in group.record.reads],
            "keep_from": keep_from,
            "messages_maximum": maximum,
        }

    def names(self) -> list[str]:
        """All groups by name."""
        return sorted(self._groups)

    def record(self, name: str) -> SharedGroup | None:
        """One group as it is on record."""
        group = self._groups.get(name)
        return None if group is None else group.record

    def of_queue(self, queue_name: str) -> list[SharedGroup]:
        """The groups that read the queue of this name, by their own names."""
        records = (self._groups[name].record for name in self.names())
        return [record for record in records if record.queue_name == queue_name]

    def describe(self, name: str, client_of: Callable[[int], str]) -> dict[str, Any]:
        """One group: its name in parts, its queue's name, its strategy, who is attached, how many
        sessions subscribe, and how many messages are in flight. `client_of` names the
        session on a connection."""
        return self._described(self._groups[name], client_of)

    def shares(self, name: str, client_of: Callable[[int], str]) -> list[dict[str, Any]]:
        """What each attached member has been given since it came, and has in flight."""
        group = self._groups[name]
        if group.queue is None:
            return []
        passed = dict(self._outboxes.shares(group.queue))
        return [
            {
                "client_identifier": client_of(connection),
                "qos": group.attached[connection].qos,
                "delivered": given + passed.get(connection, 0),
                "in_flight": in_flight,
                "key_slots": group.owners.count(connection) * PART_SLOTS,
            }
            for connection, given, in_flight in self._dispatch.members(group.queue)
            if connection in group.attached
        ]

    def keys(self, name: str, client_of: Callable[[int], str]) -> dict[str, Any]:
        """Where the strategy is by key: how many messages wait because of their key, and the keys
        that members hold, those held longest first."""
        group = self._groups[name]
        if group.queue is None:
            return {"waiting": 0, "held": []}
        waiting, held = self._dispatch.keys(group.queue, HELD_KEYS_SHOWN_MAXIMUM)
        return {
            "waiting": waiting,
            "held": [
                {
                    "key_slot": slot,
                    "client_identifier": client_of(connection),
                    "in_flight": in_flight,
                    "waiting": moving,
                    "since_us": since_us,
                    "first_offset": first_offset,
                }
                for slot, connection, in_flight, moving, since_us, first_offset in held
            ],
        }

    def lose_handed(self, member: Member, now_us: int) -> None:
        """A session at rest ends: what groups had handed to it at QoS 2 nobody else may get
        [MQTT-4.8.2-5]."""
        state = self._log.delivery_state(member.party)
        lost = [
            (flight["group"], LossReason.SESSION_ENDED, flight["offset"], flight["offset"] + 1, 1)
            for flight in (describe_state(state)["in_flight"] if state else ())
            if "group" in flight and flight["phase"] == "published"
        ]

        def name_of(party: int) -> str:
            # A re-drive hands over in its own name: there the loss is the client's.
            return self.name_of(party) or member.client_identifier

        self._losses.note(lost, name_of, now_us)

    def _subscribed(self, subscription: Subscription, party: int, now_us: int) -> _Group:
        name = subscription.topic_filter
        group = self._groups.get(name)
        if group is None:
            group = self._create(subscription, now_us)
        elif group.record.ends_at_us is not None:
            self._put(group, replace(group.record, ends_at_us=None), now_us)
        self._subscriptions += party not in group.subscribers
        group.subscribers.add(party)
        return group

    def _create(self, subscription: Subscription, now_us: int) -> _Group:
        parts = parse_shared(subscription.topic_filter)
        assert parts is not None, "planning lets no other pass"
        reads = Subscription(
            topic_filter=parts.topic_filter,
            qos=QOS_MAXIMUM,
            no_local=False,
            retain_as_published=True,
            identifier=None,
            from_offset=subscription.from_offset,
        )
        party = self._parties.durable(now_us)
        record = SharedGroup(name=subscription.topic_filter, party=party, reads=(reads,))
        group = self._add(record)
        self._put(group, record, now_us)
        state = new_state(subscription.from_offset)
        self._records.put_delivery_state(party_key(party), state, now_us)
        return group

    def _name(self, group: _Group, now_us: int) -> None:
        """An APPLICATION client subscribes to it: its queue has a name from now on, if it can."""
        name = self._names.of_filter(group.record.parts.topic_filter)
        if name is None:
            fields = {"group": group.record.name}
            log.warning(
                "shared queue of APPLICATION clients without a name", extra={"fields": fields}
            )
        else:
            self._put(group, replace(group.record, queue_name=name), now_us)

    def _add(self, record: SharedGroup) -> _Group:
        group = _Group(record, self._strategy(record))
        self._groups[record.name] = self._by_party[record.party] = group
        self._classify(group)
        return group

    def _classify(self, group: _Group) -> None:
        self.by_strategy[group.strategy.kind] += 1
        if group.strategy.is_by_key:
            self._by_key[group.record.name] = group

    def _strategy(self, record: SharedGroup) -> Strategy:
        parts = parse_shared(record.name)
        assert parts is not None, "planning lets no other pass"
        return strategy_for(parts.share_name, self._config)

    def _open(self, group: _Group, now_us: int) -> None:
        """The queue is attached and routed to; what is beyond its limit is cut off first."""
        record, prepared = group.record, group.prepared
        group.prepared = None
        if prepared is None or prepared.before != group_at_rest(self._log, record):
            prepared = at_once(cut_group(self._log, self._config, record, now_us))
        queue = prepared.queue
        if prepared.lost is not None:
            (reason, cut), who = prepared.lost, (record.name, record.party)
            self._losses.add(loss_of(*who, reason, cut.ranges, cut.count, now_us))
            put_cut(self._records, self._losses, record.party, queue, now_us)
        if queue.subscriptions != record.reads:
            self._put(group, replace(record, reads=queue.subscriptions), now_us)
        group.queue = self._dispatch.open_group(
            party=record.party,
            owner=record.party,
            state=queue.state,
            subscriptions=[item.table() for item in queue.subscriptions],
            mark=queue.mark,
            end_offset=self._log.end_offset(),
        )
        for item in queue.subscriptions:
            if item.in_force:
                self._routes.subscribe(
                    group.queue,
                    GROUP_CONNECTION,
                    record.party,
                    item.topic_filter.encode(),
                    qos=item.qos,
                    no_local=False,
                    retain_as_published=True,
                    identifier=None,
                )

    def _share(self, group: _Group) -> None:
        """The group has these members now, who share as its strategy says. Messages of QoS 0 are
        not stored; the outboxes give them out."""
        if group.queue is None:
            return
        by_key = group.strategy.is_by_key
        group.owners = plan_owners(group.owners, list(group.attached)) if by_key else []
        selection = group.strategy.compile(group.owners)
        self._dispatch.select(group.queue, selection)
        members = [
            (connection, item.retain_as_published, item.identifier)
            for connection, item in group.attached.items()
        ]
        self._outboxes.share(group.queue, group.record.party, selection, members)

    def _rest(self, group: _Group, now_us: int) -> None:
        """Without a member the queue rests, once nobody has messages of it in flight."""
        if group.queue is None or group.attached:
            self._settle(group)
        elif self._dispatch.in_flight(group.queue):
            self._emptied[group.record.name] = None
        else:
            state = self._close(group)
            self._records.put_delivery_state(party_key(group.record.party), state, now_us)
            self._settle(group)

    def _settle(self, group: _Group) -> None:
        if group.record.ends_at_us is None:
            self._emptied.pop(group.record.name, None)

    def _empty(self, group: _Group, now_us: int) -> None:
        """Nobody subscribes to it any more."""
        if group.record.ends_at_us is None:
            ends_at_us = now_us + self._config.shared_group_expiry_s * SECOND_US
            if ends_at_us <= now_us:
                self._end(group, now_us)
                return
            self._put(group, replace(group.record, ends_at_us=ends_at_us), now_us)
        self._emptied[group.record.name] = None
        self._rest(group, now_us)

    def _end(self, group: _Group, now_us: int) -> None:
        """Removes everything that the group has."""
        record = group.record
        if group.queue is not None:
            self._close(group)
        self.by_strategy[group.strategy.kind] -= 1
        del self._groups[record.name]
        del self._by_party[record.party]
        self._by_key.pop(record.name, None)
        self._emptied.pop(record.name, None)
        self._names.release(record.queue_name)
        self._redrives.end(record.party, now_us)
        self._records.put_delivery_state(party_key(record.party), DELIVERY_STATE_REMOVED, now_us)
        self._records.put(Table.GROUPS, record.name.encode(), b"", now_us)

    def _close(self, group: _Group) -> bytes:
        queue, group.queue = group.queue, None
        assert queue is not None
        self._routes.remove(queue)
        self._outboxes.share(queue, group.record.party, group.strategy.compile([]), [])
        return self._dispatch.close_group(queue)

    def _put(self, group: _Group, record: SharedGroup, now_us: int) -> None:
        group.record = record
        self._records.put(Table.GROUPS, record.name.encode(), format_group(record), now_us)

    def _mark(self, group: _Group) -> int:
        if group.queue is not None:
            return self._dispatch.mark(group.queue)
        return state_mark(self._log.delivery_state(group.record.party) or b"")

    def _described(self, group: _Group, client_of: Callable[[int], str]) -> dict[str, Any]:
        parts = group.record.parts
        return {
            "name": parts.share_name,
            "topic_filter": parts.topic_filter,
            "queue_name": group.record.queue_name,
            "strategy": group.strategy.name,
            "members": sorted(client_of(connection) for connection in group.attached),
            "subscribers": len(group.subscribers),
            "in_flight": 0 if group.queue is None else self._dispatch.in_flight(group.queue),
            "mark": self._mark(group),
            "ends_at_us": group.record.ends_at_us,
        }

    def queued(self, name: str, inquiry: Inquiry) -> Pieces[int]:
        """Messages of a group that nobody has and nobody has had, and those that came back; none of
        one that has ended."""
        group = self._groups.get(name)
        if group is None:
            return 0
        record, end = group.record, self._log.end_offset()
        tables = [item.table() for item in record.reads]
        if group.queue is not None:
            from_offset, returned = self._dispatch.backlog(group.queue)
            return returned + (yield from inquiry.count(tables, record.party, from_offset, end))
        state = describe_state(self._log.delivery_state(record.party) or b"")
        begin, count = state["mark"], 0
        for first, after in [*state["acknowledged"], (end, end)]:
            count += yield from inquiry.count(tables, record.party, begin, first)
            begin = after
        return count
