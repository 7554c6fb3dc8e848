"""The table of settings, and the effective value of each.

Owns: the whole table, made of `sections`, which hold each setting's default and reason and say
which of them a running broker takes over (`reloadable`); what contradicts what. Never: reads a
file, the environment or the host; those are arguments, and `sources` looks into them.

Invariants:
1. Each effective value knows where it came from.
2. A `Config` never changes; a reload makes another one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from holdfast.core.errors import ConfigurationError
from holdfast.core.sections import TABLES
from holdfast.core.sections.access import AccessSection
from holdfast.core.sections.applications import ApplicationsSection
from holdfast.core.sections.bridges import BridgesSection
from holdfast.core.sections.cursors import CursorsSection
from holdfast.core.sections.environments import EnvironmentsSection
from holdfast.core.sections.network import NetworkSection
from holdfast.core.sections.observation import ObservationSection
from holdfast.core.sections.protocols import ProtocolsSection
from holdfast.core.sections.sessions import SessionsSection
from holdfast.core.sections.shared import SharedSection
from holdfast.core.sections.storage import StorageSection
from holdfast.core.settings import Setting, show_size
from holdfast.core.sources import Sources, parse
from holdfast.core.units import GB, KIB, MB, MIB

RETENTION_BYTES_DEFAULT_MAXIMUM: Final = 10 * GB
RETENTION_DISK_SHARE: Final = 10
UNIX_ADDRESS_BYTES_MAXIMUM: Final = 107
"""What Linux has room for in the address of a Unix domain socket."""

RECORD_OVERHEAD_BYTES_MAXIMUM: Final = 128 * KIB
LISTENERS: Final = MappingProxyType(
    {
        "mqtt": "mqtt.port",
        "mqtts": "mqtt.tls_port",
        "ws": "ws.port",
        "wss": "ws.tls_port",
        "pulsar": "pulsar.port",
        "http": "http.port",
        "https": "http.tls_port",
    }
)
"""TCP listeners by the names that they are shown by, and the settings of their ports."""
ENCRYPTED: Final = ("mqtts", "wss", "https")
"""Those that need a certificate."""


@dataclass(frozen=True, kw_only=True)
class Config(
    NetworkSection,
    ProtocolsSection,
    AccessSection,
    SessionsSection,
    ApplicationsSection,
    SharedSection,
    EnvironmentsSection,
    CursorsSection,
    BridgesSection,
    StorageSection,
    ObservationSection,
):
    """Every setting with its effective value."""

    bridge_tables: tuple[Mapping[str, object], ...] = ()
    """The tables `[[bridge]]` as they are written; `broker.bridge` says what they mean."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The addresses to listen on, one by one."""
        return tuple(self.host.split(","))

    @property
    def ports(self) -> dict[str, int]:
        """Where the TCP listeners listen that are wanted, by their names."""
        wanted = {
            "mqtt": self.mqtt_port,
            "mqtts": self.mqtt_tls_port,
            "ws": self.ws_port,
            "wss": self.ws_tls_port,
            "pulsar": self.pulsar_port,
            "http": self.http_port,
            "https": self.http_tls_port,
        }
        return {name: port for name, port in wanted.items() if port is not None}

    @property
    def pulsar_message_bytes(self) -> int:
        """The largest message that Pulsar clients are told of: what is configured, or less where a
        segment or what a client may send in a second holds less."""
        room = [self.pulsar_max_message_bytes, self.segment_bytes - RECORD_OVERHEAD_BYTES_MAXIMUM]
        if self.client_bytes_per_second:
            room.append(max(self.client_bytes_per_second - RECORD_OVERHEAD_BYTES_MAXIMUM, KIB))
        return min(room)


def _rows() -> Mapping[str, Setting]:
    described = [field for field in fields(Config) if "setting" in field.metadata]
    rows = [replace(field.metadata["setting"], attribute=field.name) for field in described]
    in_order = [row for table in TABLES for row in rows if row.table == table]
    return MappingProxyType({row.name: row for row in in_order})


SETTINGS: Final = _rows()
"""Every setting by its full name, in the order in which `config show` prints them."""
BY_ATTRIBUTE: Final = MappingProxyType({row.attribute: row for row in SETTINGS.values()})
"""The same by what `Config` calls them."""


