"""Builds the broker's parts and joins them: the file to read first.

It is given a world, the real one (`serve`) or a simulated one. The parts are built from the
kernel's stages outward, so that each is handed what it calls.
"""

import asyncio
import logging

from holdfast.broker.access.access import Access
from holdfast.broker.batches.batches import Batches
from holdfast.broker.bridge.bridges import Bridges
from holdfast.broker.chores import PIECE_EFFORT, Chores, Pieces
from holdfast.broker.counts import Counts
from holdfast.broker.delivery.entrance import Entrance
from holdfast.broker.delivery.parts import DeliveryParts, assemble_delivery
from holdfast.broker.endings import Endings
from holdfast.broker.environments import Environments
from holdfast.broker.ground import Ground
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
from holdfast.broker.server import Server
from holdfast.broker.sockets.connection import Connections
from holdfast.broker.sockets.plain import PlainSockets
from holdfast.broker.stages import KernelStages
from holdfast.broker.steps import Steps
from holdfast.broker.store import recovery
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.durability import Promises
from holdfast.broker.store.view import View
from holdfast.broker.turn import Stages
from holdfast.broker.world import World
from holdfast.core.config import Config
from holdfast.core.limits import READ_BUFFER_BYTES
from holdfast.kernel import (
    Deliveries,
    Inbox,
    Log,
    Outboxes,
    PulsarInbox,
    PulsarOutboxes,
    Routes,
)

log = logging.getLogger(__name__)


def assemble(config: Config, world: World) -> Server:
    """Opens the log in `world` and builds the broker on it; nothing listens yet.

    Must be called inside the event loop that will run it. Raises what `Log.open` raises.
    """
    schedule = Schedule(asyncio.get_running_loop())
    kernel, records = _open(config, world)
    commits = world.commits(kernel.log, schedule.committed)
    ground = _ground(config, world, kernel, schedule)

    access = Access(config, world, records, ground.counts)
    promises = Promises(schedule.soon)
    delivery = assemble_delivery(config, kernel, records, ground.environments)
    entrance = Entrance(ground.counts)
    wills = Wills(entrance, ground.counts)
    sessions = Sessions(config, kernel, records, wills, delivery)
    system_topics = SystemTopics()
    chores = Chores(schedule.soon, kernel.log.effort)
    connections = Connections(ground)
    steps = Steps(world.ticks_ns, world.now_us)
    if (sockets := world.sockets()) is not None:
        connections.plain = PlainSockets(ground, sockets, steps)
    closing = Closing(connections, sessions, ground.counts)
    permissions = Permissions(ground, access, connections, closing, sessions, delivery.redrives)
    admission = Admission(ground, access, permissions, connections, closing, sessions, chores)
    # fmt: off
    subscribing = SubscribePackets(
        ground, connections, permissions, closing, sessions, delivery.groups, system_topics,
    )
    # fmt: on
    control_packets = ControlPackets(ground, connections, admission, subscribing, closing, sessions)
    bridges = Bridges(ground, records, connections, delivery, chores)
    pulsar = PulsarDoor(ground, access, records, connections, delivery, chores)
    stages = Stages(
        kernel=kernel,
        bridges=bridges,
        connections=connections,
        control_packets=control_packets,
        subscribe_packets=subscribing,
        admission=admission,
        closing=closing,
        endings=Endings(connections, closing, pulsar.closing),
        pulsar=pulsar,
        sessions=sessions,
        queues=delivery.queues,
        groups=delivery.groups,
        cursors=delivery.cursors,
        packs=Packs(config, kernel, sessions, delivery.losses),
        queue_names=delivery.queue_names,
        entrance=entrance,
        batches=Batches(ground, records, delivery.parties, promises),
        system_topics=system_topics,
        wills=wills,
        losses=delivery.losses,
        redrives=delivery.redrives,
        access=access,
        permissions=permissions,
        promises=promises,
        commits=commits,
        chores=chores,
        moments=Moments(kernel, records, promises, chores, sessions.all_attached, schedule.soon),
        steps=steps,
        environments=ground.environments,
    )
    _recover(stages, delivery, world.now_us())
    records.keep_up(world.workers(1), commits.wake, schedule.soon)
    stages.chores.begin(sessions.write_recovered(world.now_us), _tell_found_connected)
    stages.chores.begin(sessions.renew_records(world.now_us), lambda _nothing: None)
    stages.chores.begin(_prepare_filters(kernel.log), lambda _nothing: None)
    return Server(config, world, stages, records, schedule, ground.counts)


def _recover(stages: Stages, delivery: DeliveryParts, now_us: int) -> None:
    """Finds what is on record."""
    stages.sessions.recover(now_us)
    shared = delivery.recover(lambda party: _is_there(party, stages.sessions, delivery), now_us)
    stages.pulsar.recover(shared)
    stages.batches.recover()
    stages.bridges.recover(now_us)


def _is_there(party: int, sessions: Sessions, delivery: DeliveryParts) -> bool:
    """True if there still is a session, a group or a bridge, so that a loss of it may be driven
    again."""
    if sessions.name_of(party):
        return True
    record = delivery.queues.record(party)
    return record is not None and record.kind == "bridge"


def _tell_found_connected(count: int) -> None:
    if count:
        log.info("sessions found connected", extra={"fields": {"sessions": count}})


def _prepare_filters(kernel_log: Log) -> Pieces[None]:
    """The first client with a wildcard need not wait until all names have been looked at."""
    while not kernel_log.prepare_filters(PIECE_EFFORT):
        yield None


def _ground(config: Config, world: World, kernel: KernelStages, schedule: Schedule) -> Ground:
    return Ground(
        config=config,
        world=world,
        kernel=kernel,
        schedule=schedule,
        counts=Counts(),
        environments=Environments(config),
    )


def _open(config: Config, world: World) -> tuple[KernelStages, ControlRecords]:
    began_us = world.now_us()
    kernel_log, found = world.open_log(config)
    records = ControlRecords(kernel_log, View(world.view_path(config)))
    count = records.recover(found["control_number"])
    seconds = (world.now_us() - began_us) / 1_000_000
    recovery.report(found, control_records=count, seconds=seconds)
    read_buffer = bytearray(READ_BUFFER_BYTES)
    inbox = Inbox(read_buffer)
    stages = KernelStages(
        read_buffer=read_buffer,
        inbox=inbox,
        pulsar_inbox=PulsarInbox(read_buffer, inbox),
        routes=Routes(world.seed()),
        log=kernel_log,
        deliveries=Deliveries(),
        outboxes=Outboxes(),
        pulsar_outboxes=PulsarOutboxes(),
    )
    return stages, records
