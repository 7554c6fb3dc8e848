"""Builds the broker's parts and joins them: the file to read first.

`assemble` is given a world, the real one or a simulated one; `run` is what the command line calls.
The parts are built from the kernel's stages outward, so that each is handed what it calls.
"""

import asyncio
import logging
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence

from aiohttp.web import AppRunner

from holdfast import __version__, system
from holdfast.broker import log_lines
from holdfast.broker.admin import http
from holdfast.broker.data_directory import held
from holdfast.broker.dispatch.losses import Losses
from holdfast.broker.dispatch.sessions import Sessions
from holdfast.broker.dispatch.wills import Wills
from holdfast.broker.ingress.admission import Admission
from holdfast.broker.ingress.closing import Closing
from holdfast.broker.ingress.connection import Connections, show_address
from holdfast.broker.ingress.control_packets import ControlPackets
from holdfast.broker.ingress.listeners import refused
from holdfast.broker.schedule import Schedule
from holdfast.broker.server import Server
from holdfast.broker.stages import KernelStages
from holdfast.broker.store import recovery
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.store.view import View
from holdfast.broker.turn import Stages
from holdfast.broker.world import RealWorld, World
from holdfast.core.config import Config
from holdfast.core.layout import LOG_DIRECTORY
from holdfast.core.limits import READ_BUFFER_BYTES
from holdfast.core.settings import show_duration, show_size
from holdfast.kernel import Dispatch, Inbox, Outboxes, Routes
from holdfast.protocols.mqtt.handshake import Offer
from holdfast.protocols.mqtt.session import SessionPolicy

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


def assemble(config: Config, world: World) -> Server:
    """Opens the log in `world` and builds the broker on it; nothing listens yet.

    Must be called inside the event loop that will run it. Raises what `Log.open` raises.
    """
    schedule = Schedule(asyncio.get_running_loop())
    counts: Counter[str] = Counter()
    offer = _offer(config)
    kernel, records = _open(config, world)
    commits = world.commits(kernel.log, schedule.committed)

    losses = Losses(records)
    wills = Wills(kernel, counts)
    sessions = Sessions(config, kernel, records, losses, wills)
    connections = Connections(config, world, kernel, schedule, counts)
    closing = Closing(connections, sessions, counts)
    admission = Admission(offer, world, kernel, connections, closing, sessions, counts)
    control_packets = ControlPackets(
        offer, kernel, connections, admission, closing, sessions, counts
    )
    stages = Stages(
        kernel=kernel,
        connections=connections,
        control_packets=control_packets,
        admission=admission,
        closing=closing,
        sessions=sessions,
        wills=wills,
        losses=losses,
        commits=commits,
    )
    orphaned = sessions.recover(world.now_us())
    if orphaned:
        log.info("sessions found connected", extra={"fields": {"sessions": orphaned}})
    return Server(config, world, stages, records, schedule, counts)


def run(config: Config) -> int:
    """Serves until SIGTERM or SIGINT; returns the exit code. Raises `OperatingError`, and what the
    log raises, if it cannot start or cannot go on."""
    log_lines.begin(config.log_level)
    system.raise_open_files_limit()
    with held(config.data_dir), asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(config))
    return 0


async def _serve(config: Config) -> None:
    server = assemble(config, RealWorld())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.request_stop)
    web = None
    try:
        await server.start()
        if config.http_port is not None:
            web = await _serve_http(config, config.http_port, server)
        _announce(config, server, [] if web is None else web.addresses)
        await server.wait_ended()
    except BaseException:
        server.abandon()
        raise
    finally:
        if web is not None:
            await web.cleanup()
    await server.stop()


async def _serve_http(config: Config, port: int, server: Server) -> AppRunner:
    app = http.application(
        data_dir=str(config.data_dir / LOG_DIRECTORY),
        durable_offset=server.durable_offset,
        ready=server.ready,
        statistics=server.statistics,
        retention={"age_s": config.retention_age_s, "bytes": config.retention_bytes},
    )
    app.add_routes([server.websocket_route()])
    try:
        return await http.start(app, config.hosts, port)
    except OSError as error:
        raise refused(config.host, port, error) from error


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


def _offer(config: Config) -> Offer:
    return Offer(
        receive_maximum=config.receive_maximum,
        maximum_packet_size_bytes=config.maximum_packet_size_bytes,
        topic_alias_maximum=config.topic_alias_maximum,
        keep_alive_maximum_s=config.keep_alive_maximum_s,
        sessions=SessionPolicy(
            expiry_maximum_s=config.session_expiry_maximum_s,
            ttl_s=config.session_ttl_s,
            strict_expiry=config.strict_session_expiry,
        ),
    )


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
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
    fields = {
        **{name: ",".join(places[name]) for name in places},
        "http": ",".join(http_places),
        "data_dir": config.data_dir.absolute(),
        "durability": config.durability,
    }
    log.info("serving", extra={"fields": fields})
