"""Pages of sessions as an operator sees them."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from holdfast.broker.mqtt.session import Session
from holdfast.broker.observe.sessions import SESSIONS_AT_ONCE, SessionsSeen
from holdfast.broker.observe.watch import Watch

SESSIONS = 10 * SESSIONS_AT_ONCE


class Looked:
    """A broker with many sessions on record, and how many were looked at between two turns."""

    def __init__(self) -> None:
        self.now, self.most = 0, 0
        self.broker: Any = SimpleNamespace(
            recorded=SimpleNamespace(sessions=self._recorded),
            sessions=SimpleNamespace(
                attached=lambda _client: self._note(), transient=lambda *_wanted: {}
            ),
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


def test_a_page_of_sessions_gives_way() -> None:
    async def page() -> tuple[Looked, list[str]]:
        looked = Looked()
        seen = SessionsSeen(looked.broker, cast(Watch, None))
        async with asyncio.TaskGroup() as group:
            turns = group.create_task(looked.turns())
            found = await seen.page("", "", "", "any", SESSIONS)
            turns.cancel()
        return looked, [each.client_identifier for each in found]

    looked, names = asyncio.run(page())
    assert names == sorted(names)
    assert len(names) == SESSIONS
    assert looked.most <= SESSIONS_AT_ONCE
