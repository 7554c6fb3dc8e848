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

Flow: sessions -> here -> routes, delivery, outboxes.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

from holdfast.broker.chores import Pieces
from holdfast.broker.delivery.handed import handed_to
from holdfast.broker.delivery.losses import Losses, Lost
from holdfast.broker.delivery.owners import Member
from holdfast.broker.delivery.parties import Parties
from holdfast.broker.delivery.queue_names import Owner, QueueNames
from holdfast.broker.delivery.queues import Queues
from holdfast.broker.delivery.redrives import Redrives, Target
from holdfast.broker.delivery.selection import PART_SLOTS, Strategy, plan_owners, strategy_for
from holdfast.broker.delivery.shared_queue import SharedQueue
from holdfast.broker.log_lines import FrequentEvent
from holdfast.broker.stages import KernelStages
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.tables import QueueRecord, parse_subscriptions
from holdfast.core.config import Config
from holdfast.core.limits import SHARED_GROUPS_MAXIMUM, SHARED_MEMBERS_MAXIMUM
from holdfast.core.loss_reason import LossReason
from holdfast.core.share_name import parse_shared
from holdfast.core.subscription import Subscription, shared_of
from holdfast.core.units import SECOND_US
from holdfast.kernel import GROUP_CONNECTION

log = logging.getLogger(__name__)
GIVEN_BACK: Final = FrequentEvent(log, "messages of an ended session go back to their group")

HELD_KEYS_SHOWN_MAXIMUM = 100
"""Keys that are shown of one group: those held longest are the ones that somebody looks for."""
SWEEP_GROUPS_MAXIMUM = 500
"""Groups that one sweep looks at, of each kind that it looks at; of ten thousand each has its turn
every twenty seconds."""
QOS_MAXIMUM = 2
"""A group reads whatever is stored; each member's own maximum decides how it is sent."""


