"""Health and metrics of a process with processors, over HTTP.

Owns: `/health/live`, `/health/ready` and `/metrics`. Never: changes anything.
"""

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final, Protocol

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from holdfast.core.errors import ListenError

log = logging.getLogger(__name__)

LIVE: Final = "live"
READY: Final = "ready"


class Observed(Protocol):
    """A processor, as it is seen from outside."""

    @property
    def name(self) -> str:
        """As in its settings."""

    def is_live(self) -> bool:
        """False: only a new start helps."""

    def waits_for(self) -> str | None:
        """Why it takes no messages; None if it does."""

    def measure(self) -> None:
        """Brings what is not counted but looked at up to date."""


class Counted(Protocol):
    """What is counted of them."""

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""


@asynccontextmanager
async def serve_health(
    host: str, port: int, processors: Sequence[Observed], metrics: Counted
) -> AsyncIterator[int]:
    """Answers while the context is open; gives the port. Raises `ListenError`."""
    application = web.Application()

    async def live(_request: web.Request) -> web.Response:
        return _answer(
            {each.name: LIVE if each.is_live() else "ended" for each in processors}, LIVE
        )

    async def ready(_request: web.Request) -> web.Response:
        return _answer({each.name: each.waits_for() or READY for each in processors}, READY)

    async def show(_request: web.Request) -> web.Response:
        for each in processors:
            each.measure()
        return web.Response(body=metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    application.router.add_get("/health/live", live)
    application.router.add_get("/health/ready", ready)
    application.router.add_get("/metrics", show)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            reason = error.strerror or error
            raise ListenError(
                f"health and metrics cannot be served on {host}:{port} (HealthHost, HealthPort):"
                f" {reason}"
            ) from error
        taken = int(runner.addresses[0][1])
        log.info("health and metrics", extra={"fields": {"host": host, "port": taken}})
        yield taken
    finally:
        await runner.cleanup()


def _answer(found: Mapping[str, str], wanted: str) -> web.Response:
    is_so = all(state == wanted for state in found.values())
    status = HTTPStatus.OK if is_so else HTTPStatus.SERVICE_UNAVAILABLE
    return web.json_response(
        {"status": wanted if is_so else f"not {wanted}", **found}, status=status
    )
