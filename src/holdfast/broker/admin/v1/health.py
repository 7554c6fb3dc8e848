"""Is the process alive, does it serve, and what has it counted."""

from collections.abc import Callable

from aiohttp import web
from msgspec import Struct

from holdfast.broker.admin.http.operation import (
    Answered,
    Asked,
    Audience,
    Operation,
    Problem,
    written,
)
from holdfast.broker.observe import metrics
from holdfast.broker.observe.snapshot import Snapshot

TEXT = "text/plain"


class Status(Struct, kw_only=True):
    """It is."""

    status: str


class NotReady(Problem, kw_only=True):
    """It is not, or no longer."""

    status: str


class Health:
    """Health and metrics."""

    def __init__(self, ready: Callable[[], bool], snapshot: Callable[[], Snapshot]) -> None:
        self._ready = ready
        self._snapshot = snapshot

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        alive, serves = Answered("It is.", Status), Answered("Not yet, or no longer.")
        return [
            Operation(
                method="GET",
                path="/health/live",
                name="isLive",
                summary="Whether the process answers; nothing more is promised.",
                run=self.live,
                answers={200: alive},
                audience=Audience.EVERYBODY,
            ),
            Operation(
                method="GET",
                path="/health/ready",
                name="isReady",
                summary="Whether clients are served.",
                run=self.ready,
                answers={200: alive, 503: serves},
                audience=Audience.EVERYBODY,
            ),
            Operation(
                method="GET",
                path="/metrics",
                name="readMetrics",
                summary="Every metric, in Prometheus' form.",
                run=self.metrics,
                answers={200: Answered("The metrics.", str, TEXT)},
            ),
        ]

    async def live(self, _asked: Asked) -> Status:
        """The process answers; nothing more is promised."""
        return Status(status="live")

    async def ready(self, _asked: Asked) -> web.Response:
        """200 once clients are served, 503 before."""
        if self._ready():
            return written(Status(status="ready"))
        starting = NotReady(status="starting", error="not_ready", detail="no clients are served")
        return written(starting, status=503)

    async def metrics(self, asked: Asked) -> web.Response:
        """All counters, as Prometheus text."""
        accept = asked.request.headers.get("Accept", "")
        body, content_type = metrics.format_metrics(self._snapshot(), accept)
        return web.Response(body=body, headers={"Content-Type": content_type})
