"""`POST /v1/configuration/reload`: as SIGHUP, with an answer.

Never: knows what a reload does; it is handed the function, and tells what came of it.
"""

from collections.abc import Callable

from msgspec import Struct

from holdfast.broker.admin.http.operation import Answered, Asked, Operation, ProblemError
from holdfast.core.change import Change
from holdfast.core.errors import ConfigurationError


class Reloaded(Struct, kw_only=True):
    """What has come of it."""

    changed: tuple[str, ...]
    need_a_restart: tuple[str, ...]


def operation(reload: Callable[[], Change]) -> Operation:
    """The row that carries out `reload`."""

    async def run(_asked: Asked) -> Reloaded:
        try:
            change = reload()
        except ConfigurationError as error:
            raise ProblemError(409, "configuration_refused", str(error)) from error
        return Reloaded(changed=change.taken, need_a_restart=change.waiting)

    return Operation(
        method="POST",
        path="/v1/configuration/reload",
        name="reloadConfiguration",
        summary="Have the settings read again, as SIGHUP does.",
        run=run,
        answers={
            200: Answered("The settings that changed, and those that need a restart.", Reloaded),
            409: Answered("The settings are wrong, and nothing has changed."),
        },
    )
