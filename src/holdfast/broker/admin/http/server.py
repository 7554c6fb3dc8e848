"""The HTTP server: operations by their rows, who may ask, and refusals as JSON.

Owns: the application and its listeners. Never: knows what an operation does.

Invariants:
1. Every refusal is JSON, `{"error": ..., "detail": ...}` (at /api/v5 as EMQX has it, `{"code": ...,
   "message": ...}`), with the status that fits.
2. Whatever is not said to be public is asked for by administrators only (`protection`).
3. Of a request that is not HTTP, what is wrong is logged and told, and none of its bytes: they may
   be a password.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from ssl import SSLContext

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from holdfast.broker.admin.http import openapi
from holdfast.broker.admin.http.arrow_stream import senders_of
from holdfast.broker.admin.http.connections import Runner
from holdfast.broker.admin.http.operation import (
    BODY_BYTES_MAXIMUM,
    Operation,
    ProblemError,
    refusal_document,
)
from holdfast.broker.admin.http.protection import Protection
from holdfast.broker.steps import Steps
from holdfast.core.errors import BrokerBusyError, BrokerRefusedError
from holdfast.kernel import DamagedError
from holdfast.reading.log import RecordsGoneError, UnreadableLogError

log = logging.getLogger(__name__)
_log_of_connections = logging.getLogger(f"{__name__}.connections")
PROBED = "/health/"
"""Paths that some who look on ask for with HEAD."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(
    operations: Iterable[Operation], protection: Protection, steps: Steps
) -> web.Application:
    """The broker's HTTP interface, and the document that describes it."""
    known = list(operations)
    known.append(openapi.operation(known))
    for operation in known:
        protection.open(operation.path, operation.audience)

    @web.middleware
    async def protect(request: web.Request, handler: Handler) -> web.StreamResponse:
        await protection.authorize(request)
        return await handler(request)

    app = web.Application(
        middlewares=[_refusals_as_json, protect],
        client_max_size=BODY_BYTES_MAXIMUM,
    )
    app.cleanup_ctx.append(senders_of)
    for operation in known:
        # A client identifier may have braces, which stand for nothing in a request's path.
        pattern = re.sub(r"\{(\w+)\}", r"{\1:[^/]+}", operation.path)
        handler = _measured(operation, steps)
        app.router.add_route(operation.method, pattern, handler)
        if operation.path.startswith(PROBED):
            app.router.add_route("HEAD", pattern, handler)
    return app


def _measured(operation: Operation, steps: Steps) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await steps.answering(operation.name, operation.handle(request))

    return handle


async def start(app: web.Application) -> web.AppRunner:
    """Makes it ready to be listened for; `await runner.cleanup()` ends it and every listener."""
    _log_of_connections.addFilter(_without_bytes)
    runner = Runner(app, _log_of_connections, shutdown_timeout=1.0)
    await runner.setup()
    return runner


async def listen(
    runner: web.AppRunner, host: str, port: int, context: SSLContext | None = None
) -> None:
    """Listens over TCP, with TLS if there is a context; `runner.addresses` says where. Raises
    `OSError`."""
    await web.TCPSite(runner, host, port, ssl_context=context).start()


def _without_bytes(record: logging.LogRecord) -> bool:
    """Makes a peer's fault a line of one event among many, where the library has an error with
    the bytes that the peer has sent."""
    fault = record.exc_info[1] if record.exc_info else None
    if not isinstance(fault, HttpProcessingError | web.RequestPayloadError):
        return True
    address = record.args[0] if isinstance(record.args, tuple) and record.args else None
    record.msg, record.args, record.exc_info = "a request is not HTTP", (), None
    record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
    record.fields = {"address": address, "fault": type(fault).__name__}
    return _log_of_connections.isEnabledFor(record.levelno)


@web.middleware
async def _refusals_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ProblemError as told:
        problem = told
    except web.HTTPException as refused:
        error = refused.reason.lower().replace(" ", "_")
        detail = refused.text or ""
        if refused.status in (404, 405):
            detail = f"{request.method} {request.path}: see /v1/openapi.json for what there is"
        problem = ProblemError(refused.status, error, detail)
    except BrokerRefusedError as broker:
        error = HTTPStatus(broker.status).phrase.lower().replace(" ", "_")
        problem = ProblemError(broker.status, error, str(broker))
    except BrokerBusyError as busy:
        problem = ProblemError(503, "busy", str(busy))
    except RecordsGoneError as gone:
        missing = {"from": gone.begin, "available_from": gone.available_from}
        problem = ProblemError(410, "gone", str(gone), **missing)
    except (UnreadableLogError, DamagedError, OSError) as fault:
        log.error("cannot read the log for %s: %s", request.path, fault)
        problem = ProblemError(500, "unreadable", str(fault))
    except Exception:
        # The boundary: one request's failure is the broker's log line, not its end.
        log.exception("request failed", extra={"fields": {"path": request.path}})
        detail = "the broker has met an error of its own; its log says which"
        problem = ProblemError(500, "internal", detail)
    return _refusal(problem, request.path)


def _refusal(problem: ProblemError, path: str) -> web.Response:
    """Written with escapes: a path may have what is no text in UTF-8."""
    document = refusal_document(problem, path)
    headers = {"WWW-Authenticate": 'Basic realm="holdfast"'} if problem.status == 401 else {}
    if "retry_after_s" in problem.document:
        headers["Retry-After"] = str(problem.document["retry_after_s"])
    return web.json_response(document, status=problem.status, headers=headers)
