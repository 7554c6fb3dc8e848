"""Which web pages may open a WebSocket.

A browser connects wherever a page tells it to, and says in `Origin` which page that was. MQTT's
credentials are in CONNECT, so a page has none that its author does not know; but it stands where
its reader stands: inside the network, on the reader's own machine. A broker that trusts those who
reach it (a default start on loopback) would trust every page that its operator looks at.

Clients that are no browsers send no `Origin`, and are not judged by it.
"""

from urllib.parse import urlsplit

from websockets.datastructures import Headers

ANY = "*"


def is_welcome(headers: Headers, origins: tuple[str, ...]) -> bool:
    """True if the request comes from no page, or from one that may connect."""
    given = headers.get_all("Origin")
    if not given or ANY in origins:
        return True
    if len(given) > 1:
        return False
    if origins:
        return given[0].lower() in {origin.lower() for origin in origins}
    hosts = headers.get_all("Host")
    return len(hosts) == 1 and _host(given[0]) == _host(f"//{hosts[0]}")


def _host(address: str) -> str | None:
    """The host of a URL; something else than any other if it has none."""
    try:
        return urlsplit(address).hostname or address
    except ValueError:
        return address