@dataclass(frozen=True, slots=True)
class Effective:
    """What is in force, and where each value came from."""

    config: Config
    origins: Mapping[str, str]
    """Name to place: `default`, `holdfast.toml`, `HOLDFAST_MQTT_PORT`, `--mqtt-port`."""


def load(
    *,
    file: tuple[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
    disk_bytes: Callable[[Path], int],
) -> Effective:
    """Find the effective value of every setting.

    `file` is a name and its TOML text; `options` are those given on the command line, by the full
    names of their settings.
    `disk_bytes` tells the size of the disk that a directory lies on. Raises `ConfigurationError`.
    """
    sources = Sources(SETTINGS)
    written = sources.written(file, environment or {}, options or {})
    values: dict[str, Any] = {
        SETTINGS[name].attribute: parse(SETTINGS[name], item) for name, item in written.items()
    }
    config = Config(**values, bridge_tables=sources.bridge_tables)
    origins = {name: written[name].place if name in written else "default" for name in SETTINGS}
    if not config.retention_bytes:
        # Whole megabytes, so that people read a number of few digits.
        tenth = disk_bytes(config.data_dir) // RETENTION_DISK_SHARE // MB * MB
        chosen = max(MIB, min(RETENTION_BYTES_DEFAULT_MAXIMUM, tenth))
        config = replace(config, retention_bytes=chosen)
        origins["log.retention_bytes"] += " (auto)"
    check(config, origins)
    return Effective(config, MappingProxyType(origins))


def is_loopback(host: str) -> bool:
    """True if only this machine can reach listeners on `host`, one address or several."""
    return all(_is_loopback(item) for item in host.split(","))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check(config: Config, origins: Mapping[str, str] = MappingProxyType({})) -> None:
    """Refuse what contradicts itself; `origins` tells where a value is to be corrected. Raises
    `ConfigurationError`."""
    _check_listeners(config, origins)
    most = config.client_bytes_per_second
    if most and most < config.maximum_packet_size_bytes:
        raise ConfigurationError(
            f"{_place(origins, 'limits.client_bytes_per_second')}{show_size(most)} is"
            " less than one packet of mqtt.maximum_packet_size_bytes"
        )
    low, high = config.write_buffer_low_bytes, config.write_buffer_high_bytes
    if low > high:
        raise ConfigurationError(
            f"{_place(origins, 'limits.write_buffer_low_bytes')}{show_size(low)} is more than"
            f" limits.write_buffer_high_bytes, {show_size(high)}"
        )
    least = config.maximum_packet_size_bytes + RECORD_OVERHEAD_BYTES_MAXIMUM
    if config.segment_bytes < least:
        raise ConfigurationError(
            f"{_place(origins, 'log.segment_bytes')}{show_size(config.segment_bytes)} cannot hold"
            f" one record of mqtt.maximum_packet_size_bytes; at least {show_size(least)} is needed"
        )


def _check_listeners(config: Config, origins: Mapping[str, str]) -> None:
    if not config.ports and config.mqtt_unix_socket is None:
        raise ConfigurationError("every port and mqtt.unix_socket are off: nothing would listen")
    path_bytes = len(str(config.mqtt_unix_socket or "").encode(errors="surrogateescape"))
    if path_bytes > UNIX_ADDRESS_BYTES_MAXIMUM:
        raise ConfigurationError(
            f"{_place(origins, 'mqtt.unix_socket')}{config.mqtt_unix_socket} has"
            f" {path_bytes} bytes, and the address of a socket has room for"
            f" {UNIX_ADDRESS_BYTES_MAXIMUM}"
        )
    taken: dict[int, str] = {}
    for listener, number in config.ports.items():
        other = taken.setdefault(number, listener)
        if number and other != listener:
            both = f"{LISTENERS[other]} and {LISTENERS[listener]}"
            raise ConfigurationError(f"{both} are both {number}")
    for listener in ENCRYPTED:
        if listener in config.ports and config.tls_certificate is None:
            place = _place(origins, LISTENERS[listener])
            raise ConfigurationError(f"{place}it needs tls.certificate, which is off")
    if config.tls_client_certificates != "off" and config.tls_client_ca is None:
        raise ConfigurationError(
            f"{_place(origins, 'tls.client_certificates')}{config.tls_client_certificates}, but"
            " there is no tls.client_ca to say which of them are good"
        )


def _place(origins: Mapping[str, str], name: str) -> str:
    return f"{origins[name]}: {name}: " if name in origins else f"{name}: "
