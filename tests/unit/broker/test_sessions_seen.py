"""Pages of sessions as an operator sees them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.broker.mqtt.session import Session
from holdfast.broker.observe.sessions import SESSIONS_AT_ONCE, SessionsSeen
from holdfast.broker.observe.watch import Watch

SESSIONS = 10 * SESSIONS_AT_ONCE


class Looked:
    """A broker with many sessions on record, and how many were looked at between two turns."""

    def __init__(self) -> None:
        self.now, self.most = 0, 0
        self.broker: Any = SimpleNamespace(
            recorded=SimpleNamespace(
                sessions=self._recorded, subscriptions=self._recorded_subscriptions
            ),
            sessions=SimpleNamespace(
                attached=lambda _client: self._note(), transient=lambda *_wanted: {}
            ),
            environments=SimpleNamespace(of_session=lambda _session: None),
            chores=None,
            config=None,
            log=None,
            queues=None,
            groups=None,
            connections=None,
            now_us=lambda: 0,
        )

    async def turns(self) -> None:
        """As a loop that others use too."""
        while True:
            self.now = 0
            await asyncio.sleep(0)

    def _note(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)

    async def _recorded(self, *_wanted: object) -> Iterator[Session]:
        return (self._session(number) for number in range(SESSIONS))

    async def _recorded_subscriptions(self, *_wanted: object) -> Iterator[tuple[str, tuple[()]]]:
        return ((self._session(number).client_identifier, ()) for number in range(SESSIONS))

    def _session(self, number: int) -> Session:
        self._note()
        return Session(
            client_identifier=f"client{number:04}",
            party=number + 1,
            protocol_version=5,
            created_at_offset=0,
            expiry_s=None,
            connected=False,
        )


def names_of(ask: Callable[[SessionsSeen], Awaitable[list[str]]]) -> tuple[list[str], int]:
    """What is answered beside a loop that others use, and the most that was looked at between two
    of its turns."""

    async def page() -> tuple[list[str], int]:
        looked = Looked()
        async with asyncio.TaskGroup() as group:
            turns = group.create_task(looked.turns())
            found = await ask(SessionsSeen(looked.broker, cast(Watch, None)))
            turns.cancel()
        return found, looked.most

    return asyncio.run(page())


async def sessions(seen: SessionsSeen) -> list[str]:
    return [each.client_identifier for each in await seen.page("", "", "", "any", SESSIONS)]


async def subscriptions(seen: SessionsSeen) -> list[str]:
    return list(await seen.subscriptions("", "", SESSIONS))


@pytest.mark.parametrize("ask", [sessions, subscriptions])
def test_a_page_gives_way(ask: Callable[[SessionsSeen], Awaitable[list[str]]]) -> None:
    names, most = names_of(ask)
    assert names == sorted(names)
    assert len(names) == SESSIONS
    assert most <= SESSIONS_AT_ONCE
