"""A processor that runs: its session, its batches, its dead letters, and how it stops.

Owns: the tasks and the thread of one processor, and what is open between them. Never: looks into a
message, or acknowledges one whose end is not known.

Invariants:
1. A message is acknowledged when its rows are committed, or its dead letter is the broker's; else
   the broker has it still.
2. What is open is bounded by Receive Maximum, and what has gathered by what BATCHES_AHEAD batches
   may have, and one read more.
3. One batch is worked on at a time, on one thread; meanwhile the next one gathers.

Flow: session -> gathering -> work -> session or dead letters.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random
from typing import Any, Final, TypeVar, TypeVarTuple

from holdfast.client.consumer import Arrival
from holdfast.client.mqtt import ConnectionFailedError
from holdfast.processors.gathering import Bounds, Came, Gathering
from holdfast.processors.message import Message
from holdfast.processors.metrics import Counts
from holdfast.processors.poison import FOR_EVER_S, LetterRefusedError, keep_letters, letter_of
from holdfast.processors.processor import Processor
from holdfast.processors.session import JITTER, Session, identity_among
from holdfast.processors.settings import ProcessorSettings
from holdfast.processors.sink import Sink, SinkAwayError
from holdfast.processors.work import Batch, End, Ending, Work
from holdfast.protocols.mqtt.reason_code import reason_name

log = logging.getLogger(__name__)

BATCHES_AHEAD: Final = 4
"""So many batches' messages or bytes may have gathered before it reads no more: at QoS 0 there is
no Receive Maximum, and at QoS 1 what had gathered comes again on each new connection."""
PAUSE_S: Final = 0.2
"""Before the first further attempt; each pause is twice the last one, up to the longest."""
PAUSE_MAXIMUM_S: Final = 30.0

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class Running:
    """One processor, from its start to its end."""

    def __init__(
        self,
        processor: Processor,
        settings: ProcessorSettings,
        sink: Sink,
        counts: Counts,
        *,
        now_us: Callable[[], int],
        random: Random,
    ) -> None:
        self.settings = settings
        self._counts = counts
        self._now_us = now_us
        self._random = random
        self._work = Work(processor, sink, settings.maximum_attempts)
        self._session = Session(settings, self, random)
        bounds = Bounds(settings.batch_messages, settings.batch_bytes, settings.batch_age_s)
        self._gathering = Gathering(bounds)
        self._current: Sequence[Came] = ()
        """What is worked on."""
        self._again: deque[Came] = deque()
        """What has failed and whose pause is over."""
        self._pausing: dict[int, Came] = {}
        """What has failed and waits, and what is a dead letter that the broker does not have yet;
        by what Python calls its arrival."""
        self._letters: deque[tuple[Came, str, End]] = deque()
        self._wake = asyncio.Event()
        self._letter_waits = asyncio.Event()
        self._to_forget: list[str] = []
        """Identities of dead letters that the broker has."""
        self._letters_open = 0
        """Dead letters that the broker does not have yet."""
        self._work_is_done = False
        self._all_settled = asyncio.Event()
        self._stop_wanted = asyncio.Event()
        self._sink_waits_for: str | None = "the sink is not open yet"
        self._is_live = True
        self._letters_kept_until_s = -math.inf
        """Until then a session is known to keep dead letters, and each for a while."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"work-{settings.name}")

    # --- what is seen of it ---------------------------------------------------------------------

    @property
    def name(self) -> str:
        """As in its settings."""
        return self.settings.name

    def is_live(self) -> bool:
        """False: it has ended, and only a new start helps."""
        return self._is_live

    def waits_for(self) -> str | None:
        """Why it takes no messages; None if it does."""
        if self._stop_wanted.is_set():
            return "it stops"
        if self._sink_waits_for is not None:
            return self._sink_waits_for
        return None if self._session.is_ready else "the broker is not connected"

    def counted(self, name: str) -> int:
        """One of its counts, by its name in `Counts`."""
        (metric,) = getattr(self._counts, name).collect()
        return int(metric.samples[0].value)

    def open_count(self) -> int:
        """Messages that came and are not acknowledged."""
        return self._session.open_count()

    def gathered_count(self) -> int:
        """Messages that came and that nobody works on yet."""
        return len(self._gathering)

    def measure(self) -> None:
        """Brings the gauges up to date."""
        waiting = [*self._current[:1], *self._pausing.values(), *self._again]
        ages = [came.at_s for came in waiting]
        oldest = self._gathering.oldest_at_s()
        if oldest is not None:
            ages.append(oldest)
        now = asyncio.get_running_loop().time()
        self._counts.oldest_open_s.set(now - min(ages) if ages else 0)
        self._counts.open.set(self.open_count())

    # --- its life -------------------------------------------------------------------------------

    async def live(self) -> None:
        """Runs until `stop`. Raises `ProcessorEndedError`, or what a sink cannot go on with."""
        try:
            async with asyncio.TaskGroup() as tasks:
                keeping = tasks.create_task(self._session.keep())
                posting = tasks.create_task(self._post())
                working = tasks.create_task(self._settle_all())
                await self._stop_wanted.wait()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.settings.stop_within_s):
                        await self._all_settled.wait()
                for task in (working, posting, keeping):
                    task.cancel()
        finally:
            self._is_live = False
            await self._end()

    def stop(self) -> None:
        """Takes no more messages, finishes what is open within `stop_within_s`, and gives back what
        is not finished then."""
        self._stop_wanted.set()
        self._wake.set()

    async def _end(self) -> None:
        self._session.give_up()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.stop_within_s):
                await self._session.lost.wait()
                await self._on_thread(self._work.close)
        self._thread.shutdown(wait=False)
        log.info(
            "the processor has ended", extra=self._fields(given_back=self._session.open_count())
        )

    # --- what the session tells -----------------------------------------------------------------

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """They gather; while it stops they are left to the broker."""
        if self._stop_wanted.is_set():
            return
        self._counts.received.inc(len(arrivals))
        if again := sum([arrival.dup for arrival in arrivals]):
            self._counts.redelivered.inc(again)
        self._gathering.add(arrivals, asyncio.get_running_loop().time(), self._now_us())
        if self._gathering.batches() > BATCHES_AHEAD:
            self._session.pause()
        self._wake.set()

    def reconnected(self) -> None:
        """Counted."""
        self._counts.reconnects.inc()

    def session_lost(self) -> None:
        """Counted."""
        self._counts.sessions_lost.inc()

    # --- batches --------------------------------------------------------------------------------

    async def _settle_all(self) -> None:
        """One batch after the other, until it stops."""
        goes_on = await self._until_taken(self._work.open)
        while goes_on:
            came, singly = await self._next()
            if self._to_forget:
                await self._until_taken(self._forget)
            if came:
                goes_on = await self._settle(came, singly=singly)
            else:
                goes_on = not self._stop_wanted.is_set()
        self._work_is_done = True
        self._note_settled()

    async def _next(self) -> tuple[Sequence[Came], bool]:
        """What is worked on next, and whether each alone; nothing where it stops, or where there is
        something to forget."""
        loop = asyncio.get_running_loop()
        while True:
            if self._again:
                return (self._again.popleft(),), True
            due_s = self._gathering.due_at_s()
            if due_s is not None and (due_s <= loop.time() or self._stop_wanted.is_set()):
                return self._gathering.take(), False
            if self._stop_wanted.is_set() or self._to_forget:
                return (), False
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due_s):
                    await self._wake.wait()

    async def _settle(self, came: Sequence[Came], *, singly: bool) -> bool:
        """False where it stops before the batch has its ends."""
        self._current = came
        batch = Batch([message_of(each) for each in came], singly=singly)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        if not await self._until_taken(self._work.do, batch):
            return False
        self._counts.commit_s.observe(loop.time() - began_s)
        self._counts.batch_messages.observe(len(came))
        self._counts.written.inc(batch.written)
        self._counts.repeats.inc(batch.repeats)
        done = []
        for each, identity, end in zip(came, batch.identities, batch.ends, strict=True):
            assert end is not None
            if end.ending is Ending.COMMITTED:
                done.append(each.arrival)
            elif end.ending is Ending.REJECTED:
                self._reject(each, identity, end)
            else:
                self._try_later(each, end)
        self._counts.committed.inc(len(done))
        self._session.acknowledge_all(done)
        self._current = ()
        if self._gathering.batches() <= 1:
            self._session.resume()
        return True

    def _forget(self) -> None:
        """On the thread: what was counted of dead letters that the broker has is gone."""
        while self._to_forget:
            self._work.forget(self._to_forget[:1])
            self._to_forget.pop(0)

    async def _until_taken(self, do: Callable[[*Arguments], None], *args: *Arguments) -> bool:
        """Does it on the thread, again and again while the sink is away; False where it stops."""
        pause_s = PAUSE_S
        while True:
            try:
                if self._sink_waits_for is not None and do != self._work.open:
                    await self._on_thread(self._work.open)
                await self._on_thread(do, *args)
            except SinkAwayError as error:
                self._counts.sink_away.inc()
                self._sink_waits_for = f"the sink is away: {error}"
                fields = self._fields(why=str(error), again_in_s=round(pause_s, 1))
                log.warning("the sink is away", extra=fields)
            else:
                self._sink_waits_for = None
                return True
            with suppress(TimeoutError):
                async with asyncio.timeout(self._jittered(pause_s)):
                    await self._stop_wanted.wait()
                    return False
            pause_s = min(2 * pause_s, PAUSE_MAXIMUM_S)

    async def _on_thread(self, do: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, do, *args)

    # --- what failed ----------------------------------------------------------------------------

    def _try_later(self, came: Came, end: End) -> None:
        self._counts.failed_attempts.inc()
        fields = self._fields(
            topic=came.arrival.topic_name, attempts=end.attempts, reason=end.logged
        )
        log.warning("an attempt has failed", extra=fields)
        self._pausing[id(came.arrival)] = came
        pause_s = min(PAUSE_S * 2**end.attempts, PAUSE_MAXIMUM_S)
        loop = asyncio.get_running_loop()
        loop.call_later(self._jittered(pause_s), self._try_now, came)

    def _try_now(self, came: Came) -> None:
        if self._pausing.pop(id(came.arrival), None) is not None and not self._stop_wanted.is_set():
            self._again.append(came)
            self._wake.set()

    def _reject(self, came: Came, identity: str, end: End) -> None:
        self._counts.rejected.inc()
        fields = self._fields(
            topic=came.arrival.topic_name,
            identity=identity,
            attempts=end.attempts,
            reason=end.logged,
        )
        log.warning("a message is rejected", extra=fields)
        self._pausing[id(came.arrival)] = came
        self._letters_open += 1
        self._letters.append((came, identity, end))
        self._letter_waits.set()

    async def _post(self) -> None:
        """Publishes dead letters, as soon as somebody keeps them."""
        while True:
            await self._letter_waits.wait()
            now_s = asyncio.get_running_loop().time()
            if now_s >= self._letters_kept_until_s:
                try:
                    kept_s = await keep_letters(self.settings)
                    # Half of it is left for the last letter before the session is used again.
                    self._letters_kept_until_s = now_s + kept_s / 2
                    if kept_s != FOR_EVER_S:
                        fields = self._fields(seconds=kept_s)
                        log.warning("dead letters are kept for a time only", extra=fields)
                except (ConnectionFailedError, LetterRefusedError) as error:
                    log.warning("dead letters wait", extra=self._fields(why=str(error)))
                    await asyncio.sleep(self._jittered(self.settings.reconnect_delay_s))
                    continue
            while self._letters:
                self._post_one(*self._letters.popleft())
            self._letter_waits.clear()

    def _post_one(self, came: Came, identity: str, end: End) -> None:
        arrival = came.arrival

        def answered(reason_code: int) -> None:
            if reason_code:
                fields = self._fields(why=reason_name(reason_code))
                log.error("the broker refuses a dead letter", extra=fields)
                loop = asyncio.get_running_loop()
                loop.call_later(
                    self._jittered(PAUSE_MAXIMUM_S), self._post_again, came, identity, end
                )
                return
            self._counts.dead_letters.inc()
            self._letters_open -= 1
            self._pausing.pop(id(arrival), None)
            self._to_forget.append(identity)
            self._wake.set()
            self._session.acknowledge_all((arrival,))
            self._note_settled()

        letter = letter_of(
            self.settings,
            arrival.topic_name,
            arrival.payload,
            arrival.properties,
            identity,
            end,
            self._now_us(),
            answered,
        )
        self._session.publish(letter)

    def _post_again(self, came: Came, identity: str, end: End) -> None:
        self._letters.append((came, identity, end))
        self._letter_waits.set()

    def _note_settled(self) -> None:
        if self._work_is_done and not self._letters_open:
            self._all_settled.set()

    def _jittered(self, pause_s: float) -> float:
        return pause_s * self._random.uniform(1 - JITTER, 1 + JITTER)

    def _fields(self, **more: Any) -> dict[str, Any]:
        return {"fields": {"processor": self.name, **more}}


def message_of(came: Came) -> Message:
    """What a processor is handed."""
    # Each message is made one, so its parts are told by their places: by name it takes half as
    # long again.
    (topic, payload, qos, retain, dup, _, properties), _, at_us = came
    pairs = tuple(properties.get("user_property", ()))
    identity = identity_among(pairs)
    return Message(topic, payload, qos, retain, dup, pairs, identity, at_us)
