"""Who may ask for what is not public.

Owns: the order of the questions. Never: knows a password; whoever does is asked.

Invariants:
1. Through the control socket everything is allowed: the file's mode has decided already.
2. Over TCP, without credentials being set up, everything is allowed where the broker listens on
   loopback alone, and nothing elsewhere, whoever asks; a page of another site, which a browser
   would let ask, has another `Host` and is refused.
3. With credentials set up, over TCP only an administrator is answered, by HTTP Basic; and what is
   for readers of the log, to a reader too.
"""

import re
from base64 import b64decode
from typing import Final, Protocol

from aiohttp import web

from holdfast.broker.admin.control_socket import is_local
from holdfast.broker.admin.http.operation import Audience, ProblemError
from holdfast.core.config import is_loopback

MQTT_PATH = "/mqtt"
"""MQTT over WebSocket is let in by its own CONNECT."""
METRICS_PATH = "/metrics"


class Role(Protocol):
    """What somebody may do here."""

    @property
    def user_name(self) -> str | None:
        """By what name they are known."""

    @property
    def administrator(self) -> bool:
        """True: everything."""

    @property
    def reader(self) -> bool:
        """True: read the log."""


ROLE: Final = web.RequestKey("role", Role)
"""Where a request keeps who has made it; nothing is there if nobody had to say who they were."""


class Credentials(Protocol):
    """Whoever knows the credentials."""

    @property
    def required(self) -> bool:
        """True once any are set up."""

    async def identify(self, user_name: str, password: str, peer: str) -> Role | None:
        """Whose these are; `None` if nobody's. `peer` is who asks."""


class Protection:
    """Lets a request through, or raises a `ProblemError`."""

    def __init__(
        self, host: str, *, metrics_public: bool, credentials: Credentials | None = None
    ) -> None:
        self.metrics_public = metrics_public
        self._is_loopback = is_loopback(host)
        self._credentials = credentials
        self._audiences = {MQTT_PATH: Audience.EVERYBODY}
        self._patterns: list[tuple[re.Pattern[str], Audience]] = []

    def open(self, path: str, audience: Audience) -> None:
        """Says who may ask for a path; for what is not named here, administrators may."""
        if "{" not in path:
            self._audiences[path] = audience
        elif audience is not Audience.ADMINISTRATORS:
            pattern = re.compile(re.sub(r"\{\w+\}", "[^/]+", path))
            self._patterns.append((pattern, audience))

    async def authorize(self, request: web.Request) -> None:
        """Returns if the request may be answered; raises a `ProblemError` else."""
        await self._authorize(request, request.path)

    async def permits(self, request: web.Request, path: str) -> bool:
        """True if who made this request may ask for `path`."""
        try:
            await self._authorize(request, path)
        except ProblemError:
            return False
        return True

    async def _authorize(self, request: web.Request, path: str) -> None:
        audience = self._audience(path)
        if audience is Audience.EVERYBODY or is_local(request):
            return
        if self._credentials is not None and self._credentials.required:
            await self._check_credentials(request, audience, self._credentials)
        elif not self._is_loopback:
            detail = (
                "no credentials are set up, so this is answered only where listen.host is loopback:"
                " add an administrator (`holdfast user add NAME --administrator`), or use the"
                " commands of holdfast on the broker's own host"
            )
            raise ProblemError(403, "forbidden", detail)
        elif not is_loopback(_host_of(request)):
            detail = f"this broker is asked as 127.0.0.1 or localhost, not as {_host_of(request)}"
            raise ProblemError(403, "forbidden", detail)

    def _audience(self, path: str) -> Audience:
        if path == METRICS_PATH and self.metrics_public:
            return Audience.EVERYBODY
        found = (audience for pattern, audience in self._patterns if pattern.fullmatch(path))
        return self._audiences.get(path) or next(found, Audience.ADMINISTRATORS)

    async def _check_credentials(
        self, request: web.Request, audience: Audience, credentials: Credentials
    ) -> None:
        given = _basic(request.headers.get("Authorization", ""))
        role = None
        if given is not None:
            role = await credentials.identify(*given, request.remote or "unknown")
        for_readers, for_all = audience is Audience.READERS, audience is Audience.PUBLISHERS
        is_let_in = for_all or (for_readers and role is not None and role.reader)
        if role is not None and (role.administrator or is_let_in):
            request[ROLE] = role
            return
        who = "a reader's or an administrator's" if for_readers else "an administrator's"
        who = "a" if for_all else who
        detail = f"{who} user name and password are needed (HTTP Basic)"
        raise ProblemError(401, "unauthorized", detail)


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
