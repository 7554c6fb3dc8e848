"""The standing canary of an environment: a round every few minutes, and where each result is seen.

Owns: when a round is due, and its result as a log line, as metrics and as a retained message.
Never: judges a round; `client.canary` does.

Invariant: when it ends, by itself or because it is stopped, its session has been removed.
"""

import asyncio
import json
import logging
import signal
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.exposition import generate_latest

from holdfast import system
from holdfast.client.canary import Canary, Outcome, Terms
from holdfast.processors.health import serve_health
from holdfast.processors.session import options_of
from holdfast.processors.settings import ProcessorSettings

log = logging.getLogger(__name__)

LABELS: Final = ("environment",)
WORD_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When rounds are played, and where they are seen."""

    every_s: float
    rounds: int | None = None
    """None: for ever."""
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    """None: no metrics over HTTP; 0: a port that the system chooses."""


class CanaryMetrics:
    """What is counted of rounds, on a registry of its own. What tells of the last round is not
    there before there was one: an alert would take a zero for an answer."""

    def __init__(self, environment: str) -> None:
        self._registry = CollectorRegistry()
        self._environment = environment
        self._rounds = self._counter("rounds", "Rounds that were played")
        self._lost = self._counter("lost_messages", "Reads that have not come")
        self._doubled = self._counter("doubled_messages", "Reads that came once more")
        self._catch_up = self._gauge("catch_up_seconds", "From CONNACK to the last read")
        self._last = self._gauge("last_round_timestamp_seconds", "When the last round ended")
        self._red = self._gauge("red", "1 if the last round was red")

    def note(self, outcome: Outcome, now_s: float) -> None:
        """A round has ended."""
        self._rounds.inc()
        self._lost.inc(outcome.lost)
        self._doubled.inc(outcome.doubled)
        # A time that was not measured is none, and not that of an earlier round.
        catch_up_s = float("nan") if outcome.catch_up_s is None else outcome.catch_up_s
        self._catch_up.labels(self._environment).set(catch_up_s)
        self._last.labels(self._environment).set(now_s)
        self._red.labels(self._environment).set(outcome.is_red)

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self._registry)

    def _counter(self, name: str, meaning: str) -> Counter:
        family = Counter(f"holdfast_canary_{name}", meaning, LABELS, registry=self._registry)
        return family.labels(self._environment)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(f"holdfast_canary_{name}", meaning, LABELS, registry=self._registry)


class StandingCanary:
    """Rounds, one every few minutes."""

    name = "canary"

    def __init__(
        self, canary: Canary, schedule: Schedule, metrics: CanaryMetrics, now_us: Callable[[], int]
    ) -> None:
        self.was_red = False
        """Any round was."""
        self._canary = canary
        self._schedule = schedule
        self._metrics = metrics
        self._now_us = now_us
        self._last: Outcome | None = None

    async def live(self) -> None:
        """Plays all rounds."""
        loop = asyncio.get_running_loop()
        played = 0
        try:
            while True:
                began_s = loop.time()
                await self._play()
                played += 1
                if played == self._schedule.rounds:
                    return
                await asyncio.sleep(began_s + self._schedule.every_s - loop.time())
        finally:
            await self._canary.leave()

    def is_live(self) -> bool:
        """It plays as long as its process is there."""
        return True

    def waits_for(self) -> str | None:
        """What was wrong with the last round."""
        if self._last is None:
            return "its first round"
        return "a green round" if self._last.is_red else None

    def measure(self) -> None:
        """All of it is counted when a round ends."""

    async def _play(self) -> None:
        outcome = await self._canary.play()
        now_s = self._now_us() / 1_000_000
        self._last = outcome
        self.was_red = self.was_red or outcome.is_red
        self._metrics.note(outcome, now_s)
        told = document(self._canary.terms.environment, outcome, now_s)
        level = logging.ERROR if outcome.is_red else logging.INFO
        word = "red" if outcome.is_red else "green"
        log.log(level, "canary: the round is %s", word, extra={"fields": told})
        await self._canary.tell(json.dumps(told).encode())


def document(environment: str, outcome: Outcome, now_s: float) -> Mapping[str, Any]:
    """A result, as it is retained and logged."""
    return {
        "environment": environment,
        "red": outcome.is_red,
        "reads": outcome.reads,
        "lost": outcome.lost,
        "doubled": outcome.doubled,
        "ordered": outcome.is_ordered,
        "catch_up_seconds": outcome.catch_up_s,
        "reason": outcome.reason,
        "ended_at": now_s,
    }


async def watch(settings: ProcessorSettings, terms: Terms, schedule: Schedule) -> bool:
    """Plays rounds until all are played, or until SIGTERM or SIGINT; returns whether any was red.
    Raises `ProcessorEndedError` for files of TLS that do not serve."""
    word = system.entropy(WORD_BYTES).hex()
    place = (settings.broker_host, settings.broker_port)
    metrics = CanaryMetrics(terms.environment)
    canary = Canary(place, options_of(settings), terms, word)
    standing = StandingCanary(canary, schedule, metrics, system.now_us)
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        if schedule.metrics_port is not None:
            host, port = schedule.metrics_host, schedule.metrics_port
            await stack.enter_async_context(serve_health(host, port, [standing], metrics))
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(standing.live())
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, task.cancel)
    return standing.was_red
