"""`POST /v1/configuration/reload`: as SIGHUP, with an answer.

Never: knows what a reload does; it is handed the function, and tells what came of it.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast.broker.admin.http.operation import Answered, Asked, Operation, ProblemError, Schema
from holdfast.core.change import Change
from holdfast.core.errors import ConfigurationError

KEYS: Final[Schema] = {"type": "array", "items": {"type": "string"}}
OUTCOME: Final[Schema] = {
    "type": "object",
    "required": ["changed", "need_a_restart"],
    "properties": {"changed": KEYS, "need_a_restart": KEYS},
}


def operation(reload: Callable[[], Change]) -> Operation:
    """The row that carries out `reload`."""

    async def run(_asked: Asked) -> dict[str, Any]:
        try:
            change = reload()
        except ConfigurationError as error:
            raise ProblemError(409, "configuration_refused", str(error)) from error
        return {"changed": change.taken, "need_a_restart": change.waiting}

    return Operation(
        method="POST",
        path="/v1/configuration/reload",
        name="reloadConfiguration",
        summary="Have the settings read again, as SIGHUP does.",
        run=run,
        answers={
            200: Answered("The settings that changed, and those that need a restart.", OUTCOME),
            409: Answered("The settings are wrong, and nothing has changed."),
        },
    )
