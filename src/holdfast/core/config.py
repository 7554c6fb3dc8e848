"""The table of settings, and the effective value of each.

Owns: which settings exist, their defaults and reasons, which of them a running broker takes over
(`reloadable`); what contradicts what. Never: reads a file, the environment or the host; those are
arguments, and `sources` looks into them.

Invariants:
1. Each effective value knows where it came from.
2. A `Config` never changes; a reload makes another one.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from ipaddress import ip_address, ip_network
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from holdfast.core import limits
from holdfast.core.errors import ConfigurationError
from holdfast.core.settings import (
    Setting,
    addresses,
    boolean,
    choice,
    duration,
    integer,
    mode,
    or_automatic,
    or_off,
    path,
    port,
    setting,
    show_size,
    size,
    texts,
)
from holdfast.core.sources import Sources, parse

KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30
GB: Final = 10**9
WEEK_S: Final = 604_800
CENTURY_S: Final = 100 * 365 * 86_400

RETENTION_BYTES_DEFAULT_MAXIMUM: Final = 10 * GB
RETENTION_DISK_SHARE: Final = 10
RECORD_OVERHEAD_BYTES_MAXIMUM: Final = 128 * KIB


_PROXIED: Final = ("mqtt", "mqtts", "ws", "wss")


def _is_origin_like(item: str) -> bool:
    return item == "*" or re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/\s]+", item) is not None


def _is_network(item: str) -> bool:
    try:
        ip_network(item)
    except ValueError:
        return False
    return True


def _is_filter_like(item: str) -> bool:
    # The kernel judges filters; here only what could never be one is refused.
    return bool(item) and "\0" not in item and len(item.encode()) <= 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Every setting with its effective value. A field's name is its key."""

    data_dir: Path = setting(
        path(),
        "holdfast-data",
        "Where the log and everything derived from it lie. One process holds it at a time.",
    )
    host: str = setting(
        addresses(),
        "127.0.0.1",
        """The addresses to listen on; 0.0.0.0 is every IPv4 address and :: every IPv6 address.
        Loopback, because a default start has no credentials.""",
    )
    mqtt_port: int | None = setting(
        port(),
        1883,
        "The MQTT listener; 1883 is MQTT's registered port.",
    )
    http_port: int | None = setting(
        port(),
        8080,
        "The HTTP listener: health, metrics, administration, the read interface, WebSocket.",
    )
    https_port: int | None = setting(
        port(),
        "off",
        """The HTTP listener with TLS, where passwords do not pass in the clear; 8443 is customary.
        Off, because it needs tls_certificate. With it, http_port can be off.""",
    )
    anonymous: bool = setting(
        boolean(),
        False,
        """The explicit word that clients without credentials are wanted. Without it they are taken
        on loopback alone, and only while no credentials are set up.""",
    )
    mqtts_port: int | None = setting(
        port(),
        "off",
        """The MQTT listener with TLS; 8883 is its registered port. Off, because it needs
        tls_certificate.""",
    )
    ws_port: int | None = setting(
        port(),
        "off",
        """A listener for MQTT over WebSocket alone; 8083 is customary. Off, because the HTTP
        listener takes WebSocket at /mqtt.""",
    )
    wss_port: int | None = setting(
        port(),
        "off",
        """A listener for MQTT over WebSocket with TLS; 8084 is customary. Off, because it needs
        tls_certificate.""",
    )
    mqtt_unix_socket: Path | None = setting(
        or_off(path()),
        "off",
        "A Unix domain socket for MQTT, for clients on this machine.",
    )
    mqtt_unix_socket_mode: int = setting(
        mode(),
        "0660",
        "Who may open mqtt_unix_socket: its owner and its group.",
    )
    tls_certificate: Path | None = setting(
        or_off(path()),
        "off",
        """The certificate of the TLS listeners in PEM, followed by those between it and the root.
        It is read again on reload.""",
        reloadable=True,
    )
    tls_key: Path | None = setting(
        or_off(path()),
        "off",
        "The private key of tls_certificate in PEM, without a passphrase; off: it is in that file.",
        reloadable=True,
    )
    tls_client_ca: Path | None = setting(
        or_off(path()),
        "off",
        "The certificates in PEM that may sign those of clients.",
        reloadable=True,
    )
    tls_client_certificates: Literal["off", "optional", "required"] = setting(
        choice("off", "optional", "required"),
        "off",
        """Whether clients of the TLS listeners are asked for a certificate; one that
        tls_client_ca has not signed is refused in any case.""",
        reloadable=True,
    )
    ws_origins: tuple[str, ...] = setting(
        texts(_is_origin_like, "an origin such as https://example.com, or *"),
        "",
        """Web pages that may open a WebSocket, by their origin; * is all of them. Without any:
        those of the host that the page asks for, and on loopback that must be localhost. Any other
        would come from inside the reader's network, and from the reader's own machine.""",
        reloadable=True,
    )
    proxy_protocol: tuple[str, ...] = setting(
        texts(_PROXIED.__contains__, f"one of {', '.join(_PROXIED)}"),
        "",
        """TCP listeners that stand behind a proxy and take nothing but connections that begin with
        a header of the PROXY protocol, version 2.""",
    )
    proxy_protocol_from: tuple[str, ...] = setting(
        texts(_is_network, "an address or a network such as 10.0.0.0/8"),
        "127.0.0.0/8,::1",
        "Where the proxy's connections come from. Whoever else came with a header could lie in it.",
        reloadable=True,
    )
    login_failures_maximum: int = setting(
        integer(0, 1_000_000),
        10,
        """Failed logins of one address after which it is not looked at for login_ban_s, and of one
        user after which it is looked at once in login_delay_s. Who types a password wrong stays
        below; who guesses does not. 0: never.""",
        reloadable=True,
    )
    login_ban_s: int = setting(
        duration(1, 86_400),
        "1m",
        """How long an address is banned, and how long failures are counted together: ten guesses a
        minute find no password, and a device that was given the right one need not wait long.""",
        reloadable=True,
    )
    login_delay_s: int = setting(
        duration(0, 5),
        "1s",
        """How long the answer to a failed login waits. Less than a device notices among its
        retries, and more than guessing can bear.""",
        reloadable=True,
    )
    connections_per_second: int = setting(
        integer(0, 1_000_000),
        0,
        """CONNECTs that are taken in one second; more are refused with 0x9F. 0: without limit, for
        a fleet should be back quickly.""",
        reloadable=True,
    )
    client_messages_per_second: int = setting(
        integer(0, 2**32 - 1),
        0,
        """Messages that one client may send in one second; who sends more is disconnected with
        0x96. A credential may say otherwise. 0: without limit.""",
        reloadable=True,
    )
    client_bytes_per_second: int = setting(
        size(0, 2**32 - 1),
        0,
        """Bytes that one client may send in one second, at least one packet of
        maximum_packet_size_bytes; as client_messages_per_second otherwise.""",
        reloadable=True,
    )
    broker_messages_per_second: int = setting(
        integer(0, 2**32 - 1),
        0,
        """Messages that are read in one second from all clients together; what comes faster waits
        in their sockets. 0: without limit.""",
        reloadable=True,
    )
    broker_bytes_per_second: int = setting(
        size(0, 2**32 - 1),
        0,
        "Bytes that are read in one second, as broker_messages_per_second.",
        reloadable=True,
    )

    log_level: Literal["debug", "info", "warning", "error"] = setting(
        choice("debug", "info", "warning", "error"),
        "info",
        "The least severe kind of line that is logged.",
        reloadable=True,
    )
    stop_timeout_s: int = setting(
        duration(1, 3_600),
        "60s",
        """How long a clean stop may take before the process ends as it is, with exit code 3: a disk
        that does not answer must not hold up a restart. Nothing acknowledged is lost.""",
        reloadable=True,
    )
    log_lines_maximum: int = setting(
        integer(1, 1_000_000),
        100,
        """Lines of one kind of event in a second; further ones are left out, and the next line of
        the kind says how many. A fleet that reconnects would make thousands of lines a second, of
        some ten microseconds each; metrics count them all.""",
        reloadable=True,
    )
    sys_interval_s: int = setting(
        duration(0, 86_400),
        "10s",
        """How often the topics under $SYS/broker are brought up to date, as in Mosquitto; 0: they
        are not there.""",
        reloadable=True,
    )
    metrics_public: bool = setting(
        boolean(),
        False,
        """Whether /metrics may be read without credentials from other machines too. It names no
        client and no topic. On loopback without credentials it is open anyway.""",
        reloadable=True,
    )

    durability: Literal["fsync", "os", "memory"] = setting(
        choice("fsync", "os", "memory"),
        "fsync",
        """What an acknowledged message has survived: fsync, the loss of power; os, the death of the
        broker; memory, nothing. Weaker than fsync is said at start.""",
    )
    segment_bytes: int = setting(
        size(1 * MIB, 2 * GIB),
        "64MiB",
        "The size at which a log segment is sealed: the unit that retention removes.",
    )
    cache_bytes: int = setting(
        size(1 * MIB, 64 * GIB),
        "64MiB",
        "Memory for stored messages that are read back; queues near the end need no disk.",
    )
    reserve_bytes: int = setting(
        size(1 * MIB, 64 * GIB),
        "64MiB",
        """Space kept so that a full disk still takes acknowledgements and control records:
        consumers drain while publishers are refused.""",
    )
    checkpoint_bytes: int = setting(
        size(1 * MIB, 64 * GIB),
        "256MB",
        "Derived state is written after this much log; recovery reads at most this much again.",
        reloadable=True,
    )
    retention_age_s: int = setting(
        duration(1, CENTURY_S),
        "7d",
        "Messages older than this may be removed, by whole segments.",
        reloadable=True,
    )
    retention_bytes: int = setting(
        or_automatic(size(1 * MIB, 2**50)),
        "auto",
        """The log's size beyond which the oldest segments may be removed; auto is the smaller of
        10 GB and a tenth of the disk.""",
        reloadable=True,
    )
    store_all: tuple[str, ...] = setting(
        texts(_is_filter_like, "a topic filter"),
        "",
        "Topic filters whose messages of QoS 0 are stored too; otherwise they pass through.",
        reloadable=True,
    )

    session_expiry_maximum_s: int = setting(
        duration(1, 2**32 - 2),
        "7d",
        """The longest Session Expiry Interval that is granted; a client that asks for more gets
        this and is told so.""",
        aliases=("MQTT_CLIENT_SESSION_EXPIRY_MAX_EXPIRY_INTERVAL",),
        reloadable=True,
    )
    session_ttl_s: int = setting(
        duration(-1, CENTURY_S),
        "7d",
        """How long a session is kept after its client has gone if the protocol would keep it for
        ever. 0 or less: for ever.""",
        aliases=("MQTT_CLIENT_SESSION_EXPIRY_TTL",),
        reloadable=True,
    )
    strict_session_expiry: bool = setting(
        boolean(),
        False,
        """True: an MQTT 5 session with Clean Start 0 and expiry 0 ends with its connection, as the
        standard says. False: it is kept for session_ttl_s.""",
        aliases=("mqtt5.strict_session_expiry",),
        reloadable=True,
    )
    queue_messages_maximum: int = setting(
        integer(1, limits.QUEUE_MESSAGES_HARD_MAXIMUM),
        10_000,
        "Messages kept for one absent session; beyond it queue_keep decides.",
        aliases=("MQTT_PERSISTENT_SESSION_DEVICE_PERSISTED_MESSAGES_LIMIT",),
        reloadable=True,
    )
    queue_keep: Literal["newest", "oldest"] = setting(
        choice("newest", "oldest"),
        "newest",
        "Which messages an absent session keeps when there are more than it may have.",
        reloadable=True,
    )
    sessions_maximum: int = setting(
        integer(1, 100_000_000),
        1_000_000,
        """Sessions that are kept, connected or not; a client that would add one is refused with
        0x97. Each costs about a kilobyte of disk, for as long as it is kept.""",
        reloadable=True,
    )
    shared_group_expiry_s: int = setting(
        duration(0, 10 * 365 * 86_400),
        "0s",
        """How long a group of shared subscriptions that no session subscribes to any more keeps its
        queue. 0: it ends with its last subscription. Workers that come under new names each time
        need more, or what was published while none was there is not kept.""",
        reloadable=True,
    )
    slow_reader_messages_maximum: int = setting(
        integer(1, 1_000_000),
        10_000,
        """Messages that the reader of a session that is not kept may lag behind; older ones are
        skipped and counted, so that a slow reader costs bounded memory.""",
        reloadable=True,
    )

    connections_maximum: int = setting(
        integer(1, 1_000_000),
        100_000,
        "Connections at once; further ones are refused and counted.",
        reloadable=True,
    )
    connections_per_address_maximum: int = setting(
        integer(0, 1_000_000),
        0,
        """Connections at once from one IP address; 0: no limit of their own, because a whole fleet
        may stand behind one router.""",
    )
    keep_alive_maximum_s: int = setting(
        duration(1, 65_535),
        "65535s",
        """The longest Keep Alive that is granted. The protocol's own maximum; a client that sends 0
        is watched by TCP alone.""",
        reloadable=True,
    )
    receive_maximum: int = setting(
        integer(1, 65_535),
        1_000,
        """QoS 1 and 2 messages that one publisher may have unanswered. Enough to cover a commit of
        a millisecond at a million messages a second; each identifier in flight costs memory.""",
        reloadable=True,
    )
    maximum_packet_size_bytes: int = setting(
        size(1 * KIB, 256 * MIB - 1),
        "1MiB",
        """The largest packet that is taken. Devices send kilobytes; one packet this large still
        passes in one turn of the loop. The protocol allows 256 MiB.""",
    )
    topic_alias_maximum: int = setting(
        integer(0, 65_535),
        64,
        """Topic aliases that one publisher may set. A device publishes on a handful of topics; each
        alias holds a topic name in memory.""",
        reloadable=True,
    )

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
