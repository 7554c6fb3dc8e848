"""What is spoken on which port, and what one connection is granted there."""

import re
from dataclasses import dataclass
from pathlib import Path

from holdfast.core.settings import (
    boolean,
    duration,
    integer,
    mode,
    or_off,
    path,
    port,
    setting,
    size,
    text,
    texts,
)
from holdfast.core.units import KIB, MIB


def _is_origin_like(item: str) -> bool:
    return item == "*" or re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/\s]+", item) is not None


def _is_namespace(item: str) -> bool:
    return re.fullmatch(r"[-=:.\w]+/[-=:.\w]+", item, re.ASCII) is not None


@dataclass(frozen=True, kw_only=True)
class ProtocolsSection:
    """The tables `mqtt`, `ws`, `pulsar` and `http`."""

    mqtt_port: int | None = setting(
        "mqtt.port",
        port(),
        1883,
        "The MQTT listener; 1883 is MQTT's registered port.",
    )
    mqtt_tls_port: int | None = setting(
        "mqtt.tls_port",
        port(),
        "off",
        """The MQTT listener with TLS; 8883 is its registered port. Off, because it needs
        tls.certificate.""",
    )
    mqtt_unix_socket: Path | None = setting(
        "mqtt.unix_socket",
        or_off(path()),
        "off",
        "A Unix domain socket for MQTT, for clients on this machine.",
    )
    mqtt_unix_socket_mode: int = setting(
        "mqtt.unix_socket_mode",
        mode(),
        "0660",
        "Who may open mqtt.unix_socket: its owner and its group.",
    )
    receive_maximum: int = setting(
        "mqtt.receive_maximum",
        integer(1, 65_535),
        1_000,
        """QoS 1 and 2 messages that one publisher may have unanswered. Enough to cover a commit of
        a millisecond at a million messages a second; each identifier in flight costs memory.""",
        reloadable=True,
    )
    maximum_packet_size_bytes: int = setting(
        "mqtt.maximum_packet_size_bytes",
        size(1 * KIB, 256 * MIB - 1),
        "1MiB",
        """The largest packet that is taken. Devices send kilobytes; one packet this large still
        passes in one turn of the loop. The protocol allows 256 MiB.""",
    )
    topic_alias_maximum: int = setting(
        "mqtt.topic_alias_maximum",
        integer(0, 65_535),
        64,
        """Topic aliases that one publisher may set. A device publishes on a handful of topics; each
        alias holds a topic name in memory.""",
        reloadable=True,
    )
    keep_alive_maximum_s: int = setting(
        "mqtt.keep_alive_maximum_s",
        duration(1, 65_535),
        "65535s",
        """The longest Keep Alive that is granted. The protocol's own maximum; a client that sends 0
        is watched by TCP alone.""",
        reloadable=True,
    )
    sys_interval_s: int = setting(
        "mqtt.sys_interval_s",
        duration(0, 86_400),
        "10s",
        """How often the topics under $SYS/broker are brought up to date, as in Mosquitto; 0: they
        are not there.""",
        reloadable=True,
    )
    ws_port: int | None = setting(
        "ws.port",
        port(),
        "off",
        """A listener for MQTT over WebSocket alone; 8083 is customary. Off, because the HTTP
        listener takes WebSocket at /mqtt.""",
    )
    ws_tls_port: int | None = setting(
        "ws.tls_port",
        port(),
        "off",
        """A listener for MQTT over WebSocket with TLS; 8084 is customary. Off, because it needs
        tls.certificate.""",
    )
    ws_origins: tuple[str, ...] = setting(
        "ws.origins",
        texts(_is_origin_like, "an origin such as https://example.com, or *"),
        "",
        """Web pages that may open a WebSocket, by their origin; * is all of them. Without any:
        those of the host that the page asks for, and on loopback that must be localhost. Any other
        would come from inside the reader's network, and from the reader's own machine.""",
        reloadable=True,
    )
    pulsar_port: int | None = setting(
        "pulsar.port",
        port(),
        6650,
        "The listener for Pulsar's binary protocol; 6650 is its customary port.",
    )
    pulsar_max_message_bytes: int = setting(
        "pulsar.max_message_bytes",
        size(1 * KIB, 64 * MIB),
        "5MiB",
        """The largest message, or batch of messages, that a producer may send; a frame has 10 KiB
        more for its command. Clients are told when they connect; they are told less where
        log.segment_bytes or limits.client_bytes_per_second leave no room. Pulsar's own default.""",
    )
    pulsar_keep_alive_s: int = setting(
        "pulsar.keep_alive_s",
        duration(1, 3_600),
        "30s",
        """How often a client is asked whether it is there; one that says nothing for twice as long
        is disconnected, and others can have what it held. Pulsar's own default.""",
        reloadable=True,
    )
    pulsar_namespaces: tuple[str, ...] = setting(
        "pulsar.namespaces",
        texts(_is_namespace, "a tenant, a slash and a namespace"),
        "public/default",
        """The namespaces that there are, each behind its tenant. Topics of any other are refused;
        those of public/default have the names that MQTT clients know them by.""",
        reloadable=True,
    )
    pulsar_advertised_address: str | None = setting(
        "pulsar.advertised_address",
        or_off(text()),
        "off",
        """The host and port that clients are told topics are at, where they cannot reach the
        address that they arrive at: behind a forwarded port or a load balancer. off: that one.""",
        reloadable=True,
    )
    http_port: int | None = setting(
        "http.port",
        port(),
        8080,
        "The HTTP listener: health, metrics, administration, the read interface, WebSocket.",
    )
    http_tls_port: int | None = setting(
        "http.tls_port",
        port(),
        "off",
        """The HTTP listener with TLS, where passwords do not pass in the clear; 8443 is customary.
        Off, because it needs tls.certificate. With it, http.port can be off.""",
    )
    metrics_public: bool = setting(
        "http.metrics_public",
        boolean(),
        False,
        """Whether /metrics may be read without credentials from other machines too. It names no
        client and no user, but each bridge, cursor and environment, each group with its topic
        filter, and each subscription of Pulsar with its topic. On loopback without credentials it
        is open anyway.""",
        reloadable=True,
    )
