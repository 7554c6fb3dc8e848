"""Names of remotes, looked up on threads where the event loop does not do it.

Owns: look-ups that are under way, one for each who asks. Never: decides how long somebody waits.

Nobody can end a look-up but the resolver, which may take minutes where DNS does not answer. So
whoever gives up leaves it behind, and finds it again when it asks the next time.

Invariants:
1. Nobody waits for the look-up of another one who asks.
2. Nothing waits for a look-up when the broker ends: its threads end with the process.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Final

from holdfast.broker.world import Resolver

LOOKUPS_MAXIMUM: Final = 2_000
"""Each has a thread: as many as there may be bridges, and as many again that were removed or are
tried."""


@dataclass(slots=True)
class _LookUp:
    host: str
    found: "asyncio.Future[list[str] | OSError]"


class Names:
    """All look-ups of one broker."""

    def __init__(self, resolver: Resolver | None) -> None:
        """Without a resolver the event loop looks names up."""
        self._resolver = resolver
        self._under_way: dict[str, _LookUp] = {}

    async def addresses(self, asking: str, host: str) -> list[str]:
        """What a name leads to at this moment, each address once; there is one at least. Raises
        `OSError` with a sentence."""
        if self._resolver is None:
            return await _looked_up_by_loop(host)
        while True:
            under_way = self._under_way.get(asking) or self._begin(self._resolver, asking, host)
            found = await asyncio.shield(under_way.found)
            # A remote that was changed meanwhile has a name of its own.
            if under_way.host == host:
                break
        if isinstance(found, OSError):
            raise found
        return found

    def _begin(self, resolver: Resolver, asking: str, host: str) -> _LookUp:
        if len(self._under_way) >= LOOKUPS_MAXIMUM:
            raise OSError(f"{host} is not looked up: so are {LOOKUPS_MAXIMUM} others, in vain")
        loop = asyncio.get_running_loop()
        begun = _LookUp(host, loop.create_future())

        def ended(found: list[str] | OSError) -> None:
            del self._under_way[asking]
            begun.found.set_result(found)

        def look_up() -> None:
            found = _found(resolver, host)
            # The broker may have ended; then nobody wants to know.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(ended, found)

        try:
            Thread(target=look_up, name=f"look-up of {host}", daemon=True).start()
        except RuntimeError as error:
            raise OSError(f"{host} is not looked up: {error}") from error
        self._under_way[asking] = begun
        return begun


def _found(resolver: Resolver, host: str) -> list[str] | OSError:
    try:
        return _distinct(resolver(host))
    except (OSError, UnicodeError) as error:
        return _no_name(host, error)


async def _looked_up_by_loop(host: str) -> list[str]:
    look_up = partial(asyncio.get_running_loop().getaddrinfo, type=socket.SOCK_STREAM)
    try:
        found = await look_up(host, None)
        return _distinct(str(address[0]) for *_, address in found)
    except (OSError, UnicodeError) as error:
        raise _no_name(host, error) from error


def _distinct(addresses: Iterable[str]) -> list[str]:
    found = list(dict.fromkeys(addresses))
    if not found:
        raise OSError("it has no address")
    return found


def _no_name(host: str, error: Exception) -> OSError:
    # A name with an empty or very long part is not even asked for.
    reason = getattr(error, "strerror", None) or str(error)
    return OSError(f"{host} is no name of a host: {reason}")