@dataclass(slots=True)
class _Group:
    queue: SharedQueue
    strategy: Strategy
    subscribers: set[int] = field(default_factory=set)
    """Parties of all sessions that subscribe to it."""
    owners: list[int] = field(default_factory=list)
    """Whose keys are whose, by connection, where the strategy is by key."""

    @property
    def record(self) -> QueueRecord:
        """As it is on record."""
        return self.queue.record

    @property
    def name(self) -> str:
        """`$share/<share name>/<topic filter>`."""
        return self.record.owner


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
        queues: Queues,
        redrives: Redrives,
    ) -> None:
        self._kernel = kernel
        self._records = records
        self._losses = losses
        self._parties = parties
        self._names = names
        self._queues = queues
        self._redrives = redrives
        self._log = kernel.log
        self._routes = kernel.routes
        self._deliveries = kernel.deliveries
        self._outboxes = kernel.outboxes
        self._groups: dict[str, _Group] = {}
        self._by_party: dict[int, _Group] = {}
        self._by_connection: dict[int, list[_Group]] = {}
        self._memberships: Counter[int] = Counter()
        """How many groups each party subscribes to."""
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
        """Each group has the strategy that it should have, and is kept as long."""
        self._config = config
        self._deliveries.keep_unreceived(config.shared_session_ended == "redeliver")
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
        return self._memberships.total()

    def is_member(self, party: int) -> bool:
        """True if the session subscribes to a group."""
        return party in self._memberships

    def name_of(self, party: int) -> str:
        """The name of a group's party; empty if it is none."""
        group = self._by_party.get(party)
        return "" if group is None else group.name

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
            if group.queue.queue is None:
                self._open(group, now_us)
            if connection not in group.queue.takers:
                self._by_connection.setdefault(connection, []).append(group)
            group.queue.join(connection, subscription)
            self._redrives.join(group.record.party, connection, subscription)
            self._share(group)

    def prepare(self, name: str, now_us: int) -> Pieces[None]:
        """Somebody who takes from it is about to be attached."""
        group = self._groups.get(name)
        if group is not None:
            yield from group.queue.prepare(now_us)

    def detach(self, connection: int, now_us: int) -> None:
        """The session has left its connection, and with that (`Deliveries.detach`) the kernel's
        queues; it goes on subscribing."""
        for group in self._by_connection.pop(connection, []):
            del group.queue.takers[connection]
            self._share(group)
            self._rest(group, now_us)

    def leave(self, connection: int | None, party: int, names: Iterable[str], now_us: int) -> None:
        """The session subscribes to these no more."""
        for name in names:
            group = self._groups.get(name)
            if group is None:
                continue
            self._forget(group, party)
            if connection is not None and group.queue.leave(connection):
                self._redrives.leave(group.record.party, connection)
                self._by_connection[connection].remove(group)
                self._share(group)
            if group.subscribers:
                self._rest(group, now_us)
            else:
                self._empty(group, now_us)

    def fork(self, original: str, name: str, place: int, ends_at_us: int, now_us: int) -> None:
        """There is another group that reads what this one does, from this place on; it ends then if
        nobody subscribes to it."""
        party = self._parties.durable(now_us)
        record = QueueRecord(
            party=party,
            kind="group",
            owner=name,
            created_at_offset=place,
            reads=self._groups[original].record.reads,
            ends_at_us=ends_at_us,
        )
        self._add(record).queue.put(record, now_us)
        self._queues.begin(party, place, [], now_us)
        self._emptied[name] = None

    def party_of(self, name: str) -> int:
        """The party of a group."""
        return self._groups[name].record.party

    def open_queues(self) -> list[tuple[int, int, int]]:
        """Party, queue and GROUP_CONNECTION of each group whose queue is attached."""
        return [
            (group.record.party, group.queue.queue, GROUP_CONNECTION)
            for group in self._groups.values()
            if group.queue.queue is not None
        ]

    def queue_of(self, party: int) -> int | None:
        """The attached queue of a group."""
        group = self._by_party.get(party)
        return None if group is None else group.queue.queue

    def watched(
        self, party: int
    ) -> tuple[str, int, int, tuple[Subscription, ...], tuple[int, ...]] | None:
        """Of a group whose queue is attached: name, party, queue, what it reads, and the
        connections that take from it."""
        group = self._by_party.get(party)
        if group is None or group.queue.queue is None:
            return None
        queue, takers = group.queue.queue, tuple(group.queue.takers)
        return group.name, party, queue, group.record.reads, takers

    def subscribers_of(self, party: int) -> set[int]:
        """The sessions that subscribe to the group of this party, attached or at rest."""
        group = self._by_party.get(party)
        return set() if group is None else group.subscribers

    def target(self, party: int) -> Target | None:
        """The group of this party as one whose losses can be driven again."""
        group = self._by_party.get(party)
        return None if group is None else Target(party, group.record.reads, {**group.queue.takers})

    def recover(self, queues: Iterable[QueueRecord], now_us: int) -> None:
        """Finds the groups among these queues on record, and the sessions that subscribe to
        them."""
        for record in queues:
            if record.kind != "group":
                continue
            # Nobody knows what had been sent of it when the broker ended.
            self._add(record).queue.sent_before = self._log.end_offset()
            if record.queue_name is not None:
                self._names.take(record.queue_name, Owner("shared", record.parts.topic_filter))
        view = self._records.refresh()
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
            if group.queue.queue is not None:
                self._keys_counted += self._deliveries.keys(group.queue.queue, 0)[0]
        if not self._keyed:
            self.waiting_for_keys, self._keys_counted = self._keys_counted, 0
            self._keyed = list(self._by_key.values())

    def names(self) -> list[str]:
        """All groups by name."""
        return sorted(self._groups)

    def record(self, name: str) -> QueueRecord | None:
        """One group as it is on record."""
        group = self._groups.get(name)
        return None if group is None else group.record

    def of_queue(self, queue_name: str) -> list[QueueRecord]:
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
        queue, takers = group.queue.queue, group.queue.takers
        if queue is None:
            return []
        passed = dict(self._outboxes.shares(queue))
        return [
            {
                "client_identifier": client_of(connection),
                "qos": takers[connection].qos,
                "delivered": given + passed.get(connection, 0),
                "in_flight": in_flight,
                "key_slots": group.owners.count(connection) * PART_SLOTS,
            }
            for connection, given, in_flight in self._deliveries.members(queue)
            if connection in takers
        ]

    def subscribers(self, name: str) -> list[int]:
        """The sessions that subscribe to a group, attached or at rest, by party."""
        group = self._groups.get(name)
        return [] if group is None else sorted(group.subscribers)

    def handed(self, name: str, party: int) -> list[int]:
        """Offsets of what a session was sent of a group at QoS 2 and has not received."""
        group = self._groups.get(name)
        stand_ins = self._losses.stand_ins
        return [
            handed.offset
            for handed in handed_to(self._log, party)
            if group is not None and stand_ins.get(handed.group, handed.group) == group.record.party
        ]

    def keys(self, name: str, client_of: Callable[[int], str]) -> dict[str, Any]:
        """Where the strategy is by key: how many messages wait because of their key, and the keys
        that members hold, those held longest first."""
        group = self._groups[name]
        if group.queue.queue is None:
            return {"waiting": 0, "held": []}
        waiting, held = self._deliveries.keys(group.queue.queue, HELD_KEYS_SHOWN_MAXIMUM)
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

    def end_handed(self, member: Member, now_us: int) -> None:
        """A session at rest ends with what groups had handed to it at QoS 2. By the standard nobody
        else may get that [MQTT-4.8.2-5], and it is lost; or it goes back to its groups."""
        lost: list[Lost] = []
        back: dict[int, list[int]] = {}
        for handed in handed_to(self._log, member.party):
            target = self._losses.stand_ins.get(handed.group, handed.group)
            if self._gets_back(target, member.party):
                back.setdefault(target, []).append(handed.offset)
            else:
                lost.append(_lost(handed.group, handed.offset))
        for party, offsets in back.items():
            group = self._by_party[party]
            whom = Target(party, group.record.reads, {**group.queue.takers})
            if not self._redrives.give_back(whom, offsets, now_us):
                lost += [_lost(party, offset) for offset in offsets]
            elif GIVEN_BACK.is_due(now_us):
                told = {"client_identifier": member.client_identifier, "messages": len(offsets)}
                GIVEN_BACK.write({"group": group.name, **told})

        def name_of(party: int) -> str:
            # A re-drive hands over in its own name: there the loss is the client's.
            return self.name_of(party) or member.client_identifier

        self._losses.note(lost, name_of, now_us)

    def _gets_back(self, party: int, session: int) -> bool:
        """True if the group gets back what it had handed to the session: it is there, and does not
        end with it."""
        group = self._by_party.get(party)
        if group is None or self._config.shared_session_ended != "redeliver":
            return False
        return self._config.shared_group_expiry_s > 0 or group.subscribers != {session}

    def _subscribed(self, subscription: Subscription, party: int, now_us: int) -> _Group:
        name = subscription.topic_filter
        group = self._groups.get(name)
        if group is None:
            group = self._create(subscription, now_us)
        elif group.record.ends_at_us is not None:
            group.queue.put(replace(group.record, ends_at_us=None), now_us)
        if party not in group.subscribers:
            self._memberships[party] += 1
            group.subscribers.add(party)
        return group

    def _forget(self, group: _Group, party: int) -> None:
        if party in group.subscribers:
            group.subscribers.discard(party)
            self._memberships[party] -= 1
            if not self._memberships[party]:
                del self._memberships[party]

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
        record = QueueRecord(
            party=party,
            kind="group",
            owner=subscription.topic_filter,
            created_at_offset=subscription.from_offset,
            reads=(reads,),
        )
        group = self._add(record)
        group.queue.put(record, now_us)
        self._queues.begin(party, subscription.from_offset, [], now_us)
        return group

    def _name(self, group: _Group, now_us: int) -> None:
        """An APPLICATION client subscribes to it: its queue has a name from now on, if it can."""
        name = self._names.of_filter(group.record.parts.topic_filter)
        if name is None:
            fields = {"group": group.name}
            log.warning(
                "shared queue of APPLICATION clients without a name", extra={"fields": fields}
            )
        else:
            group.queue.put(replace(group.record, queue_name=name), now_us)

    def _add(self, record: QueueRecord) -> _Group:
        queue = SharedQueue(record, self._queues, self._kernel)
        group = _Group(queue, self._strategy(record))
        self._groups[record.owner] = self._by_party[record.party] = group
        self._classify(group)
        return group

    def _classify(self, group: _Group) -> None:
        self.by_strategy[group.strategy.kind] += 1
        if group.strategy.is_by_key:
            self._by_key[group.name] = group

    def _strategy(self, record: QueueRecord) -> Strategy:
        return strategy_for(record.parts.share_name, self._config)

    def _open(self, group: _Group, now_us: int) -> None:
        """The queue is attached and routed to; what is beyond its limit is cut off first."""
        queue = group.queue.within_quota(now_us)
        if queue.subscriptions != group.record.reads:
            group.queue.put(replace(group.record, reads=queue.subscriptions), now_us)
        attached = group.queue.open(queue, queue.party, self._log.end_offset())
        routed = [
            item._replace(no_local=False, retain_as_published=True, identifier=None)
            for item in queue.subscriptions
        ]
        self._routes.subscribe(attached, GROUP_CONNECTION, queue.party, routed)

    def _share(self, group: _Group) -> None:
        """The group has these members now, who share as its strategy says. Messages of QoS 0 are
        not stored; the outboxes give them out."""
        queue, takers = group.queue.queue, group.queue.takers
        if queue is None:
            return
        by_key = group.strategy.is_by_key
        group.owners = plan_owners(group.owners, list(takers)) if by_key else []
        selection = group.strategy.compile(group.owners)
        self._deliveries.select(queue, selection)
        members = [
            (connection, item.retain_as_published, item.identifier)
            for connection, item in takers.items()
        ]
        self._outboxes.share(queue, group.record.party, selection, members)

    def _rest(self, group: _Group, now_us: int) -> None:
        """Without a member the queue rests, once nobody has messages of it in flight."""
        if group.queue.may_rest():
            self._unroute(group)
            group.queue.rest(now_us)
        if group.queue.queue is None or group.queue.takers:
            self._settle(group)
        else:
            self._emptied[group.name] = None

    def _settle(self, group: _Group) -> None:
        if group.record.ends_at_us is None:
            self._emptied.pop(group.name, None)

    def _empty(self, group: _Group, now_us: int) -> None:
        """Nobody subscribes to it any more."""
        if group.record.ends_at_us is None:
            ends_at_us = now_us + self._config.shared_group_expiry_s * SECOND_US
            if ends_at_us <= now_us:
                self._end(group, now_us)
                return
            group.queue.put(replace(group.record, ends_at_us=ends_at_us), now_us)
        self._emptied[group.name] = None
        self._rest(group, now_us)

    def _end(self, group: _Group, now_us: int) -> None:
        """Removes everything that the group has."""
        record = group.record
        self._unroute(group)
        self.by_strategy[group.strategy.kind] -= 1
        del self._groups[record.owner]
        del self._by_party[record.party]
        self._by_key.pop(record.owner, None)
        self._emptied.pop(record.owner, None)
        self._names.release(record.queue_name)
        self._redrives.end(record.party, now_us)
        group.queue.end(now_us)

    def _unroute(self, group: _Group) -> None:
        """Nothing comes to it any more, if it is attached."""
        queue = group.queue.queue
        if queue is not None:
            self._routes.remove(queue)
            self._outboxes.share(queue, group.record.party, group.strategy.compile([]), [])

    def _described(self, group: _Group, client_of: Callable[[int], str]) -> dict[str, Any]:
        parts = group.record.parts
        return {
            "name": parts.share_name,
            "topic_filter": parts.topic_filter,
            "queue_name": group.record.queue_name,
            "strategy": group.strategy.name,
            "members": sorted(client_of(connection) for connection in group.queue.takers),
            "subscribers": len(group.subscribers),
            "in_flight": group.queue.in_flight(),
            "mark": group.queue.mark(),
            "ends_at_us": group.record.ends_at_us,
        }

    def queued(self, name: str, inquiry: Inquiry) -> Pieces[int]:
        """The backlog of a group; none of one that has ended."""
        group = self._groups.get(name)
        if group is None:
            return 0
        return (yield from self._queues.backlog(group.record, inquiry))


def _lost(party: int, offset: int) -> Lost:
    """A message that a session had not received when it ended."""
    return party, LossReason.SESSION_ENDED, offset, offset + 1, 1
