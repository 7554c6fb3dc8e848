"""All bridges of the broker: those of its configuration, and those made while it runs.

Owns: which there are, and which of them run. Never: connects or sees a message.

Invariants:
1. A bridge has one queue from its first start until it is removed, whatever is changed of it.
2. One that stands in the configuration is changed there: it can be stopped and started, and not
   changed or removed.
3. What is changed is on record before it is done.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import msgspec

from holdfast.broker.bridge import terms
from holdfast.broker.bridge.backoff import draw_share
from holdfast.broker.bridge.link import Link, State
from holdfast.broker.bridge.loops import LoopSearch
from holdfast.broker.bridge.password import read_password
from holdfast.broker.bridge.queue import BridgeQueue, new_queue
from holdfast.broker.bridge.review import parse_checked
from holdfast.broker.bridge.trial import Trial
from holdfast.broker.chores import Chores
from holdfast.broker.delivery.parts import DeliveryParts
from holdfast.broker.delivery.queue_names import Owner
from holdfast.broker.delivery.queues import Left
from holdfast.broker.delivery.redrives import Target
from holdfast.broker.ground import Ground
from holdfast.broker.sockets.connection import Connections
from holdfast.broker.sockets.dialer import Dialer
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.tables import QueueRecord, Table, parse_queue
from holdfast.core.bridge import Bridge
from holdfast.core.config import Config
from holdfast.core.errors import ConfigurationError
from holdfast.core.limits import BRIDGE_FORMER_BYTES_MAXIMUM
from holdfast.core.loss_reason import LossReason
from holdfast.core.queue_names import bridge_queue_name
from holdfast.protocols.mqtt.remote import Granted, Refused

log = logging.getLogger(__name__)

BRIDGES_MAXIMUM: Final = 1_000
"""Each has a queue that is attached, and a connection."""


@dataclass(slots=True)
class _Known:
    bridge: Bridge
    is_configured: bool
    """It stands in the configuration."""
    link: Link | None = None
    """At work; `None` while it is stopped."""


def configured(config: Config) -> tuple[Bridge, ...]:
    """The bridges of the configuration. Raises `ConfigurationError`."""
    found: dict[str, Bridge] = {}
    for number, table in enumerate(config.bridge_tables, 1):
        where = f"[[bridge]] {number}"
        bridge = parse_checked(table, where)
        if bridge.name in found:
            raise ConfigurationError(f'{where}: there is another bridge named "{bridge.name}"')
        found[bridge.name] = bridge
    return tuple(found.values())


class Bridges:
    """All of them."""

    def __init__(
        self,
        ground: Ground,
        records: ControlRecords,
        connections: Connections,
        delivery: DeliveryParts,
        chores: Chores,
    ) -> None:
        self._world = ground.world
        self._kernel = ground.kernel
        self._records = records
        self._connections = connections
        self._delivery = delivery
        self._chores = chores
        self._dialer = Dialer(ground, connections)
        self._now_us = ground.world.now_us
        self._known: dict[str, _Known] = {}
        self._queues: dict[str, QueueRecord] = {}
        self._names: dict[int, str] = {}
        self.draining: list[Link] = []
        self._loops = LoopSearch(
            ground.kernel.log, chores, lambda: draw_share(ground.world.entropy), self._now_us
        )
        self.reconfigure(ground.config)

    def reconfigure(self, config: Config) -> None:
        """Connections that begin from now on have these limits; which bridges there are is read at
        the start alone."""
        self._config = config

    # --- its life -------------------------------------------------------------------------------

    def recover(self, now_us: int) -> None:
        """Finds bridges and their queues. Raises `ConfigurationError`."""
        view = self._records.refresh()
        queues = [
            queue for queue in map(parse_queue, view.shared_queues()) if queue.kind == "bridge"
        ]
        for record in sorted(queues, key=lambda queue: queue.party):
            former = self._queues.get(record.owner)
            if former is not None:
                # Its bridge was removed, and nobody had counted yet what was lost by that.
                self._keep(terms.ended(former, record.created_at_offset))
                self._end_queue(record.owner, now_us)
            self._keep(record)
        rows = view.rows(Table.BRIDGES, b"", BRIDGES_MAXIMUM)
        recorded = {key.decode(): value for key, value in rows}
        for bridge in configured(self._config):
            self._known[bridge.name] = _Known(bridge, is_configured=True)
            if recorded.pop(bridge.name, None) is not None:
                self._hand_to_file(bridge.name, now_us)
        for name, value in recorded.items():
            self._recall(name, value)
        for name in sorted(self._queues.keys() - self._known.keys() - recorded.keys()):
            fields = {"bridge": name, "what waited": "lost, and in the loss ledger"}
            log.warning("bridge is in the configuration no more", extra={"fields": fields})
            self._end_queue(name, now_us)
        if self._config.bridges_storage == "IN_MEMORY":
            for name in self._queues:
                self._lose_past(name, now_us)

    def start(self, now_us: int) -> None:
        """Those that are not switched off begin to work."""
        for known in self._known.values():
            if known.bridge.enabled:
                self._begin(known, now_us)

    def close(self, now_us: int) -> None:
        """The broker ends."""
        for known in self._known.values():
            if known.link is not None:
                known.link.stop(now_us)
                known.link = None
        self._dialer.stop()

    def abandon(self) -> None:
        """The broker ends without another word: nothing is connected to any more."""
        for link in self.links():
            link.abandon()
        self._dialer.stop()

    def turn(self) -> None:
        """Called in each turn while there is one to be looked at."""
        self.draining = [link for link in self.draining if link.turn()]

    def waits_for_the_disk(self) -> bool:
        """True if a link gives nothing before it is durable that it is connected."""
        return any(not link.queue.is_noted() for link in self.draining)

    def sweep(self, expel: Callable[[int], None], now_us: int) -> None:
        """Called once a second; `expel` ends a connection."""
        for known in self._known.values():
            link = known.link
            if link is not None and not link.sweep(now_us):
                link.stalled(now_us)
                expel(link.handle)
        self._loops.sweep(self.links())

    def is_heard(self, handle: int, now_us: int) -> bool:
        """True if this is a bridge's connection that is not to be ended although nothing comes."""
        return any(link.handle == handle and link.is_heard(now_us) for link in self.links())

    def drains(self, link: Link) -> None:
        """A link has to be looked at in each turn until what waited has gone."""
        self.draining.append(link)

    # --- what can be asked and done -------------------------------------------------------------

    def name_of(self, party: int) -> str:
        """The bridge whose queue this is; empty if it is none's."""
        return self._names.get(party, "")

    def links(self) -> Iterable[Link]:
        """Those that run."""
        return [known.link for known in self._known.values() if known.link is not None]

    def names(self) -> list[str]:
        """All of them."""
        return sorted(self._known)

    def find(self, name: str) -> tuple[Bridge, bool, Link | None] | None:
        """A bridge, whether it stands in the configuration, and its link if it runs."""
        known = self._known.get(name)
        return None if known is None else (known.bridge, known.is_configured, known.link)

    def record(self, name: str) -> QueueRecord | None:
        """The queue of a bridge; none before its first start."""
        return self._queues.get(name)

    def may_change(self, bridge: Bridge) -> bool:
        """False if the queue would read for too much of former settings: it has to be emptied
        before."""
        record = self._queues.get(bridge.name)
        if record is None:
            return True
        mark, end = self._delivery.queues.mark(record), self._kernel.log.end_offset()
        then = terms.read_on(bridge, record.reads, mark, end)
        return terms.former_bytes(then) <= BRIDGE_FORMER_BYTES_MAXIMUM

    def put(self, bridge: Bridge, now_us: int) -> int:
        """There is such a bridge from now on, new or in place of one of this name; returns the log
        position at which that is durable. One that was stopped, or started, stays so, unless
        `enabled` is changed."""
        known = self._known.get(bridge.name)
        assert known is None or not known.is_configured, "who changes one has looked"
        value = msgspec.json.encode(bridge)
        position = self._records.put(Table.BRIDGES, bridge.name.encode(), value, now_us)
        runs = bridge.enabled
        if known is None:
            known = self._known[bridge.name] = _Known(bridge, is_configured=False)
        elif known.bridge.enabled is bridge.enabled:
            runs = known.link is not None
        self._end(known, now_us)
        known.bridge = bridge
        if runs:
            self._begin(known, now_us)
        return position

    def remove(self, name: str, now_us: int) -> int:
        """It is gone, and what waited for its remote is lost; returns the log position at which
        that is durable."""
        known = self._known.pop(name)
        assert not known.is_configured, "who removes one has looked"
        if known.link is not None:
            known.link.forget()
        self._end(known, now_us)
        self._end_queue(name, now_us)
        return self._records.put(Table.BRIDGES, name.encode(), b"", now_us)

    def run(self, name: str, is_running: bool, now_us: int) -> None:
        """Starts or stops it until the broker starts anew; one that was ended by a loop starts
        afresh."""
        known = self._known[name]
        if is_running and known.link is not None and known.link.state is State.LOOPING:
            self._end(known, now_us)
        if is_running and known.link is None:
            self._begin(known, now_us)
        elif not is_running:
            self._end(known, now_us)

    def grant_redrives(self, party: int) -> None:
        """A re-drive for a bridge has begun, if this is one's party: it gets no more of that than
        of the rest."""
        record = self._queues.get(self.name_of(party))
        if record is not None:
            self._delivery.redrives.grant(party, terms.receive_grant(record.rules))

    def target(self, party: int) -> Target | None:
        """The bridge of this party as one whose losses can be driven again."""
        record = self._queues.get(self.name_of(party))
        known = None if record is None else self._known.get(record.owner)
        if record is None or known is None:
            return None
        takers = {} if known.link is None else known.link.queue.takers()
        return Target(party, terms.driven(record.reads), takers, record.rules)

    async def tried(self, bridge: Bridge) -> Granted | Refused:
        """What the remote answers to a connection with these settings. Raises `OSError` or
        `TimeoutError`."""
        password = await self._password(bridge)
        trial = Trial(bridge, password, self._kernel, self._config, self._connections)
        return await trial.run(self._dialer.dial)

    # --- inside ---------------------------------------------------------------------------------

    def _recall(self, name: str, value: bytes) -> None:
        """Finds a bridge that was made while the broker ran. One that cannot be carried out is left
        out, and its queue waits for one that is made anew under its name."""
        try:
            bridge = parse_checked(msgspec.json.decode(value), "its record")
        except ConfigurationError as error:
            then = "make it anew under its name: its queue waits for that"
            fields = {"bridge": name, "reason": error, "then": then}
            log.error("bridge left out", extra={"fields": fields})
        else:
            self._known[name] = _Known(bridge, is_configured=False)

    def _hand_to_file(self, name: str, now_us: int) -> None:
        """The file has a bridge that was made while the broker ran: what it was is forgotten, so
        that it ends when it goes from the file."""
        self._records.put(Table.BRIDGES, name.encode(), b"", now_us)
        fields = {"bridge": name, "settings": "those of the file, in place of those on record"}
        log.warning("bridge belongs to the configuration file now", extra={"fields": fields})

    def _begin(self, known: _Known, now_us: int) -> None:
        bridge, storage = known.bridge, self._config.bridges_storage
        record = self._record(bridge, now_us)
        queue = BridgeQueue(
            self._kernel,
            self._connections,
            self._delivery.queues,
            self._delivery.redrives,
            self._chores,
            record,
            self._config.bridges_buffer_bytes,
            self._now_us,
        )
        known.link = Link(
            bridge,
            lambda: self._password(bridge),
            self._kernel,
            self._world,
            lambda: self._config,
            self._connections,
            queue,
            self._dialer.dial,
            self.drains,
        )
        lost = "everything that waits" if storage == "IN_MEMORY" else "messages of QoS 0 that wait"
        if any(not item.persist for item in bridge.local_subscriptions):
            log.warning(
                "QoS for publishes from local subscriptions will be downgraded to AT_MOST_ONCE",
                extra={"fields": {"bridge": bridge.name}},
            )
        fields = {"bridge": bridge.name, "remote": bridge.address, "storage": storage}
        log.info("bridge starts", extra={"fields": fields | {"a restart loses": lost}})
        known.link.start()

    async def _password(self, bridge: Bridge) -> bytes | None:
        """The password to connect with. Raises `OSError` with a sentence."""
        if bridge.password_file is None:
            return read_password(bridge)
        try:
            return await self._dialer.read(partial(read_password, bridge))
        except TimeoutError as error:
            late = f"password_file: {bridge.password_file} was not read in time"
            raise OSError(late) from error

    def _end(self, known: _Known, now_us: int) -> None:
        if known.link is not None:
            known.link.stop(now_us)
            self._keep(known.link.queue.record)
            known.link = None

    def _record(self, bridge: Bridge, now_us: int) -> QueueRecord:
        """Its queue's record, which reads what the bridge says now, and what already waits."""
        end, queues = self._kernel.log.end_offset(), self._delivery.queues
        record = self._queues.get(bridge.name)
        if record is None:
            record = new_queue(bridge.name, bridge, self._delivery.parties, queues, end, now_us)
        else:
            reads = terms.read_on(bridge, record.reads, queues.mark(record), end)
            record = replace(
                record,
                reads=reads,
                rules=terms.rules(bridge),
                messages_maximum=bridge.queue_limit,
            )
            queues.put(record, now_us)
        self._keep(record)
        return record

    def _keep(self, record: QueueRecord) -> None:
        if record.owner not in self._queues:
            name = bridge_queue_name(record.owner)
            self._delivery.queue_names.take(name, Owner("bridge", record.owner))
        self._queues[record.owner] = record
        self._names[record.party] = record.owner
        self._delivery.losses.watched.setdefault(record.party, Counter())

    def _end_queue(self, name: str, now_us: int) -> None:
        record = self._queues.pop(name, None)
        if record is not None:
            self._delivery.queue_names.release(bridge_queue_name(name))
            self._delivery.redrives.end(record.party, now_us)
            self._lose(record, lambda: self._delivery.queues.end(record.party, self._now_us()))

    def _lose_past(self, name: str, now_us: int) -> None:
        """It begins at the end of the log. What its remote has published and not released comes
        from there, and may come again."""
        end = self._kernel.log.end_offset()
        self._delivery.queues.abandon(self._queues[name].party, end, now_us)

    def _lose(self, record: QueueRecord, then: Callable[[], None]) -> None:
        """What waits in a queue at rest is lost, and on record as that."""

        def counted(left: Left) -> None:
            if left.cut is not None:
                who = (record.owner, record.party)
                self._delivery.queues.lose(*who, LossReason.SESSION_ENDED, left.cut, self._now_us())
            self._delivery.losses.watched.pop(record.party, None)
            self._names.pop(record.party, None)
            then()

        left = self._delivery.queues.left(record, None, Inquiry(self._kernel.log))
        self._chores.begin(left, counted)
