"""Everything that can be asked of a broker over HTTP, in one list.

Owns: which parts there are. Never: how any of them answers.
"""

from collections.abc import Callable
from pathlib import Path

from holdfast.broker.admin.http.operation import Operation
from holdfast.broker.admin.v1.backlog import Backlog
from holdfast.broker.admin.v1.description import Description, Listeners
from holdfast.broker.admin.v1.groups import GroupsView
from holdfast.broker.admin.v1.health import Health
from holdfast.broker.admin.v1.losses import LossesView
from holdfast.broker.admin.v1.publish import Publishing
from holdfast.broker.admin.v1.queues import Queues
from holdfast.broker.admin.v1.reading import LogReaders, Reading
from holdfast.broker.admin.v1.sessions import SessionsView
from holdfast.broker.admin.v1.subscriptions import SubscriptionsView
from holdfast.broker.admin.v1.topics import Topics
from holdfast.broker.admin.v1.users import RulesView, UsersView
from holdfast.broker.admin.v1.view_reader import ViewReader
from holdfast.broker.observe.forecast import Forecast
from holdfast.broker.observe.snapshot import Snapshot, take
from holdfast.broker.observe.watch import Watch
from holdfast.broker.server import Server
from holdfast.core.config import Effective
from holdfast.core.layout import LOG_DIRECTORY


def operations(
    server: Server,
    watch: Watch,
    forecast: Forecast,
    view_path: str,
    listeners: Listeners,
    settings: Callable[[], Effective],
) -> list[Operation]:
    """All operations on this broker."""

    def snapshot() -> Snapshot:
        return take(server, watch, forecast)

    config = server.config
    readers = LogReaders(str(config.data_dir / LOG_DIRECTORY), server.durable_offset)
    view = ViewReader(Path(view_path), server.records)
    publishing = Publishing(server)
    return [
        *Health(server.ready, snapshot).operations(),
        *Description(server, snapshot, listeners, settings).operations(),
        *SessionsView(server, view, watch).operations(),
        *Backlog(server, view, forecast).operations(),
        *SubscriptionsView(server, view).operations(),
        *GroupsView(server, watch, forecast).operations(),
        *Topics(server, readers, publishing).operations(),
        *Queues(server, readers, view).operations(),
        *LossesView(server, view).operations(),
        *UsersView(*server.users()).operations(),
        *RulesView(*server.users()).operations(),
        *publishing.operations(),
        *Reading(readers, server.retention).operations(),
    ]
