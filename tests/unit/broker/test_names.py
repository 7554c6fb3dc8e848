"""Names of remotes that nobody resolves keep nobody waiting but those who asked for them."""

import asyncio
import contextlib
import threading
from socket import EAI_NONAME, gaierror

import pytest

from holdfast.broker.sockets import names
from holdfast.broker.sockets.names import Names
from holdfast.broker.world import RealWorld

SILENT = 50
"""More than any pool of threads here has."""


class Resolver:
    """Answers for some names at once, and for others when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers = threading.Event()

    def __call__(self, host: str) -> list[str]:
        self.asked.append(host)
        if host.startswith("silent"):
            self.answers.wait()
        if host == "unknown":
            raise gaierror(EAI_NONAME, "Name or service not known")
        return [] if host == "bare" else ["10.0.0.1", "10.0.0.2", "10.0.0.1"]


async def give_up(known: Names, asking: str, host: str) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0):
            await known.addresses(asking, host)


def look_ups() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "look-up of silent"]


def test_a_look_up_waits_for_nobody_elses() -> None:
    async def run() -> None:
        for number in range(SILENT):
            await give_up(known, f"b{number}", "silent")
        assert await known.addresses("mine", "host") == ["10.0.0.1", "10.0.0.2"]
        silent = look_ups()
        assert len(silent) == SILENT
        assert all(thread.daemon for thread in silent), "a broker that ends waits for none"
        resolver.answers.set()

    resolver = Resolver()
    known = Names(resolver)
    asyncio.run(run())


def test_who_asks_again_finds_the_look_up_that_it_has_left() -> None:
    async def run() -> None:
        for _ in range(3):
            await give_up(known, "b", "silent")
        resolver.answers.set()
        assert await known.addresses("b", "silent") == ["10.0.0.1", "10.0.0.2"]
        assert resolver.asked == ["silent"]
        await known.addresses("b", "silent")
        assert resolver.asked == ["silent"] * 2, "what was found is not kept"

    resolver = Resolver()
    known = Names(resolver)
    asyncio.run(run())


def test_who_has_another_remote_now_is_told_of_that_one() -> None:
    async def run() -> None:
        await give_up(known, "b", "silent")
        resolver.answers.set()
        with pytest.raises(OSError, match="unknown is no name of a host: Name or service"):
            await known.addresses("b", "unknown")
        assert resolver.asked == ["silent", "unknown"]

    resolver = Resolver()
    known = Names(resolver)
    asyncio.run(run())


def test_a_name_without_an_address_is_none() -> None:
    with pytest.raises(OSError, match="bare is no name of a host: it has no address"):
        asyncio.run(Names(Resolver()).addresses("b", "bare"))


def test_there_are_at_most_so_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        await give_up(known, "b1", "silent")
        with pytest.raises(OSError, match="host is not looked up: so are 1 others, in vain"):
            await known.addresses("b2", "host")
        resolver.answers.set()

    monkeypatch.setattr(names, "LOOKUPS_MAXIMUM", 1)
    resolver = Resolver()
    known = Names(resolver)
    asyncio.run(run())


def test_an_end_of_the_broker_waits_for_no_look_up() -> None:
    resolver = Resolver()
    asyncio.run(give_up(Names(resolver), "b", "silent"))
    silent = look_ups()
    resolver.answers.set()
    for thread in silent:
        thread.join()


@pytest.mark.parametrize("host", ["localhost", ".."])
def test_the_systems_own_resolver_answers(host: str) -> None:
    known = Names(RealWorld().resolver())
    if host == "localhost":
        assert set(asyncio.run(known.addresses("b", host))) <= {"127.0.0.1", "::1"}
    else:
        with pytest.raises(OSError, match=r"\.\. is no name of a host: "):
            asyncio.run(known.addresses("b", host))
