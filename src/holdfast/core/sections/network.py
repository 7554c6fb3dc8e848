"""Where the data lie, where the broker listens and by which certificates."""

from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Final, Literal

from holdfast.core.settings import addresses, choice, or_off, path, setting, texts

_PROXIED: Final = ("mqtt", "mqtts", "ws", "wss")


def _is_network(item: str) -> bool:
    try:
        ip_network(item)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class NetworkSection:
    """The tables `data`, `listen` and `tls`."""

    data_dir: Path = setting(
        "data.dir",
        path(),
        "holdfast-data",
        "Where the log and everything derived from it lie. One process holds it at a time.",
    )
    host: str = setting(
        "listen.host",
        addresses(),
        "127.0.0.1",
        """The addresses to listen on; 0.0.0.0 is every IPv4 address and :: every IPv6 address.
        Loopback, because a default start has no credentials.""",
    )
    proxy_protocol: tuple[str, ...] = setting(
        "listen.proxy_protocol",
        texts(_PROXIED.__contains__, f"one of {', '.join(_PROXIED)}"),
        "",
        """TCP listeners that stand behind a proxy and take nothing but connections that begin with
        a header of the PROXY protocol, version 2.""",
    )
    proxy_protocol_from: tuple[str, ...] = setting(
        "listen.proxy_protocol_from",
        texts(_is_network, "an address or a network such as 10.0.0.0/8"),
        "127.0.0.0/8,::1",
        "Where the proxy's connections come from. Whoever else came with a header could lie in it.",
        reloadable=True,
    )
    tls_certificate: Path | None = setting(
        "tls.certificate",
        or_off(path()),
        "off",
        """The certificate of the TLS listeners in PEM, followed by those between it and the root.
        It is read again on reload.""",
        reloadable=True,
    )
    tls_key: Path | None = setting(
        "tls.key",
        or_off(path()),
        "off",
        "The private key of tls.certificate in PEM, without a passphrase; off: it is in that file.",
        reloadable=True,
    )
    tls_client_ca: Path | None = setting(
        "tls.client_ca",
        or_off(path()),
        "off",
        "The certificates in PEM that may sign those of clients.",
        reloadable=True,
    )
    tls_client_certificates: Literal["off", "optional", "required"] = setting(
        "tls.client_certificates",
        choice("off", "optional", "required"),
        "off",
        """Whether clients of the TLS listeners are asked for a certificate; one that
        tls.client_ca has not signed is refused in any case.""",
        reloadable=True,
    )
