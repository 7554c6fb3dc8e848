"""Which web pages may open a WebSocket.

A browser connects wherever a page tells it to, and says in `Origin` which page that was. MQTT's
credentials are in CONNECT, so a page has none that its author does not know; but it stands where
its reader stands: inside the network, on the reader's own machine. A broker that trusts those who
reach it (a default start on loopback) would trust every page that its operator looks at.

Such a page may also give its own host the broker's address, so that the two look the same. A broker
that only this machine can reach is therefore asked by a name of this machine, or not at all.

Clients that are no browsers send no `Origin`, and are not judged by it.
"""

from urllib.parse import urlsplit

from websockets.datastructures import Headers

from holdfast.core.config import is_loopback

ANY = "*"


def is_welcome(headers: Headers, origins: tuple[str, ...], *, is_local: bool) -> bool:
    """True if the request comes from no page, or from one that may connect. `is_local`: only this
    machine can reach us."""
    given = headers.get_all("Origin")
    if not given or ANY in origins:
        return True
    if len(given) > 1:
        return False
    if origins:
        return given[0].lower() in {origin.lower() for origin in origins}
    hosts = headers.get_all("Host")
    if len(hosts) != 1:
        return False
    host = _host(f"//{hosts[0]}")
    return _host(given[0]) == host and (is_loopback(host) or not is_local)


def _host(address: str) -> str:
    """The host of a URL; something else than any other if it has none."""
    try:
        return urlsplit(address).hostname or address
    except ValueError:
        return address
