"""Many sessions that come and go for ever, on many topics: whoever is away has a queue at rest.

Owns: the fleet's clients and what they do. Never: judges.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tests.equipment.client_options import ClientOptions
from tests.equipment.clients import LASTING_S, Client, ConnectionFailedError
from tests.equipment.history import Message
from tests.soak.tally import Tally

AT_ONCE = 10
STAYS_S = 0.2
GETS_ALL = 0.9
"""So often one of them stays until it has got all that waited; else it leaves in the middle of it.
If they only stayed for a while, more would wait for some of them each time they came, and what is
carried for them would grow for good reason."""
QUIET_S = 0.05
AWAY_LONGEST = 0.1
"""Of this part of those who are away one comes back, so that nobody is away for long."""
BURST_MESSAGES_MAXIMUM = 10
PADDING_BYTES_MAXIMUM = 100
FORGOTTEN_AFTER_S = 2
"""A third of them is, while it is away, and begins anew; the others may not lose their sessions."""
AT_ONE_GO = 500


@dataclass(frozen=True)
class Size:
    """How many there are."""

    sessions: int = 1_000
    topics: int = 20_000

    def rounds(self, visits: int) -> float:
        """How often each of them has come, with so many visits of all."""
        return visits / self.sessions


class Fleet:
    """All of them."""

    def __init__(self, host: str, port: int, tally: Tally, random: Random, size: Size) -> None:
        self.visits = 0
        self._address = (host, port)
        self._random = random
        self._size = size
        self._each = max(1, size.topics // size.sessions)
        self._tasks: list[asyncio.Task[None]] = []
        self._away = [self._client(number, tally) for number in range(size.sessions)]
        self._filler = Client("fleet-filler", tally, ClientOptions(), Random(0))

    def _client(self, number: int, tally: Tally) -> Client:
        options = ClientOptions(
            clean_start=False,
            session_expiry_interval_s=FORGOTTEN_AFTER_S if number % 3 == 0 else LASTING_S,
        )
        return Client(f"fleet-{number}", tally, options, Random(self._random.getrandbits(63)))

    async def begin(self) -> None:
        """Each topic has a message, and they come from now on."""
        await self._filler.connect(*self._address)
        for first in range(0, self._size.topics, AT_ONE_GO):
            for number in range(first, min(first + AT_ONE_GO, self._size.topics)):
                self._publish(self._filler, number)
            await self._filler.idle.wait()
        self._filler.disconnect()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._come()) for _ in range(AT_ONCE)]

    async def end(self) -> None:
        """Nobody comes any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._filler.drop()

    async def _come(self) -> None:
        while True:
            longest = max(1, int(AWAY_LONGEST * len(self._away)))
            client = self._away.pop(self._random.randrange(longest))
            self.visits += 1
            try:
                with contextlib.suppress(ConnectionFailedError):
                    await self._visit(client)
            finally:
                client.drop()
                self._away.append(client)

    async def _visit(self, client: Client) -> None:
        random = self._random
        if not await client.connect(*self._address):
            for topic_filter in self._filters(client.name):
                await client.subscribe(topic_filter, 1)
        for _ in range(random.randint(0, BURST_MESSAGES_MAXIMUM)):
            self._publish(client, random.randrange(self._size.topics))
        await asyncio.sleep(random.uniform(0, STAYS_S))
        if random.random() < GETS_ALL:
            await _has_got_all(client)
        if random.random() < 0.5:
            client.disconnect()

    def _filters(self, name: str) -> Sequence[str]:
        """Its own topics, and one of everybody's. Of those that are forgotten nobody publishes any:
        each would leave a row in the loss ledger, which is there to grow."""
        number = name.rpartition("-")[2]
        if int(number) % 3 == 0:
            return (f"forgotten/{number}/+", f"forgotten/+/{self._random.randrange(self._each)}")
        return (f"fleet/{number}/+", f"fleet/+/{self._random.randrange(self._each)}")

    def _publish(self, client: Client, number: int) -> None:
        topic = f"fleet/{number // self._each}/{number % self._each}"
        padding = self._random.randrange(PADDING_BYTES_MAXIMUM)
        client.publish(Message(client.name, topic, 0, 1, padding_bytes=padding))


async def _has_got_all(client: Client) -> None:
    before = -1
    while client.received_count > before and not client.lost.is_set():
        before = client.received_count
        await asyncio.sleep(QUIET_S)
