"""A running broker as everything that can be seen of it.

Owns: what of each part is shown. It is the one place from which parts are looked into: whoever
looks on is handed what is here, and nothing that could be changed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from holdfast.broker.chores import Chores
from holdfast.broker.counts import Event
from holdfast.broker.moments import Moments
from holdfast.broker.server import Server
from holdfast.broker.state.bridges import BridgesState
from holdfast.broker.state.connections import ConnectionsState
from holdfast.broker.state.cursors import CursorsState
from holdfast.broker.state.environments import EnvironmentsState
from holdfast.broker.state.groups import GroupsState
from holdfast.broker.state.log import LogState
from holdfast.broker.state.numbers import Numbers, count
from holdfast.broker.state.queues import QueuesState
from holdfast.broker.state.recorded import Recorded
from holdfast.broker.state.sessions import SessionsState
from holdfast.broker.state.subscriptions import SubscriptionsState
from holdfast.core.config import Config
from holdfast.protocols.mqtt.reason_code import ReasonCode
from holdfast.protocols.pulsar.refusals import Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """What can be read, by part."""

    connections: ConnectionsState
    sessions: SessionsState
    groups: GroupsState
    cursors: CursorsState
    bridges: BridgesState
    subscriptions: SubscriptionsState
    queues: QueuesState
    log: LogState
    environments: EnvironmentsState
    recorded: Recorded
    moments: Moments
    chores: Chores
    """Who does in pieces what takes long."""
    numbers: Callable[[], Numbers]
    log_full: Callable[[], int]
    """How often a publisher or producer was told that the log is full."""
    retention: Mapping[str, int]
    """How long and how much is kept, as the read interface tells it."""
    config: Callable[[], Config]
    """The settings in force."""
    now_us: Callable[[], int]
    uptime_s: Callable[[], float]
    ready: Callable[[], bool]
    """True while clients are served."""


def look_at(server: Server, view_path: str) -> Broker:
    """What can be read of this broker; `view_path` is where the view of its control records is."""
    stages, kernel = server.stages, server.stages.kernel
    sessions = SessionsState(stages.sessions, server.records)
    return Broker(
        connections=ConnectionsState(stages.connections),
        sessions=sessions,
        groups=GroupsState(stages.groups, sessions.client_on, sessions.at_rest),
        cursors=CursorsState(stages.cursors),
        bridges=BridgesState(stages.bridges, stages.queues, stages.losses),
        subscriptions=SubscriptionsState(stages.pulsar.subscriptions),
        queues=QueuesState(
            kernel,
            stages.queues,
            stages.packs,
            stages.queue_names,
            lambda: server.config,
            server.now_us,
        ),
        log=LogState(kernel.log),
        environments=EnvironmentsState(stages.environments, stages.sessions),
        recorded=Recorded(Path(view_path), server.records),
        moments=stages.moments,
        chores=stages.chores,
        numbers=partial(count, server),
        log_full=lambda: (
            server.counts.total(Event.PUBLISHES_REFUSED, ReasonCode.QUOTA_EXCEEDED)
            + server.counts.total(Event.PULSAR_REQUESTS_REFUSED, Refusal.NO_ROOM)
        ),
        retention=server.retention,
        config=lambda: server.config,
        now_us=server.now_us,
        uptime_s=server.uptime_s,
        ready=server.ready,
    )
