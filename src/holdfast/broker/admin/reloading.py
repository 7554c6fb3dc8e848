"""`POST /v1/configuration/reload`: as SIGHUP, with an answer.

Never: knows what a reload does; it is handed the function, and tells what came of it.
"""

from collections.abc import Callable

from aiohttp import web

from holdfast.core.change import Change
from holdfast.core.errors import ConfigurationError


def add_to(app: web.Application, reload: Callable[[], Change]) -> None:
    """Makes the path known."""

    async def answer(_request: web.Request) -> web.Response:
        try:
            change = reload()
        except ConfigurationError as error:
            refusal = {"error": "configuration refused", "detail": str(error)}
            return web.json_response(refusal, status=409)
        return web.json_response({"changed": change.taken, "need_a_restart": change.waiting})

    app.router.add_post("/v1/configuration/reload", answer)
