"""What happens once a second: everything that a moment in time decides, in one timer. Packs alone
have their own (`pack_timer`).

Owns: the period, and the chores of the store, which it begins. A timer for each connection would
cost more than looking at all of them; a second is the unit of every interval in MQTT.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from holdfast.broker.delivery.losses import loss_of
from holdfast.broker.mqtt.expiry import ExpirySchedule
from holdfast.broker.schedule import Schedule
from holdfast.broker.store.beside import Beside
from holdfast.broker.store.checkpoints import Checkpoints
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.footers import Footers
from holdfast.broker.store.page_cache import PageCache
from holdfast.broker.store.retention import Outcome, Retention
from holdfast.broker.store.segments_ahead import SegmentsAhead
from holdfast.broker.turn import Stages
from holdfast.broker.world import World
from holdfast.core.config import Config
from holdfast.core.limits import CONNECT_TIMEOUT_S, STOP_TIMEOUT_S
from holdfast.core.loss_reason import LossReason
from holdfast.core.units import SECOND_US
from holdfast.protocols.mqtt.reason_code import ReasonCode

log = logging.getLogger(__name__)

PERIOD_S = 1.0

Parts = list[tuple[str, Callable[[int], None]]]
"""What a sweep does, each with its name."""


class Sweep:
    """Keep Alive, deadlines, expiry, Wills, losses, retention, checkpoints."""

    def __init__(
        self,
        config: Config,
        world: World,
        stages: Stages,
        records: ControlRecords,
        schedule: Schedule,
    ) -> None:
        self._stages = stages
        self._records = records
        self._schedule = schedule
        self._now_us = world.now_us
        self._expiry = ExpirySchedule(config, world.now_us())
        kernel_log = stages.kernel.log
        self._beside = Beside(world, schedule.soon)
        self._checkpoints = Checkpoints(config, kernel_log, stages.commits, self._beside)
        self._segments_ahead = SegmentsAhead(kernel_log, self._beside)
        self._footers = Footers(kernel_log, self._beside)
        self._page_cache = PageCache(config, kernel_log, self._beside)
        self._queues = AllQueues(stages)
        self._retention = Retention(
            config,
            kernel_log,
            records,
            self._checkpoints,
            stages.commits,
            self._beside,
            self._footers,
            world.now_us,
        )
        self._timer: asyncio.TimerHandle | None = None
        self.segments_removed = 0
        self.records_carried = 0
        self._ticks_ns = world.ticks_ns
        self._parts: Final[Parts] = [
            ("connections", self._connections),
            ("admission", stages.admission.sweep),
            ("pulsar", stages.pulsar.sweep),
            ("sessions", stages.sessions.sweep),
            ("expiry", self._clear_expired),
            ("groups", stages.groups.sweep),
            ("redrives", self._redrives),
            ("cursors", stages.cursors.sweep),
            ("losses", self._losses),
            ("batches", stages.batches.sweep),
            ("bridges", self._bridges),
            ("records", self._advance),
            ("store", self._store),
            ("commit", self._commit),
        ]
        self._observers: Parts = []
        self._is_clearing = False

    def reconfigure(self, config: Config) -> None:
        """Clears away, writes checkpoints and retains by this from now on."""
        self._expiry.reconfigure(config, self._now_us())
        self._retention.reconfigure(config)
        self._checkpoints.reconfigure(config)
        self._page_cache.reconfigure(config)

    def start(self) -> None:
        """Sweeps every second from now on."""
        self._timer = asyncio.get_running_loop().call_later(PERIOD_S, self._tick)

    def stop(self) -> None:
        """Sweeps no more."""
        if self._timer is not None:
            self._timer.cancel()

    def close(self) -> None:
        """Waits for what is being done beside the loop. What was on its way is left: nothing has
        gone that is not copied, and the last checkpoint stands."""
        self._beside.stop()

    def _tick(self) -> None:
        try:
            self.run(self._now_us())
        except Exception as error:  # noqa: BLE001 - the boundary: nothing below it may go on.
            self._schedule.fail(error)
            return
        self.start()

    def run(self, now_us: int) -> None:
        """One sweep."""
        ticks_ns, steps = self._ticks_ns, self._stages.steps
        longest_ns, longest = 0, ""
        before_ns = began_ns = ticks_ns()
        for name, part in (*self._parts, *self._observers):
            part(now_us)
            ended_ns = ticks_ns()
            if ended_ns - before_ns > longest_ns:
                longest_ns, longest = ended_ns - before_ns, name
            before_ns = ended_ns
        steps.ended("sweep", longest, before_ns - began_ns)
        steps.next_second()
        self._schedule.soon()

    def observe(self, name: str, look: Callable[[int], None]) -> None:
        """`look` is called at the end of each sweep from now on, with the time."""
        self._observers.append((name, look))

    def _clear_expired(self, now_us: int) -> None:
        expired_by_us = self._expiry.expired_by_us(now_us)
        if expired_by_us is None or self._is_clearing:
            return
        self._is_clearing = True
        pieces = self._stages.sessions.clear_expired(expired_by_us, self._now_us)
        self._stages.chores.begin(pieces, self._cleared)

    def _cleared(self, _nothing: None) -> None:
        self._is_clearing = False
        self._expiry.done()

    def _advance(self, _now_us: int) -> None:
        self._records.advance()

    def _commit(self, _now_us: int) -> None:
        # Acknowledgement progress that nobody waits for is a second old at most.
        self._stages.commits.wake()

    def _losses(self, now_us: int) -> None:
        self._stages.losses.write(now_us)
        self._stages.losses.trim(now_us)

    def _connections(self, now_us: int) -> None:
        connections, endings = self._stages.connections, self._stages.endings
        kernel, bridges = self._stages.kernel, self._stages.bridges
        for handle in (*kernel.inbox.silent(now_us), *kernel.pulsar_inbox.silent(now_us)):
            connection = connections.get(handle)
            # Who is not read by us cannot be heard.
            if connection is None or connections.is_paused(connection):
                continue
            if not bridges.is_heard(handle, now_us):
                endings.of(connection).silent(connection, now_us)
        for connection in connections.overdue(
            opened_before_us=now_us - CONNECT_TIMEOUT_S * SECOND_US
        ):
            endings.of(connection).silent(connection, now_us)
        connections.abort_closing(closed_before_us=now_us - STOP_TIMEOUT_S * SECOND_US)

    def _redrives(self, now_us: int) -> None:
        self._stages.redrives.sweep(self._stages.groups.subscribers_of, now_us)

    def _bridges(self, now_us: int) -> None:
        connections, closing = self._stages.connections, self._stages.closing

        def expel(handle: int) -> None:
            connection = connections.get(handle)
            if connection is not None:
                closing.expel(connection, ReasonCode.KEEP_ALIVE_TIMEOUT, now_us)

        self._stages.bridges.sweep(expel, now_us)

    def _store(self, now_us: int) -> None:
        chores = self._stages.chores
        if self._retention.due(now_us):
            chores.begin(self._retention.run(self._queues), self._retained)
        if self._checkpoints.due(now_us):
            chores.begin(self._checkpoints.write(self._now_us), lambda _: None)
        self._segments_ahead.sweep(chores, now_us)
        self._footers.sweep(chores, now_us)
        self._page_cache.sweep(chores)

    def _retained(self, outcome: Outcome) -> None:
        self.segments_removed += outcome.segments
        self.records_carried += outcome.records
        if outcome.segments:
            fields = {"segments": outcome.segments, "records_carried": outcome.records}
            log.info("segments removed", extra={"fields": fields})


class AllQueues:
    """The queues whose messages outlive their segments, as retention asks about them."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages

    def are_listed(self) -> bool:
        """Once former records have been written anew."""
        return self._stages.sessions.are_renewed()

    def mark(self, party: int) -> int | None:
        """Of an attached queue, whoever takes from it."""
        return self._stages.queues.attached_mark(party)

    def is_there(self, party: int) -> bool:
        """As records have it."""
        return self._stages.queues.is_there(party)

    def has_room(self) -> bool:
        """As the ledger has it."""
        return self._stages.losses.has_room()

    def lose(
        self, owner: str, party: int, reason: LossReason, lost: tuple[int, int, int], now_us: int
    ) -> None:
        """Into the ledger; a re-drive's loss is that of whom it stands in for."""
        losses, (first, end, count) = self._stages.losses, lost
        target = losses.stand_ins.get(party)
        if target is not None:
            owner, party = self._stages.sessions.name_of(target), target
        losses.record(loss_of(owner, party, reason, [(first, end)], count, now_us), now_us)
