"""What happens in one turn of the loop: the stages, in order. This is the path of a message.

Owns: the order, and when there is a next turn. Never: looks into a batch.

A turn is asked for when bytes have come, when a commit has ended, when a socket takes bytes again, and
when a stage says that it has more to do. However often it is asked for, there is one turn in an
iteration of the loop; it makes as many calls for ten messages as for ten thousand, and one write for each
connection that has something to send.

    sockets -> inbox -> routes -> log -> dispatch -> outboxes -> sockets
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.broker.dispatch.losses import Losses
from holdfast.broker.dispatch.sessions import Sessions
from holdfast.broker.dispatch.wills import LOOPBACK, Wills
from holdfast.broker.ingress.admission import Admission
from holdfast.broker.ingress.closing import Closing
from holdfast.broker.ingress.connection import Connections
from holdfast.broker.ingress.control_packets import ControlPackets
from holdfast.broker.world import Commits
from holdfast.kernel import Arrivals, Dispatch, Inbox, Log, Outboxes, Outgoing, Routes
from holdfast.protocols.mqtt.will import Ending


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Everything that a turn calls: the kernel's stages, and who decides between them."""

    inbox: Inbox
    routes: Routes
    log: Log
    dispatch: Dispatch
    outboxes: Outboxes
    connections: Connections
    control_packets: ControlPackets
    admission: Admission
    closing: Closing
    sessions: Sessions
    wills: Wills
    losses: Losses
    commits: Commits


class Schedule:
    """Asks for the next turn, once an iteration of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._asked = False
        self.commit_ended = False
        self.turn: Callable[[], None]

    def soon(self) -> None:
        """There is something to do."""
        if not self._asked:
            self._asked = True
            self._loop.call_soon(self._run)

    def committed(self) -> None:
        """A commit has ended."""
        self.commit_ended = True
        self.soon()

    def _run(self) -> None:
        self._asked = False
        self.turn()


class Turn:
    """The stages in order."""

    def __init__(
        self,
        stages: Stages,
        *,
        schedule: Schedule,
        store_all: tuple[str, ...],
        now_us: Callable[[], int],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._stages = stages
        self._schedule = schedule
        self._store_all = [topic_filter.encode() for topic_filter in store_all]
        self._now_us = now_us
        self._failed = failed
        self._arrivals = Arrivals()
        self._outgoing = Outgoing()
        self.count = 0
        schedule.turn = self.run

    def run(self) -> None:
        """One turn. What goes wrong here is the disk's fault or ours; the broker stops and recovers."""
        try:
            self.stages_in_order(self._now_us())
        except Exception as error:  # noqa: BLE001 - the boundary: nothing below it may go on.
            self._failed(error)

    def stages_in_order(self, now_us: int) -> None:
        """Take in what has come, store it, give out what has become durable."""
        stages, arrivals, outgoing = self._stages, self._arrivals, self._outgoing
        self.count += 1
        if self._schedule.commit_ended:
            self._schedule.commit_ended = False
            stages.commits.collect()
        stages.admission.durable(stages.log.durable_position(), now_us)
        stages.wills.feed(now_us)

        control_packets = stages.inbox.decode(arrivals)
        stages.routes.route(arrivals)
        stages.log.append(arrivals, self._store_all, now_us)
        stages.inbox.settle(arrivals)
        stages.outboxes.pass_through(arrivals)
        stages.dispatch.admit(arrivals, stages.log.end_position())
        stages.wills.appended(stages.sessions.will_appended, now_us)
        if control_packets:
            stages.control_packets.take(control_packets, now_us)

        durable_offset = stages.log.durable_offset()
        stages.dispatch.settle(durable_offset, stages.log.durable_position(), outgoing)
        scans = stages.dispatch.hungry(durable_offset)
        if scans:
            stages.log.scan(scans)
            stages.dispatch.feed(scans)
        stages.dispatch.allot(outgoing, now_us)
        stages.dispatch.remember(stages.log, now_us)
        stages.outboxes.encode(outgoing, stages.log, now_us)
        stages.connections.write(stages.outboxes.take())

        self._exceptions(now_us)
        self._next_turn()

    def _exceptions(self, now_us: int) -> None:
        """What came up: answers that free a window, refusals, losses, peers that have gone."""
        stages = self._stages
        for connection, count in stages.dispatch.answered():
            stages.inbox.settled(connection, count)
            if connection == LOOPBACK:
                stages.wills.answered(count)
        for connection, packet_identifier in stages.outboxes.refused():
            stages.dispatch.refuse(connection, packet_identifier)
        for connection, reason_code in stages.dispatch.refused():
            stages.closing.refused(connection, reason_code, now_us)
        stages.losses.note(stages.dispatch.notices(), stages.sessions.name_of, now_us)
        stages.losses.note(stages.outboxes.notices(), stages.sessions.name_of, now_us)
        for gone in stages.connections.finished():
            stages.closing.end(gone, Ending.ABNORMAL, now_us)

    def _next_turn(self) -> None:
        """Wakes the committer if somebody waits for the disk, and asks for another turn if a stage
        has more to do. Acknowledgement progress waits for company, or for the next sweep."""
        stages = self._stages
        stages.connections.resume()
        if stages.dispatch.awaits_commit() or stages.admission.waits():
            stages.commits.wake()
        if stages.inbox.ready() or stages.dispatch.waiting() or stages.wills.waiting():
            self._schedule.soon()
