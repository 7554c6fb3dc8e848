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
from holdfast.core.sections.applications import ApplicationsSection
from holdfast.core.sections.connections import ConnectionsSection
from holdfast.core.sections.network import NetworkSection
from holdfast.core.sections.observation import ObservationSection
from holdfast.core.sections.protection import ProtectionSection
from holdfast.core.sections.sessions import SessionsSection
from holdfast.core.sections.shared import SharedSection
from holdfast.core.sections.storage import StorageSection
from holdfast.core.settings import Setting, show_size
from holdfast.core.sources import Sources, parse
from holdfast.core.units import GB, KIB, MIB

RETENTION_BYTES_DEFAULT_MAXIMUM: Final = 10 * GB
RETENTION_DISK_SHARE: Final = 10
RECORD_OVERHEAD_BYTES_MAXIMUM: Final = 128 * KIB


@dataclass(frozen=True, kw_only=True)
class Config(
    # The last one comes first in the table.
    ConnectionsSection,
    ApplicationsSection,
    SharedSection,
    SessionsSection,
    StorageSection,
    ObservationSection,
    ProtectionSection,
    NetworkSection,
):
    """Every setting with its effective value. A field's name is its key."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The addresses to listen on, one by one."""
        return tuple(self.host.split(","))

    @property
    def ports(self) -> dict[str, int]:
        """The TCP listeners that are wanted, by the names of their settings."""
        wanted = {
            "mqtt_port": self.mqtt_port,
            "mqtts_port": self.mqtts_port,
            "ws_port": self.ws_port,
            "wss_port": self.wss_port,
            "http_port": self.http_port,
            "https_port": self.https_port,
        }
        return {key: port for key, port in wanted.items() if port is not None}


def _rows() -> Mapping[str, Setting]:
    rows = {}
    for field in fields(Config):
        row: Setting = field.metadata["setting"]
        rows[field.name] = replace(row, key=field.name)
    return MappingProxyType(rows)


SETTINGS: Final = _rows()
"""The table: every setting by its key, in the order in which `config show` prints them."""


@dataclass(frozen=True, slots=True)
class Effective:
    """What is in force, and where each value came from."""

    config: Config
    origins: Mapping[str, str]
    """Key to place: `default`, `holdfast.toml`, `HOLDFAST_HOST`, `--host`."""


def load(
    *,
    file: tuple[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
    disk_bytes: Callable[[Path], int],
) -> Effective:
    """Find the effective value of every setting.

    `file` is a name and its TOML text; `options` are those given on the command line, by key.
    `disk_bytes` tells the size of the disk that a directory lies on. Raises `ConfigurationError`.
    """
    written = Sources(SETTINGS).written(file, environment or {}, options or {})
    values: dict[str, Any] = {key: parse(SETTINGS[key], item) for key, item in written.items()}
    config = Config(**values)
    origins = {key: written[key].place if key in written else "default" for key in SETTINGS}
    if not config.retention_bytes:
        tenth = disk_bytes(config.data_dir) // RETENTION_DISK_SHARE
        chosen = max(MIB, min(RETENTION_BYTES_DEFAULT_MAXIMUM, tenth))
        config = replace(config, retention_bytes=chosen)
        origins["retention_bytes"] += " (auto)"
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
            f"{_place(origins, 'client_bytes_per_second')}{show_size(most)} is"
            " less than one packet of maximum_packet_size_bytes"
        )
    low, high = config.write_buffer_low_bytes, config.write_buffer_high_bytes
    if low > high:
        raise ConfigurationError(
            f"{_place(origins, 'write_buffer_low_bytes')}{show_size(low)} is more than"
            f" write_buffer_high_bytes, {show_size(high)}"
        )
    least = config.maximum_packet_size_bytes + RECORD_OVERHEAD_BYTES_MAXIMUM
    if config.segment_bytes < least:
        raise ConfigurationError(
            f"{_place(origins, 'segment_bytes')}{show_size(config.segment_bytes)} cannot"
            f" hold one record of maximum_packet_size_bytes; at least {show_size(least)} is needed"
        )


def _check_listeners(config: Config, origins: Mapping[str, str]) -> None:
    if not config.ports and config.mqtt_unix_socket is None:
        raise ConfigurationError("every port and mqtt_unix_socket are off: nothing would listen")
    taken: dict[int, str] = {}
    for key, number in config.ports.items():
        other = taken.setdefault(number, key)
        if number and other != key:
            raise ConfigurationError(f"{other} and {key} are both {number}")
    for key in ("mqtts_port", "wss_port", "https_port"):
        if key in config.ports and config.tls_certificate is None:
            raise ConfigurationError(
                f"{_place(origins, key)}it needs tls_certificate, which is off"
            )
    if config.tls_client_certificates != "off" and config.tls_client_ca is None:
        raise ConfigurationError(
            f"{_place(origins, 'tls_client_certificates')}{config.tls_client_certificates}, but"
            " there is no tls_client_ca to say which of them are good"
        )


def _place(origins: Mapping[str, str], key: str) -> str:
    return f"{origins[key]}: {key}: " if key in origins else f"{key}: "
