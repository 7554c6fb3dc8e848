"""Where the broker listens and who may reach it, and where its data lie."""

import re
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Final, Literal

from holdfast.core.settings import (
    addresses,
    boolean,
    choice,
    mode,
    or_off,
    path,
    port,
    setting,
    texts,
)

_PROXIED: Final = ("mqtt", "mqtts", "ws", "wss")


def _is_origin_like(item: str) -> bool:
    return item == "*" or re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/\s]+", item) is not None


def _is_network(item: str) -> bool:
    try:
        ip_network(item)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class NetworkSection:
    """Where the broker lies and listens."""

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
