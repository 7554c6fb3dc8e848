"""What looks at a running broker and administers it, as one part: HTTP, the control socket, $SYS.

Owns: the listeners of HTTP and who else is told of a reload. Never: knows what an operation does.

Flow: Server -> here -> operations (`interface`), reload, MQTT over WebSocket at /mqtt.
"""

from collections.abc import Callable

from aiohttp.web import AppRunner

from holdfast import system
from holdfast.broker.admin import front_page
from holdfast.broker.admin.control_socket import ControlSocket
from holdfast.broker.admin.http import server as http
from holdfast.broker.admin.http.protection import Protection
from holdfast.broker.admin.v1 import interface, reloading
from holdfast.broker.admin.v1.staged import Staging
from holdfast.broker.admin.v1.tables import TablesView
from holdfast.broker.observe.bridges import BridgesSeen
from holdfast.broker.observe.cursors import CursorsSeen
from holdfast.broker.observe.environments import EnvironmentsSeen
from holdfast.broker.observe.forecast import Forecast
from holdfast.broker.observe.snapshot import Snapshot, take
from holdfast.broker.observe.subscriptions import SubscriptionsSeen
from holdfast.broker.observe.system_values import SystemValues
from holdfast.broker.observe.tables import Tables
from holdfast.broker.observe.thefts import Thefts
from holdfast.broker.observe.watch import Watch
from holdfast.broker.reload import Reload
from holdfast.broker.server import Server
from holdfast.broker.sockets.connection import show_address
from holdfast.broker.sockets.listeners import refused
from holdfast.broker.sockets.websocket_route import websocket_route
from holdfast.broker.state.broker import look_at
from holdfast.core.config import ENCRYPTED, Config, Effective
from holdfast.core.layout import CONTROL_SOCKET


class Administration:
    """Serves a broker's HTTP interface and keeps its $SYS topics."""

    def __init__(
        self,
        settings: Effective,
        read: Callable[[], Effective],
        server: Server,
        view_path: str,
    ) -> None:
        """`read` finds the settings again for a reload."""
        config = settings.config
        self._server = server
        self._runner: AppRunner | None = None
        self._secure: set[tuple[str, int]] = set()
        self._control_socket = ControlSocket(config.data_dir / CONTROL_SOCKET)
        self.reload = Reload(settings, read, self._reconfigure, system.open_files_limit())
        broker, commands = look_at(server, view_path), server.commands
        watch, forecast = Watch(broker), Forecast(broker)
        cursors = CursorsSeen(broker, forecast)
        bridges = BridgesSeen(broker, forecast)
        subscriptions = SubscriptionsSeen(broker)
        environments = EnvironmentsSeen(broker, Thefts(broker))

        def snapshot() -> Snapshot:
            return take(broker, watch, forecast, cursors, bridges, subscriptions, environments)

        self._system_values = SystemValues(
            commands.show_system_values, snapshot, config.sys_interval_s
        )
        server.observe("watch", watch.look)
        server.observe("forecast", forecast.look)
        server.observe("cursors", cursors.look)
        server.observe("bridges", bridges.look)
        server.observe("subscriptions", subscriptions.look)
        server.observe("environments", environments.look)
        server.observe("system_values", self._system_values.tick)
        self._protection = Protection(
            config.host, metrics_public=config.metrics_public, credentials=server.credentials
        )
        operations = interface.operations(
            broker,
            commands,
            server.cursor_commands,
            server.group_commands,
            watch,
            forecast,
            cursors,
            (server.bridge_commands, bridges),
            environments,
            snapshot,
            self.places,
            lambda: self.reload.settings,
            server.users(),
            Staging(server.batches, server.credentials),
        )
        operations.append(reloading.operation(self.reload.run))
        operations.append(
            front_page.operation(broker.ready, snapshot, broker.now_us, self._protection.permits)
        )
        operations += TablesView(Tables(broker), self._protection.permits).operations()
        self._app = http.application(operations, self._protection, server.steps)
        self._app.add_routes([websocket_route(server.listeners)])

    async def start(self) -> None:
        """Listens. Raises `ListenError`, and listens to nothing then."""
        config = self._server.config
        self._runner = await http.start(self._app)
        try:
            for name, port in config.ports.items():
                for host in config.hosts if name in ("http", "https") else ():
                    await self._listen(host, port, encrypted=name in ENCRYPTED)
            await self._control_socket.listen(self._runner)
        except BaseException:
            await self.close()
            raise

    def places(self) -> list[tuple[str, str]]:
        """Where everything listens that listens: `("mqtt", "127.0.0.1:1883")`."""
        mqtt = self._server.listeners.places()
        found = [(name, place) for name in mqtt for place in mqtt[name]]
        for address in [] if self._runner is None else self._runner.addresses:
            name = "https" if address[:2] in self._secure else "http"
            found.append((name, show_address(*address[:2])))
        return found

    async def close(self) -> None:
        """Listens no more."""
        self._control_socket.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _listen(self, host: str, port: int, *, encrypted: bool) -> None:
        assert self._runner is not None, "it is made before anything listens"
        context = self._server.listeners.http_context() if encrypted else None
        before = set(self._runner.addresses)
        try:
            await http.listen(self._runner, host, port, context)
        except OSError as error:
            raise refused("https" if encrypted else "http", host, port, error) from error
        if encrypted:
            self._secure |= {found[:2] for found in set(self._runner.addresses) - before}

    def _reconfigure(self, config: Config) -> None:
        self._server.reconfigure(config)
        self._protection.metrics_public = config.metrics_public
        self._system_values.interval_s = config.sys_interval_s
