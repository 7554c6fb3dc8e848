"""What happens in one turn of the loop: the stages, in order. This is the path of a message.

Owns: the order, and when there is a next turn. Never: looks into a batch.

A turn is taken when sockets have been read or a commit has ended, and asked for when bytes have
come through a layer, and when a stage says that it has more to do. However often it is asked for,
there is one turn in an iteration of the loop; it makes as many calls for ten messages as for ten
thousand, and one write for each connection that has something to send.

    sockets -> inbox -> routes -> log -> delivery -> outboxes -> sockets
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from holdfast.broker.access.access import Access
from holdfast.broker.batches.batches import Batches
from holdfast.broker.bridge.bridges import Bridges
from holdfast.broker.chores import Chores
from holdfast.broker.delivery.cursors import Cursors
from holdfast.broker.delivery.entrance import Entrance
from holdfast.broker.delivery.groups import Groups
from holdfast.broker.delivery.losses import Losses
from holdfast.broker.delivery.queue_names import QueueNames
from holdfast.broker.delivery.queues import Queues
from holdfast.broker.delivery.redrives import Redrives
from holdfast.broker.endings import Endings
from holdfast.broker.environments import Environments
from holdfast.broker.moments import Moments
from holdfast.broker.mqtt.admission import Admission
from holdfast.broker.mqtt.closing import Closing
from holdfast.broker.mqtt.control_packets import ControlPackets
from holdfast.broker.mqtt.packs import Packs
from holdfast.broker.mqtt.permissions import Permissions
from holdfast.broker.mqtt.sessions import Sessions
from holdfast.broker.mqtt.subscribe_packets import SubscribePackets
from holdfast.broker.mqtt.system_topics import SystemTopics
from holdfast.broker.mqtt.wills import Wills
from holdfast.broker.pulsar.door import PulsarDoor
from holdfast.broker.schedule import Schedule
from holdfast.broker.sockets.connection import STALL_US, Connections
from holdfast.broker.stages import KernelStages
from holdfast.broker.steps import BUDGET_NS, Steps
from holdfast.broker.store.commit_times import CommitTimes
from holdfast.broker.store.durability import Promises
from holdfast.broker.world import Commits, World
from holdfast.core.config import Config
from holdfast.kernel import (
    Arrivals,
    Command,
    Outgoing,
    Packet,
    free_answered,
    has_exceptions,
    unfinished,
)

STAGES: Final = (
    "admission",
    "decode",
    "control",
    "allot",
    "encode",
    "write",
    "scan",
    "exceptions",
    "piece",
)
"""What a turn that takes too long can be said to have been in; `decode` goes from reading to
storing, and `allot` begins with what has become durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Everything that a turn calls: the kernel's stages, and who decides between them."""

    kernel: KernelStages
    bridges: Bridges
    connections: Connections
    control_packets: ControlPackets
    subscribe_packets: SubscribePackets
    admission: Admission
    closing: Closing
    endings: Endings
    pulsar: PulsarDoor
    sessions: Sessions
    queues: Queues
    groups: Groups
    cursors: Cursors
    packs: Packs
    queue_names: QueueNames
    entrance: Entrance
    batches: Batches
    system_topics: SystemTopics
    wills: Wills
    losses: Losses
    redrives: Redrives
    access: Access
    permissions: Permissions
    promises: Promises
    commits: Commits
    chores: Chores
    moments: Moments
    steps: Steps
    environments: Environments

    def name_of(self, party: int) -> str:
        """Whose queue it is, or whose message: a client's, a group's, a subscription's or a
        bridge's; empty for one that has gone."""
        return (
            self.bridges.name_of(party)
            or self.pulsar.subscriptions.name_of(party)
            or self.sessions.name_of(party)
        )


