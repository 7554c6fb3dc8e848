"""Those who come once: connect, subscribe, publish, leave in some way, never to return.

Owns: what a passer-by does. Sessions, Wills and retained messages that they leave behind are
bounded by their expiry and by the number of topics. Never: judges.
"""

import asyncio
import contextlib
from random import Random

from holdfast.client.mqtt import Publication
from tests.equipment.clients import Client, ClientOptions, ConnectionFailedError
from tests.equipment.history import Message
from tests.soak.tally import Tally

AT_ONCE = 6
PAUSE_S = 0.1
STAYS_S = 0.3
RETAINED_TOPICS = 500
WILL_TOPICS = 50
BURST_MESSAGES_MAXIMUM = 10
SESSION_EXPIRY_S = (0, 0, 1, 3)


class Mortal(Client):
    """A client with a Will."""

    will_topic = ""

    async def connect(self, host: str, port: int, will: Publication | None = None) -> bool:
        if self.will_topic:
            payload = Message(self.name, self.will_topic, 1, 1).payload()
            will = Publication(self.will_topic, payload, qos=1)
        return await super().connect(host, port, will)


class Churn:
    """All passers-by of one run."""

    def __init__(self, host: str, port: int, tally: Tally, random: Random) -> None:
        self.count = 0
        self._address = (host, port)
        self._tally = tally
        self._random = random
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """They come from now on."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._come()) for _ in range(AT_ONCE)]
        self._tasks.append(loop.create_task(self._mourn()))

    async def end(self) -> None:
        """Nobody comes any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _mourn(self) -> None:
        """Somebody has to hear the Wills."""
        options = ClientOptions(clean_start=True, session_expiry_interval_s=0)
        mourner = Client("mourner", self._tally, options, Random(0))
        try:
            await mourner.connect(*self._address)
            await mourner.subscribe("will/#", 1)
            await mourner.lost.wait()
        finally:
            mourner.drop()

    async def _come(self) -> None:
        while True:
            self.count += 1
            client = self._client(f"churn-{self.count}")
            with contextlib.suppress(ConnectionFailedError):
                await self._pass_by(client)
            await asyncio.sleep(self._random.uniform(0, PAUSE_S))

    def _client(self, name: str) -> Mortal:
        random = self._random
        options = ClientOptions(
            protocol_version=random.choice((4, 5)),
            clean_start=random.random() < 0.5,
            session_expiry_interval_s=random.choice(SESSION_EXPIRY_S),
        )
        client = Mortal(name, self._tally, options, Random(random.getrandbits(63)))
        if random.random() < 0.3:
            client.will_topic = f"will/{random.randrange(WILL_TOPICS)}"
        return client

    async def _pass_by(self, client: Mortal) -> None:
        random = self._random
        second = None
        try:
            await client.connect(*self._address)
            for topic_filter in self._filters(client.name):
                await client.subscribe(topic_filter, random.randrange(3))
            self._publish(client)
            await asyncio.sleep(random.uniform(0, STAYS_S))
            if random.random() < 0.2:
                second = self._client(client.name)
                await second.connect(*self._address)
            if random.random() < 0.5:
                client.disconnect()
        finally:
            client.drop()
            if second is not None:
                second.drop()

    def _filters(self, name: str) -> list[str]:
        random = self._random
        choices = (
            f"of/{name}/+",
            "retained/#",
            f"retained/{random.randrange(RETAINED_TOPICS)}",
            "soak/+",
            "$share/churn/soak/#",
            f"$share/{name}/of/#",
        )
        return random.sample(choices, random.randint(0, 3))

    def _publish(self, client: Mortal) -> None:
        random = self._random
        for number in range(random.randint(0, BURST_MESSAGES_MAXIMUM)):
            retain = random.random() < 0.5
            topic = f"retained/{random.randrange(RETAINED_TOPICS)}" if retain else "churn/all"
            qos = random.randrange(3)
            client.publish(Message(client.name, topic, number, qos, retain, random.randrange(300)))
