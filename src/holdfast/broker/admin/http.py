"""The HTTP server: operations by their rows, who may ask, and refusals as JSON.

Owns: the application and its listeners. Never: knows what an operation does.

Invariants:
1. Every refusal is JSON, `{"error": ..., "detail": ...}`, with the status that fits.
2. Whatever is not said to be public is asked for by administrators only (`protection`).
"""

import logging
from collections.abc import Awaitable, Callable, Iterable

from aiohttp import web

from holdfast.broker.admin import openapi
from holdfast.broker.admin.operation import BODY_BYTES_MAXIMUM, Operation, ProblemError
from holdfast.broker.admin.protection import Protection
from holdfast.kernel import DamagedError
from holdfast.reading.log import RecordsGoneError, UnreadableLogError

log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(operations: Iterable[Operation], protection: Protection) -> web.Application:
    """The broker's HTTP interface, and the document that describes it."""
    known = list(operations)
    known.append(openapi.operation(known))
    protection.open_to_all(operation.path for operation in known if operation.public)

    @web.middleware
    async def protect(request: web.Request, handler: Handler) -> web.StreamResponse:
        await protection.authorize(request)
        return await handler(request)

    app = web.Application(
        middlewares=[_refusals_as_json, protect],
        client_max_size=BODY_BYTES_MAXIMUM,
    )
    for operation in known:
        app.router.add_route(operation.method, operation.path, operation.handle)
    return app


async def start(app: web.Application) -> web.AppRunner:
    """Makes it ready to be listened for; `await runner.cleanup()` ends it and every listener."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    return runner


async def listen(runner: web.AppRunner, host: str, port: int) -> None:
    """Listens over TCP; `runner.addresses` says where. Raises `OSError`."""
    await web.TCPSite(runner, host, port).start()


@web.middleware
async def _refusals_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ProblemError as problem:
        headers = {"WWW-Authenticate": 'Basic realm="holdfast"'} if problem.status == 401 else None
        return web.json_response(problem.document, status=problem.status, headers=headers)
    except web.HTTPException as refused:
        error = refused.reason.lower().replace(" ", "_")
        detail = refused.text or ""
        if refused.status in (404, 405):
            detail = f"{request.method} {request.path}: see /v1/openapi.json for what there is"
        return web.json_response({"error": error, "detail": detail}, status=refused.status)
    except RecordsGoneError as gone:
        missing = {"from": gone.begin, "available_from": gone.available_from}
        return web.json_response({"error": "gone", "detail": str(gone), **missing}, status=410)
    except (UnreadableLogError, DamagedError, OSError) as problem:
        log.error("cannot read the log for %s: %s", request.path, problem)
        return web.json_response({"error": "unreadable", "detail": str(problem)}, status=500)
