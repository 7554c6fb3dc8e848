"""The process that serves: from settings to a running broker, and to its end.

Owns: what happens at start and at the end, and what is said about it to people. Never: knows what
the broker is made of (`assemble`) or how it is administered.
"""

import asyncio
import logging
import sys
from collections.abc import Callable
from threading import Timer
from typing import TYPE_CHECKING, Final

from holdfast import __version__, system
from holdfast.broker import log_lines, open_files, signals
from holdfast.broker.assemble import assemble
from holdfast.broker.data_directory import held
from holdfast.broker.server import Server
from holdfast.broker.sockets import certificates
from holdfast.broker.supervisor import Supervisor
from holdfast.broker.threads import ThreadsBeside
from holdfast.broker.world import RealWorld
from holdfast.core.config import Config, Effective, is_loopback
from holdfast.core.errors import ConfigurationError
from holdfast.core.settings import show_duration, show_size

if TYPE_CHECKING:
    from holdfast.broker.admin.administration import Administration

log = logging.getLogger(__name__)

EXIT_UNFINISHED: Final = 3
"""The process ended before its stop was complete; the next start recovers."""
DURABILITY_WARNINGS: Final = {
    "os": "durability is os: what is acknowledged does not survive the loss of power",
    "memory": "durability is memory: what is acknowledged does not survive the end of the broker",
}
READERS_MAXIMUM: Final = 8
"""Threads that read the log and files for whoever looks on from outside."""
PLACES: Final = {
    "mqtt": "MQTT on {}",
    "mqtts": "MQTT with TLS on {}",
    "pulsar": "Pulsar on {}",
    "ws": "MQTT over WebSocket on {}",
    "wss": "MQTT over WebSocket with TLS on {}",
    "unix": "MQTT on {}",
    "http": "HTTP, and MQTT over WebSocket at /mqtt, on http://{}",
    "https": "HTTP with TLS, and MQTT over WebSocket at /mqtt, on https://{}",
}


def run(settings: Effective, read: Callable[[], Effective]) -> int:
    """Serves until SIGTERM or SIGINT; returns the exit code. `read` finds the settings again for a
    reload. Raises `OperatingError`, and what the log raises, if it cannot start or cannot go on."""
    config = settings.config
    log_lines.begin(config.logging_level, config.logging_lines_maximum)
    # Before the log is read, which may take a while: a name that is misspelt is found at once.
    certificates.check_files(config)
    signals.ignore_hangup()
    system.raise_open_files_limit()
    system.share_interpreter()
    with held(config.data_dir), asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(settings, read))
    return 0


async def _serve(settings: Effective, read: Callable[[], Effective]) -> None:
    readers = ThreadsBeside(READERS_MAXIMUM, "reader")
    asyncio.get_running_loop().set_default_executor(readers)
    supervisor = Supervisor(system.environment(), system.process_id())
    world = RealWorld()
    server = assemble(settings.config, world)
    administration = None
    try:
        _check_exposure(settings.config, server)
        signals.listen_for_end(server.request_stop)
        # Clients that come back after a crash wait for this, not for what looks on from outside.
        await server.start()
        make = await asyncio.to_thread(_import_administration, settings.config)
        administration = make(settings, read, server, world.view_path(settings.config))
        reload = administration.reload

        def on_hangup() -> None:
            supervisor.reloading(int(system.monotonic_s() * 1_000_000))
            reload.on_signal()
            supervisor.ready()

        signals.listen_for_hangup(on_hangup)
        await administration.start()
        _announce(settings.config, administration.places())
        server.start_bridges()
        system.calm_garbage_collector()
        supervisor.ready()
        await server.wait_ended()
        supervisor.stopping()
        deadline = _end_within(reload.settings.config.stop_timeout_s)
    except BaseException:
        server.abandon()
        raise
    finally:
        supervisor.close()
        if administration is not None:
            await administration.close()
    await server.stop()
    deadline.cancel()


def _import_administration(config: Config) -> type["Administration"]:
    """Takes as long as the start of all the rest, so it is called on a thread, behind that."""
    # What the first sweep asks for: some 60 ms of the loop if it had to load it.
    import holdfast.core.cron

    if config.http_port is not None or config.http_tls_port is not None:
        # What the first reader asks for: a tenth of a second in which the loop hardly gets on.
        import holdfast.reading.columns  # noqa: F401
    from holdfast.broker.admin.administration import Administration

    return Administration


def _end_within(seconds: int) -> Timer:
    words = (
        f"holdfast: not stopped within {seconds} s (stop.timeout_s), ended as it is; nothing"
        " acknowledged is lost, and the next start recovers"
    )
    return system.end_process_within(seconds, EXIT_UNFINISHED, words)


def _check_exposure(config: Config, server: Server) -> None:
    if is_loopback(config.host) or config.anonymous or server.requires_credentials():
        return
    raise ConfigurationError(
        f"listen.host: {config.host} can be reached from other machines, and no credentials are set"
        f" up; set one up with `holdfast user add NAME --data-dir {config.data_dir}`, or say"
        " --access-anonymous (or access.anonymous = true) if everybody may connect"
    )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _announce(config: Config, places: list[tuple[str, str]]) -> None:
    """Says to people what runs, and where."""
    lines = [f"holdfast {__version__}"]
    lines += [PLACES[name].format(place) for name, place in places]
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
    addresses: dict[str, list[str]] = {}
    for name, place in places:
        addresses.setdefault(name, []).append(place)
    fields = {
        **{name: ",".join(addresses[name]) for name in addresses},
        "data_dir": config.data_dir.absolute(),
        "durability": config.durability,
    }
    log.info("serving", extra={"fields": fields})
