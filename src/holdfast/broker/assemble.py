"""Builds the broker's parts and joins them: the file to read first.

`assemble` is given a world, the real one or a simulated one; `run` is what the command line calls.
The parts are built from the kernel's stages outward, so that each is handed what it calls.
"""

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from threading import Timer

from aiohttp.web import AppRunner

from holdfast import __version__, system
from holdfast.broker import log_lines, open_files, signals
from holdfast.broker.admin import http, interface, reloading
from holdfast.broker.admin.control_socket import ControlSocket
from holdfast.broker.admin.protection import Protection
from holdfast.broker.admin.snapshot import take
from holdfast.broker.admin.system_values import SystemValues
from holdfast.broker.admin.watch import Watch
from holdfast.broker.data_directory import held
from holdfast.broker.dispatch.groups import Groups
from holdfast.broker.dispatch.loopback import Loopback
from holdfast.broker.dispatch.losses import Losses
from holdfast.broker.dispatch.parties import Parties
from holdfast.broker.dispatch.sessions import Sessions
from holdfast.broker.dispatch.wills import Wills
from holdfast.broker.ingress.admission import Admission
from holdfast.broker.ingress.closing import Closing
from holdfast.broker.ingress.connection import Connections, show_address
from holdfast.broker.ingress.control_packets import ControlPackets
from holdfast.broker.ingress.listeners import refused
from holdfast.broker.reload import Reload
from holdfast.broker.route.system_topics import SystemTopics
from holdfast.broker.schedule import Schedule
from holdfast.broker.server import Server
from holdfast.broker.stages import KernelStages
from holdfast.broker.store import recovery
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.durability import Promises
from holdfast.broker.store.view import View
from holdfast.broker.supervisor import Supervisor
from holdfast.broker.turn import Stages
from holdfast.broker.world import RealWorld, World
from holdfast.core.config import Config, Effective
from holdfast.core.layout import CONTROL_SOCKET
from holdfast.core.limits import READ_BUFFER_BYTES
from holdfast.core.settings import show_duration, show_size
from holdfast.kernel import Dispatch, Inbox, Outboxes, Routes

log = logging.getLogger(__name__)

DURABILITY_WARNINGS = {
    "os": "durability is os: what is acknowledged does not survive the loss of power",
    "memory": "durability is memory: what is acknowledged does not survive the end of the broker",
}
PLACES = {
    "mqtt": "MQTT",
    "mqtts": "MQTT with TLS",
    "ws": "MQTT over WebSocket",
    "wss": "MQTT over WebSocket with TLS",
    "unix": "MQTT",
}


EXIT_UNFINISHED = 3
"""The process ended before its stop was complete; the next start recovers."""


def assemble(config: Config, world: World) -> Server:
    """Opens the log in `world` and builds the broker on it; nothing listens yet.

    Must be called inside the event loop that will run it. Raises what `Log.open` raises.
    """
    schedule = Schedule(asyncio.get_running_loop())
    counts: Counter[str] = Counter()
    kernel, records = _open(config, world)
    commits = world.commits(kernel.log, schedule.committed)

    promises = Promises(schedule.soon)
    losses = Losses(records)
    loopback = Loopback(kernel, counts)
    wills = Wills(loopback, counts)
    parties = Parties(records)
    groups = Groups(config, kernel, records, losses, parties)
    sessions = Sessions(config, kernel, records, losses, wills, parties, groups)
    system_topics = SystemTopics()
    connections = Connections(config, world, kernel, schedule, counts)
    closing = Closing(connections, sessions, counts)
    admission = Admission(config, world, kernel, connections, closing, sessions, counts)
    control_packets = ControlPackets(
        config, kernel, connections, admission, closing, sessions, groups, counts, system_topics
    )
    stages = Stages(
        kernel=kernel,
        connections=connections,
        control_packets=control_packets,
        admission=admission,
        closing=closing,
        sessions=sessions,
        groups=groups,
        loopback=loopback,
        system_topics=system_topics,
        wills=wills,
        losses=losses,
        promises=promises,
        commits=commits,
    )
    orphaned = sessions.recover(world.now_us())
    groups.recover(world.now_us())
    if orphaned:
        log.info("sessions found connected", extra={"fields": {"sessions": orphaned}})
    return Server(config, world, stages, records, schedule, counts)


def run(settings: Effective, read: Callable[[], Config]) -> int:
    """Serves until SIGTERM or SIGINT; returns the exit code. `read` finds the settings again for a
    reload. Raises `OperatingError`, and what the log raises, if it cannot start or cannot go on."""
    config = settings.config
    log_lines.begin(config.log_level, config.log_lines_maximum)
    signals.ignore_hangup()
    system.raise_open_files_limit()
    with held(config.data_dir), asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(settings, read))
    return 0


