"""One round of a canary: a consumer goes away, reads are published, it comes back and counts.

Owns: what is published in a round, what came of it, and what is left of the canary at the broker.
Never: says when a round is due, or where its result is seen.

Invariants:
1. A round is green only if each read came once, in order, to the session that was left.
2. After a round there is no session of it, or none for longer than its expiry.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.client.mqtt import (
    FAILED,
    Client,
    ClientOptions,
    ConnectionFailedError,
    Delivery,
    Publication,
)

QOS: Final = 2
QUIET_S: Final = 0.5
"""How long is waited for what should not come, after the last read."""
KEPT_LONGER_S: Final = 60
"""By how much the session is kept longer than a round needs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a round is played."""

    environment: str
    reads: int = 50
    away_s: float = 10.0
    within_s: float = 30.0
    """How long each wait may last: for the first read, the publisher, and all that waited."""

    @property
    def name(self) -> str:
        """The consumer's client identifier, and its group."""
        return f"holdfast-canary-{self.environment}"

    @property
    def topic(self) -> str:
        """Where reads are published to."""
        return f"holdfast-canary/{self.environment}/reads"

    @property
    def topic_filter(self) -> str:
        """What the consumer subscribes to."""
        return f"$share/{self.name}/{self.topic}"

    @property
    def result_topic(self) -> str:
        """Where the result of the last round is retained."""
        return f"holdfast-canary/{self.environment}/result"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a round has come to."""

    reads: int = 0
    """How many were published while the consumer was away."""
    lost: int = 0
    doubled: int = 0
    is_ordered: bool = True
    catch_up_s: float | None = None
    """From CONNACK to the last read; None if not all of them came."""
    reason: str | None = None
    """Why the round could not be played to its end."""

    @property
    def is_red(self) -> bool:
        """Somebody has to look."""
        return bool(self.lost or self.doubled or self.reason) or not self.is_ordered


class _NotPlayedError(Exception):
    """The round cannot go on."""


class _Consumer(Client):
    """It remembers which reads of its round came, and when."""

    def __init__(self, name: str, options: ClientOptions, prefix: bytes) -> None:
        super().__init__(name, options)
        self.numbers: list[int] = []
        self.opened_s = 0.0
        self.last_new_s = 0.0
        self.came = asyncio.Event()
        self._prefix = prefix

    def opened(self, session_present: bool, properties: Mapping[str, Any]) -> None:
        del session_present, properties
        self.opened_s = asyncio.get_running_loop().time()

    def received(self, delivery: Delivery) -> None:
        self.acknowledge(delivery)
        if delivery.payload.startswith(self._prefix):
            number = int(delivery.payload.removeprefix(self._prefix))
            if number not in self.numbers:
                self.last_new_s = asyncio.get_running_loop().time()
            self.numbers.append(number)
            self.came.set()

    async def wait_for(self, numbers: set[int], within_s: float) -> bool:
        """Waits until these came; returns whether they did."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not numbers <= set(self.numbers):
                    self.came.clear()
                    await self.came.wait()
        return numbers <= set(self.numbers)


class Canary:
    """Plays rounds, one after the other."""

    def __init__(
        self, place: tuple[str, int], options: ClientOptions, terms: Terms, word: str
    ) -> None:
        """`word` is one that no other start of a canary has; `options` say who connects."""
        self.terms = terms
        self._place = place
        kept_s = round(terms.away_s + 3 * terms.within_s) + KEPT_LONGER_S
        self._kept = replace(options, clean_start=False, session_expiry_interval_s=kept_s)
        self._gone = replace(options, clean_start=True, session_expiry_interval_s=0)
        self._word = word
        self._rounds = 0

    async def play(self) -> Outcome:
        """One round. What goes wrong is in its outcome."""
        self._rounds += 1
        prefix = f"{self._word} {self._rounds} ".encode()
        consumer = _Consumer(self.terms.name, replace(self._kept, clean_start=True), prefix)
        publisher = Client(f"{self.terms.name}-publisher", self._gone)
        try:
            await publisher.connect(*self._place)
            return await self._play(consumer, publisher, prefix)
        except (ConnectionFailedError, _NotPlayedError) as error:
            return Outcome(reason=str(error))
        finally:
            publisher.disconnect()
            consumer.drop()
            await self.leave()

    async def tell(self, payload: bytes) -> None:
        """Has the broker retain the result, if it is there."""
        client = Client(f"{self.terms.name}-result", self._gone)
        with suppress(ConnectionFailedError):
            await client.connect(*self._place)
            client.publish(Publication(self.terms.result_topic, payload, 1, retain=True))
            with suppress(TimeoutError):
                async with asyncio.timeout(self.terms.within_s):
                    await client.idle.wait()
            client.disconnect()

    async def leave(self) -> None:
        """Takes the consumer out of its group and ends its session, if the broker is there and
        answers in time."""
        kept = Client(self.terms.name, self._kept)
        gone = Client(self.terms.name, self._gone)
        try:
            with suppress(ConnectionFailedError, TimeoutError):
                async with asyncio.timeout(self.terms.within_s):
                    if await kept.connect(*self._place):
                        await kept.unsubscribe(self.terms.topic_filter)
                    kept.disconnect()
                    await kept.lost.wait()
                    await gone.connect(*self._place)
                    gone.disconnect()
                    await gone.lost.wait()
        finally:
            kept.drop()
            gone.drop()

    async def _play(self, consumer: _Consumer, publisher: Client, prefix: bytes) -> Outcome:
        terms = self.terms
        await consumer.connect(*self._place)
        reason_code = await consumer.subscribe(terms.topic_filter, QOS)
        if reason_code >= FAILED:
            raise _NotPlayedError(f"the broker refused {terms.topic_filter} with {reason_code:#x}")
        self._publish(publisher, prefix, range(1))
        if not await consumer.wait_for({0}, terms.within_s):
            raise _NotPlayedError("the first read has not come")
        consumer.disconnect()
        await consumer.lost.wait()
        away = asyncio.get_running_loop().time() + terms.away_s
        self._publish(publisher, prefix, range(1, terms.reads + 1))
        try:
            async with asyncio.timeout(terms.within_s):
                await publisher.idle.wait()
        except TimeoutError:
            raise _NotPlayedError("the broker has not taken all reads") from None
        await asyncio.sleep(away - asyncio.get_running_loop().time())
        return await self._come_back(consumer)

    async def _come_back(self, consumer: _Consumer) -> Outcome:
        reads = self.terms.reads
        wanted = set(range(1, reads + 1))
        consumer.options = self._kept
        if not await consumer.connect(*self._place):
            why = "the broker had ended the session"
            return Outcome(reads=reads, lost=reads, reason=why)
        is_whole = await consumer.wait_for(wanted, self.terms.within_s)
        catch_up_s = consumer.last_new_s - consumer.opened_s
        await asyncio.sleep(QUIET_S)
        came = list(dict.fromkeys(consumer.numbers))
        return Outcome(
            reads=reads,
            lost=len(wanted.difference(came)),
            doubled=len(consumer.numbers) - len(came),
            is_ordered=came == sorted(came),
            catch_up_s=catch_up_s if is_whole else None,
        )

    def _publish(self, publisher: Client, prefix: bytes, numbers: range) -> None:
        payloads = (prefix + b"%d" % number for number in numbers)
        topic = self.terms.topic
        publisher.publish(*(Publication(topic, payload, QOS) for payload in payloads))
