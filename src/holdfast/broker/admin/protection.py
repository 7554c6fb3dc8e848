"""Who may ask for what is not public.

Owns: the order of the questions. Never: knows a password; whoever does is asked.

Invariants:
1. Through the control socket everything is allowed: the file's mode has decided already.
2. Over TCP, without credentials being set up, everything is allowed on loopback and nothing beyond
   it; a page of another site, which a browser would let ask, has another `Host` and is refused.
3. With credentials set up, over TCP only an administrator is answered, by HTTP Basic.
"""

from base64 import b64decode
from collections.abc import Iterable
from typing import Protocol

from aiohttp import web

from holdfast.broker.admin.control_socket import is_local
from holdfast.broker.admin.operation import ProblemError
from holdfast.core.config import is_loopback

MQTT_PATH = "/mqtt"
"""MQTT over WebSocket is let in by its own CONNECT."""
METRICS_PATH = "/metrics"


class Administrators(Protocol):
    """Whoever knows the credentials."""

    @property
    def required(self) -> bool:
        """True once any are set up."""

    async def check_administrator(self, user_name: str, password: str, peer: str) -> bool:
        """True if these are an administrator's; `peer` is who asks."""


class Protection:
    """Lets a request through, or raises a `ProblemError`."""

    def __init__(
        self, host: str, *, metrics_public: bool, administrators: Administrators | None = None
    ) -> None:
        self._is_loopback = is_loopback(host)
        self._administrators = administrators
        self._public = {MQTT_PATH}
        if metrics_public:
            self._public.add(METRICS_PATH)

    def open_to_all(self, paths: Iterable[str]) -> None:
        """Anybody may ask for these."""
        self._public.update(paths)

    async def authorize(self, request: web.Request) -> None:
        """Returns if the request may be answered; raises a `ProblemError` else."""
        if request.path in self._public or is_local(request):
            return
        administrators = self._administrators
        if administrators is not None and administrators.required:
            given = _basic(request.headers.get("Authorization", ""))
            peer = request.remote or "unknown"
            if given is None or not await administrators.check_administrator(*given, peer):
                detail = "an administrator's user name and password are needed (HTTP Basic)"
                raise ProblemError(401, "unauthorized", detail)
        elif not self._is_loopback:
            detail = (
                "no credentials are set up, so this is answered on the broker's own host only:"
                " add an administrator there, or use the commands of holdfast"
            )
            raise ProblemError(403, "forbidden", detail)
        elif not is_loopback(_host_of(request)):
            detail = f"this broker is asked as 127.0.0.1 or localhost, not as {_host_of(request)}"
            raise ProblemError(403, "forbidden", detail)


def _host_of(request: web.Request) -> str:
    host = request.host
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _basic(header: str) -> tuple[str, str] | None:
    scheme, _, word = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user_name, colon, password = b64decode(word, validate=True).decode().partition(":")
    except ValueError:
        return None
    return (user_name, password) if colon else None