async def _serve(settings: Effective, read: Callable[[], Config]) -> None:
    config = settings.config
    supervisor = Supervisor(system.environment(), system.process_id())
    server = assemble(config, RealWorld())
    watch = _observe(server)
    reload = Reload(config, read, server.reconfigure, system.open_files_limit())

    def on_hangup() -> None:
        supervisor.reloading(int(system.monotonic_s() * 1_000_000))
        reload.on_signal()
        supervisor.ready()

    signals.listen(stop=server.request_stop, reload=on_hangup)
    web = None
    control_socket = ControlSocket(config.data_dir / CONTROL_SOCKET)
    try:
        await server.start()
        web = await _serve_http(settings, server, watch, reload)
        await control_socket.listen(web)
        _announce(config, server, web.addresses)
        system.calm_garbage_collector()
        supervisor.ready()
        await server.wait_ended()
        supervisor.stopping()
        deadline = _end_within(reload.config.stop_timeout_s)
    except BaseException:
        server.abandon()
        raise
    finally:
        supervisor.close()
        control_socket.close()
        if web is not None:
            await web.cleanup()
    await server.stop()
    deadline.cancel()


def _end_within(seconds: int) -> Timer:
    words = (
        f"holdfast: not stopped within {seconds} s (stop_timeout_s), ended as it is; nothing"
        " acknowledged is lost, and the next start recovers"
    )
    return system.end_process_within(seconds, EXIT_UNFINISHED, words)


async def _serve_http(
    settings: Effective, server: Server, watch: Watch, reload: Reload
) -> AppRunner:
    config = settings.config
    found: list[AppRunner] = []

    def listeners() -> list[tuple[str, str]]:
        places = server.listeners.places()
        web = [address for runner in found for address in runner.addresses]
        return [
            *((name, place) for name in places for place in places[name]),
            *(("http", show_address(*address[:2])) for address in web),
        ]

    view_path = RealWorld().view_path(config)
    operations = interface.operations(server, watch, view_path, listeners, settings.origins)
    operations.append(reloading.operation(reload.run))
    protection = Protection(config.host, metrics_public=config.metrics_public)
    app = http.application(operations, protection)
    app.add_routes([server.websocket_route()])
    runner = await http.start(app)
    found.append(runner)
    port = config.http_port
    for host in config.hosts:
        try:
            if port is not None:
                await http.listen(runner, host, port)
        except OSError as error:
            await runner.cleanup()
            raise refused(host, port or 0, error) from error
    return runner


def _observe(server: Server) -> Watch:
    stages = server.stages
    watch = Watch(stages.kernel, stages.sessions, stages.connections, server.counts)
    server.sweep.observers.append(watch.look)
    interval_s = server.config.sys_interval_s
    if interval_s:
        values = SystemValues(
            stages.system_topics,
            stages.loopback,
            stages.kernel,
            lambda: take(server, watch),
            interval_s,
        )
        server.sweep.observers.append(values.tick)
    return watch


def _open(config: Config, world: World) -> tuple[KernelStages, ControlRecords]:
    began_us = world.now_us()
    kernel_log, found = world.open_log(config)
    records = ControlRecords(kernel_log, View(world.view_path(config)))
    count = records.recover(found["control_number"])
    seconds = (world.now_us() - began_us) / 1_000_000
    recovery.report(found, control_records=count, seconds=seconds)
    read_buffer = bytearray(READ_BUFFER_BYTES)
    stages = KernelStages(
        read_buffer=read_buffer,
        inbox=Inbox(read_buffer),
        routes=Routes(world.seed()),
        log=kernel_log,
        dispatch=Dispatch(),
        outboxes=Outboxes(),
    )
    return stages, records


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _announce(config: Config, server: Server, web: Sequence[tuple[str, int]]) -> None:
    """Says to people what runs, and where."""
    lines = [f"holdfast {__version__}"]
    places = server.listeners.places()
    http_places = [show_address(*address[:2]) for address in web]
    lines += [f"{PLACES[name]} on {place}" for name in places for place in places[name]]
    lines += [f"HTTP, and MQTT over WebSocket at /mqtt, on http://{place}" for place in http_places]
    lines.append(f"data in {config.data_dir.absolute()}")
    kept = show_duration(config.retention_age_s)
    lines.append(f"messages are kept for {kept}, at most {show_size(config.retention_bytes)}")
    if config.durability in DURABILITY_WARNINGS:
        lines.append(DURABILITY_WARNINGS[config.durability])
        log.warning(DURABILITY_WARNINGS[config.durability])
    too_few_files = open_files.warning(config, system.open_files_limit())
    if too_few_files is not None:
        lines.append(too_few_files)
        log.warning(too_few_files)
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
    fields = {
        **{name: ",".join(places[name]) for name in places},
        "http": ",".join(http_places),
        "data_dir": config.data_dir.absolute(),
        "durability": config.durability,
    }
    log.info("serving", extra={"fields": fields})