class Turn:
    """The stages in order."""

    def __init__(self, config: Config, world: World, stages: Stages, schedule: Schedule) -> None:
        self._stages = stages
        self._schedule = schedule
        self._now_us = world.now_us
        self._ticks_ns = world.ticks_ns
        self._lengths = stages.steps.lengths["turn"]
        self._marks_ns: tuple[int, ...] = (0, 0)
        """When each of the stages of the last turn began, and when it ended."""
        self._arrivals = Arrivals()
        self._outgoing = Outgoing()
        self.count = 0
        self.publishes = 0
        """PUBLISH packets that have been decoded; the next two count other packets."""
        self.acknowledgements = 0
        self.control_packets = 0
        self.commit_times = CommitTimes()
        self.reconfigure(config)
        schedule.turn = self.run

    def reconfigure(self, config: Config) -> None:
        """Stores what these settings ask for from now on."""
        self._store_all = [topic_filter.encode() for topic_filter in config.store_all]

    def published(self) -> tuple[list[int], int]:
        """What clients have published: messages at QoS 0, 1 and 2, and the bytes of all of them."""
        return self._arrivals.totals()

    def run(self) -> None:
        """One turn. What goes wrong here is the disk's fault or ours; the broker stops and
        recovers."""
        try:
            now_us = self._now_us()
            self.stages_in_order(now_us)
            took_ns = self._marks_ns[-1] - self._marks_ns[0]
            self._lengths.add(took_ns)
            if took_ns > BUDGET_NS:
                self._over_budget(took_ns, now_us)
        except Exception as error:  # noqa: BLE001 - the boundary: nothing below it may go on.
            self._schedule.fail(error)

    def stages_in_order(self, now_us: int) -> None:
        """Take in what has come, store it, give out what has become durable.

        Stages that have nothing to do are not called: a lone message pays for all that are."""
        kernel, stages, ticks_ns = self._stages.kernel, self._stages, self._ticks_ns
        self.count += 1
        admission_ns = ticks_ns()
        self._go_on(now_us)
        decode_ns = ticks_ns()
        control_packets = kernel.inbox.decode(self._arrivals, now_us)
        commands = kernel.pulsar_inbox.decode(self._arrivals, now_us)
        if self._arrivals or stages.entrance.publications or stages.batches.active:
            self._store(self._arrivals, now_us)
        control_ns = ticks_ns()
        if control_packets or commands or stages.subscribe_packets.asked:
            self._control(control_packets, commands, now_us)
        allot_ns = ticks_ns()
        self._settle()
        if kernel.deliveries.allot(self._outgoing, now_us):
            stages.losses.notice(kernel.deliveries.notices(), stages.name_of, now_us)
        self._remember(now_us)
        encode_ns = ticks_ns()
        kernel.outboxes.encode(self._outgoing, kernel.log, now_us)
        kernel.pulsar_outboxes.encode(self._outgoing, kernel.log)
        write_ns = ticks_ns()
        stages.connections.send(now_us)
        if stages.bridges.draining:
            stages.bridges.turn()
        scan_ns = ticks_ns()
        self._read_on()
        exceptions_ns = ticks_ns()
        self._exceptions(now_us)
        piece_ns = ticks_ns()
        chore = stages.chores.run_piece()
        self._next_turn(now_us)
        ended_ns = ticks_ns()
        if chore:
            stages.steps.ended("piece", chore, ended_ns - piece_ns)
        # fmt: off
        self._marks_ns = (
            admission_ns, decode_ns, control_ns, allot_ns, encode_ns, write_ns, scan_ns,
            exceptions_ns, piece_ns, ended_ns,
        )
        # fmt: on

    def _control(
        self,
        control_packets: list[tuple[int, Packet]],
        commands: list[tuple[int, Command]],
        now_us: int,
    ) -> None:
        """What has to be decided on is."""
        self.control_packets += len(control_packets) + len(commands)
        if control_packets:
            self._stages.control_packets.take(control_packets, now_us)
        if self._stages.subscribe_packets.asked:
            self._stages.subscribe_packets.carry_out(now_us)
        if commands:
            self._stages.pulsar.commands.take(commands, now_us)

    def _settle(self) -> None:
        """What has become durable is owed."""
        kernel, stages = self._stages.kernel, self._stages
        durable_offset = kernel.log.durable_offset()
        durable_position = kernel.log.durable_position()
        kernel.deliveries.settle(durable_offset, durable_position, self._outgoing)
        if stages.entrance.unanswered:
            stages.entrance.durable(durable_position)
        if stages.batches.active:
            stages.batches.durable(durable_position)

    def _read_on(self) -> None:
        """Queues that are behind read on, for the next turn. Nothing that is ready now waits for
        it: neither an acknowledgement nor a message of somebody who is not behind."""
        kernel = self._stages.kernel
        scans = kernel.deliveries.hungry(kernel.log.durable_offset())
        if scans:
            kernel.log.scan(scans)
            kernel.deliveries.feed(scans)

    def _store(self, arrivals: Arrivals, now_us: int) -> None:
        """What has come is routed and stored, and what nobody publishes from outside with it."""
        kernel, stages = self._stages.kernel, self._stages
        self.publishes += arrivals.publishes
        self.acknowledgements += arrivals.acknowledgements
        stages.entrance.enter(arrivals)
        stages.batches.enter(arrivals)
        kernel.routes.route(arrivals)
        kernel.log.append(arrivals, self._store_all, now_us)
        stages.entrance.appended(arrivals)
        stages.batches.appended(arrivals, now_us)
        kernel.inbox.forget(arrivals)
        kernel.pulsar_inbox.refuse_behind(arrivals)
        kernel.outboxes.pass_through(arrivals, now_us)
        kernel.pulsar_outboxes.pass_through(arrivals)
        kernel.deliveries.admit(arrivals, kernel.log.end_position())
        if stages.wills.taken:
            stages.wills.appended(stages.sessions.will_appended, now_us)
        # The disk is at work while the rest of the turn is done.
        if kernel.deliveries.awaits_commit():
            # What was acknowledged goes with it, and is no commit of its own behind it.
            stages.losses.notice(kernel.deliveries.notices(), stages.name_of, now_us)
            self._write_progress(now_us)
            stages.commits.wake()
            self.commit_times.asked(now_us)

    def _go_on(self, now_us: int) -> None:
        """Goes on with what has waited for the disk, for a password, or for its turn."""
        stages = self._stages
        if self._schedule.commit_ended:
            self._schedule.commit_ended = False
            stages.commits.collect()
            self.commit_times.ended(now_us)
        if stages.admission.decided:
            stages.admission.decide(now_us)
        if stages.pulsar.admission.decided:
            stages.pulsar.admission.decide(now_us)
        if stages.admission.waiting:
            stages.admission.durable(stages.kernel.log.durable_position(), now_us)
        if stages.promises.waiting:
            stages.promises.durable(stages.kernel.log.durable_position())

    def _write_progress(self, now_us: int) -> None:
        """How far deliveries have come goes into the log, behind what was lost on the way; what
        depends on that waits for it."""
        kernel = self._stages.kernel
        if self._stages.losses.is_waiting:
            self._stages.losses.write_ahead(now_us)
        progress = kernel.deliveries.take_progress()
        if progress is not None:
            kernel.deliveries.progressed(kernel.log.append_progress(progress, now_us))

    def _remember(self, now_us: int) -> None:
        """All of that, as of the end of the turn."""
        self._write_progress(now_us)
        # Now the log and what is in memory say the same.
        if self._stages.moments.wanted is not None:
            self._stages.moments.take(now_us)

    def _over_budget(self, took_ns: int, began_us: int) -> None:
        stages_ns = [after - before for before, after in pairwise(self._marks_ns)]
        longest_ns = max(stages_ns)
        stage = STAGES[stages_ns.index(longest_ns)]
        self._stages.steps.tell("turn", stage, longest_ns, took_ns)
        if took_ns > STALL_US * 1_000:
            self._stages.connections.stalled(began_us, self._now_us())

    def _exceptions(self, now_us: int) -> None:
        """What came up: answers that free a window, refusals, losses, peers that have gone."""
        kernel, stages = self._stages.kernel, self._stages
        free_answered(kernel.inbox, kernel.deliveries)
        if has_exceptions(
            kernel.routes, kernel.deliveries, kernel.outboxes, kernel.pulsar_outboxes
        ):
            self._refusals(now_us)
        if stages.connections.ended:
            for gone in stages.connections.finished():
                stages.endings.of(gone).gone(gone, now_us)

    def _refusals(self, now_us: int) -> None:
        """What was not done as usual is told, counted and put on record."""
        kernel, stages = self._stages.kernel, self._stages
        for connection, count in kernel.routes.denied():
            stages.closing.denied(connection, count)
        for connection, packet_identifier, kind in kernel.outboxes.refused():
            kernel.deliveries.refuse(connection, packet_identifier, kind)
        for receiver, offset, kind in kernel.pulsar_outboxes.gone():
            kernel.deliveries.refuse_entry(receiver, offset, kind)
        for connection, why, times in kernel.deliveries.refused():
            stages.endings.refused(connection, why, times, now_us)
        for connection in kernel.deliveries.at_fault():
            stages.closing.contradicted(connection, now_us)
        stages.losses.notice(kernel.outboxes.notices(), stages.name_of, now_us)
        stages.losses.write_ahead(now_us)

    def _next_turn(self, now_us: int) -> None:
        """Wakes the committer if somebody waits for the disk, and asks for another turn if a stage
        has more to do. Acknowledgement progress waits for company, or for the next sweep."""
        kernel, stages = self._stages.kernel, self._stages
        goes_on, awaits_commit, next_at_us = unfinished(
            kernel.inbox, kernel.pulsar_inbox, kernel.deliveries, kernel.outboxes
        )
        stages.connections.resume(throttled=next_at_us is not None)
        if awaits_commit or self._waits_for_the_disk():
            stages.commits.wake()
            self.commit_times.asked(now_us)
        asked = stages.subscribe_packets.asked
        if goes_on or asked or stages.chores.is_busy() or self._has_handed_in():
            self._schedule.soon()
        if next_at_us is not None:
            self._schedule.later(max(next_at_us - now_us, 0) / 1_000_000)

    def _has_handed_in(self) -> bool:
        """True if something can enter that came on no connection."""
        entrance, batches = self._stages.entrance, self._stages.batches
        return bool(
            (entrance.publications and entrance.waiting()) or (batches.active and batches.waiting())
        )

    def _waits_for_the_disk(self) -> bool:
        """True if a part does, beside the kernel's deliveries."""
        stages = self._stages
        return bool(
            stages.admission.waiting
            or stages.promises.waiting
            or stages.entrance.unanswered
            or (stages.batches.active and stages.batches.waits_for_the_disk())
            or (stages.bridges.draining and stages.bridges.waits_for_the_disk())
        )
