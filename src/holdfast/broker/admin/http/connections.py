"""Connections of the HTTP server: what is no request gets a refusal as JSON, as all others do.

Owns: that refusal. Never: says any of the bytes that came: they may be a password.

The library answers what it cannot read by itself, before any application, and lets nobody change
that but who makes its connections.
"""

import asyncio
from http import HTTPStatus
from logging import Logger
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler

from holdfast.broker.admin.http.operation import ProblemError


class Runner(web.AppRunner):
    """Serves an application on such connections."""

    def __init__(self, app: web.Application, logger: Logger, shutdown_timeout: float) -> None:
        super().__init__(app, shutdown_timeout=shutdown_timeout)
        self._logger = logger

    async def _make_server(self) -> web.Server:
        return _Connections(await super()._make_server(), self._logger)


class _Connections(web.Server):
    def __init__(self, of_application: web.Server, logger: Logger) -> None:
        super().__init__(
            of_application.request_handler, request_factory=of_application.request_factory
        )
        self._arguments: dict[str, Any] = {"logger": logger, "access_log": None}

    def __call__(self) -> RequestHandler:
        return _Connection(self, loop=asyncio.get_running_loop(), **self._arguments)


class _Connection(RequestHandler):
    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Has it logged, and refuses."""
        super().handle_error(request, status, exc, message)
        detail = "what came is no request of HTTP"
        if isinstance(exc, LineTooLong):
            detail = "the first line of the request, or a header, is too long"
        elif status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            detail = "the broker has met an error of its own; its log says which"
        error = HTTPStatus(status).phrase.lower().replace(" ", "_")
        problem = ProblemError(status, error, detail)
        refusal = web.json_response(dict(problem.document), status=status)
        refusal.force_close()
        return refusal
