"""Everything that can be asked of a broker over HTTP, in one list.

Owns: which parts there are. Never: how any of them answers.
"""

from collections.abc import Callable

from holdfast.broker.admin.http.operation import Operation
from holdfast.broker.admin.v1.backlog import Backlog
from holdfast.broker.admin.v1.bridges import BridgesView
from holdfast.broker.admin.v1.cursors import CursorsView
from holdfast.broker.admin.v1.description import Description, Listeners
from holdfast.broker.admin.v1.environments import EnvironmentsView
from holdfast.broker.admin.v1.groups import GroupsView
from holdfast.broker.admin.v1.health import Health
from holdfast.broker.admin.v1.losses import LossesView
from holdfast.broker.admin.v1.progress import ProgressView
from holdfast.broker.admin.v1.publish import Publishing
from holdfast.broker.admin.v1.queues import Queues
from holdfast.broker.admin.v1.reading import LogReaders, Reading
from holdfast.broker.admin.v1.sessions import SessionsView
from holdfast.broker.admin.v1.staged import Staging
from holdfast.broker.admin.v1.subscriptions import SubscriptionsView
from holdfast.broker.admin.v1.topics import Topics
from holdfast.broker.admin.v1.users import RulesView, Users, UsersView, WaitDurable
from holdfast.broker.admin.v5.clients import ClientsView
from holdfast.broker.admin.v5.subscriptions import ClientSubscriptionsView
from holdfast.broker.bridge_commands import BridgeCommands
from holdfast.broker.commands import Commands
from holdfast.broker.cursor_commands import CursorCommands
from holdfast.broker.group_commands import GroupCommands
from holdfast.broker.observe.bridges import BridgesSeen
from holdfast.broker.observe.clients import ClientsSeen
from holdfast.broker.observe.cursors import CursorsSeen
from holdfast.broker.observe.environments import EnvironmentsSeen
from holdfast.broker.observe.forecast import Forecast
from holdfast.broker.observe.sessions import SessionsSeen
from holdfast.broker.observe.snapshot import Snapshot
from holdfast.broker.observe.watch import Watch
from holdfast.broker.state.broker import Broker
from holdfast.core.config import Effective
from holdfast.core.layout import LOG_DIRECTORY


def operations(
    broker: Broker,
    commands: Commands,
    cursor_commands: CursorCommands,
    group_commands: GroupCommands,
    watch: Watch,
    forecast: Forecast,
    cursors: CursorsSeen,
    bridges: tuple[BridgeCommands, BridgesSeen],
    environments: EnvironmentsSeen,
    snapshot: Callable[[], Snapshot],
    listeners: Listeners,
    settings: Callable[[], Effective],
    users: tuple[Users, WaitDurable],
    staging: Staging,
) -> list[Operation]:
    """All operations on this broker."""
    data_dir = broker.config().data_dir
    readers = LogReaders(str(data_dir / LOG_DIRECTORY), broker.log.durable_offset)
    publishing = Publishing(broker, commands)
    return [
        *Health(broker.ready, snapshot).operations(),
        *Description(broker, snapshot, listeners, settings).operations(),
        *SessionsView(broker, commands, watch).operations(),
        *Backlog(broker, forecast).operations(),
        *SubscriptionsView(SessionsSeen(broker, watch)).operations(),
        *GroupsView(broker, group_commands, watch, forecast).operations(),
        *CursorsView(broker, cursor_commands, cursors).operations(),
        *BridgesView(*bridges, readers).operations(),
        *EnvironmentsView(environments).operations(),
        *Topics(broker, readers, publishing).operations(),
        *Queues(broker, readers).operations(),
        *LossesView(broker, commands).operations(),
        *UsersView(*users).operations(),
        *RulesView(*users).operations(),
        *publishing.operations(),
        *staging.operations(),
        *ClientsView(ClientsSeen(broker)).operations(),
        *ClientSubscriptionsView(ClientsSeen(broker)).operations(),
        *Reading(readers, broker.retention, broker.cursors.of).operations(),
        *ProgressView(readers, broker.recorded).operations(),
    ]
