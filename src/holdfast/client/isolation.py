"""Environments played against a broker: who gets what, counted.

Owns: which environments there are in the play, what is published, and what each pod got. Never:
says whether that is right, or asks the broker for anything but MQTT 5.

Invariant: everything has a word in its name that no other play has, and no session outlives it;
only one whose connection was lost does, for SESSION_S at most.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.client.mqtt import FAILED, Client, ClientOptions, Delivery, Publication

ENVIRONMENTS: Final[Mapping[str, int]] = {"prod": 3, "dev": 2, "laptop": 1}
"""Each with its number of pods, as in the decision record's picture."""
MIXED: Final = 4
"""Pods of all environments that use one group."""
SESSION_S: Final = 60
"""How long the one session is kept that has to be: of the pod that goes and comes back."""
WITHIN_S: Final = 30.0
"""How long a message may take; a broker that is there needs milliseconds."""
QUIET_S: Final = 0.5
"""How long is waited for what should not come."""
QOS: Final = 2

Options = Callable[[int], ClientOptions]
"""Makes the options of a client whose session is kept for so many seconds; 0: not at all."""


class IncompleteError(Exception):
    """Not all of what was published has come in time, or the broker refused a subscription."""


@dataclass(frozen=True, slots=True)
class Got:
    """What the pods of one environment got, in the order of their names."""

    environment: str
    expected: int
    by_pod: tuple[tuple[int, ...], ...]
    """The numbers of the messages that each got."""

    @property
    def shares(self) -> tuple[float, ...]:
        """What part of the messages each pod got."""
        return tuple(len(numbers) / max(self.expected, 1) for numbers in self.by_pod)

    @property
    def missing(self) -> int:
        """Messages that no pod got."""
        return self.expected - len({number for numbers in self.by_pod for number in numbers})

    @property
    def repeated(self) -> int:
        """How often a message came that some pod had already."""
        numbers = [number for numbers in self.by_pod for number in numbers]
        return len(numbers) - len(set(numbers))


class _Pod(Client):
    """A consumer that remembers what it got."""

    def __init__(self, name: str, options: ClientOptions, came: asyncio.Event) -> None:
        super().__init__(name, options)
        self.numbers: list[int] = []
        self._came = came

    def received(self, delivery: Delivery) -> None:
        """Counted, and acknowledged at once."""
        self.numbers.append(int(delivery.payload))
        self.acknowledge(delivery)
        self._came.set()


class Isolation:
    """A play: each act publishes `messages`, and returns what each environment got of them."""

    def __init__(self, place: tuple[str, int], options: Options, word: str, messages: int) -> None:
        """`word` is one that no other play has."""
        self._place = place
        self._options = options
        self._word = word
        self._messages = messages
        self._came = asyncio.Event()
        self._pods: dict[str, list[_Pod]] = {}
        self._publisher = Client(f"verify-{word}-reader", options(0))

    @property
    def topic(self) -> str:
        """Where everything is published to."""
        return f"holdfast-verify/{self._word}/reads"

    async def begin(self) -> None:
        """The publisher and all pods are there."""
        await self._publisher.connect(*self._place)
        for environment, pods in ENVIRONMENTS.items():
            for number in range(1, pods + 1):
                await self._join(environment, f"pod-{number}")

    async def share(self) -> list[Got]:
        """All environments get what is published."""
        return await self._act(self._pods)

    async def add_pod(self) -> list[Got]:
        """The same with one more pod in the first environment."""
        first = next(iter(ENVIRONMENTS))
        await self._join(first, f"pod-{ENVIRONMENTS[first] + 1}")
        return await self._act(self._pods)

    async def be_away(self) -> list[Got]:
        """The same while the one pod of the last environment is away, and when it has come back."""
        last = list(ENVIRONMENTS)[-1]
        (pod,) = self._pods[last]
        pod.drop()
        await pod.lost.wait()
        others = {name: pods for name, pods in self._pods.items() if name != last}
        await self._act(others)
        await pod.connect(*self._place)
        return await self._gathered(self._pods)

    async def mix(self) -> list[Got]:
        """All use one group, as they should not: each gets a part."""
        group = f"$share/verify-{self._word}/{self.topic}"
        await self._leave()
        for number in range(1, MIXED + 1):
            await self._join("mixed", f"pod-{number}", group)
        return await self._act(self._pods)

    async def end(self) -> None:
        """All of them have gone, and their sessions and groups have ended."""
        await self._leave()
        await _end(self._publisher)

    async def _leave(self) -> None:
        for pods in self._pods.values():
            for pod in pods:
                await _end(pod)
        self._pods = {}

    async def _join(self, environment: str, name: str, group: str = "") -> None:
        group = group or f"$share/verify-{self._word}-{environment}/{self.topic}"
        is_alone = ENVIRONMENTS.get(environment) == 1
        options = self._options(SESSION_S if is_alone else 0)
        pod = _Pod(f"verify-{self._word}-{environment}-{name}", options, self._came)
        await pod.connect(*self._place)
        reason_code = await pod.subscribe(group, QOS)
        if reason_code >= FAILED:
            raise IncompleteError(f"the broker refused {group} with {reason_code:#x}")
        self._pods.setdefault(environment, []).append(pod)

    async def _act(self, waited_for: Mapping[str, Sequence[_Pod]]) -> list[Got]:
        for pods in self._pods.values():
            for pod in pods:
                pod.numbers.clear()
        payloads = (b"%d" % number for number in range(self._messages))
        self._publisher.publish(*(Publication(self.topic, payload, QOS) for payload in payloads))
        return await self._gathered(waited_for)

    async def _gathered(self, waited_for: Mapping[str, Sequence[_Pod]]) -> list[Got]:
        try:
            async with asyncio.timeout(WITHIN_S):
                while not all(map(self._is_complete, waited_for.values())):
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            # What has not come is what is told.
            pass
        await asyncio.sleep(QUIET_S)
        return [
            Got(name, self._messages, tuple(tuple(pod.numbers) for pod in pods))
            for name, pods in self._pods.items()
        ]

    def _is_complete(self, pods: Iterable[_Pod]) -> bool:
        return sum(len(pod.numbers) for pod in pods) >= self._messages


async def _end(client: Client) -> None:
    client.disconnect(ends_session=True)
    await client.lost.wait()
