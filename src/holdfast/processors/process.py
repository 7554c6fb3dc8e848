"""The processors of one process: started together, seen together, stopped together.

Owns: what they share, which is health, metrics and signals. Never: knows what one of them does.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

from holdfast import system
from holdfast.processors.health import serve_health
from holdfast.processors.metrics import Metrics
from holdfast.processors.processor import Processor
from holdfast.processors.running import Running
from holdfast.processors.settings import ProcessorSettings
from holdfast.processors.sink import Sink
from holdfast.processors.sinks import open_sink


class Processes:
    """Processors that run."""

    def __init__(self, each: Sequence[Running], metrics: Metrics) -> None:
        self.each = each
        self.metrics = metrics
        self.health_ports: list[int] = []
        """Where health and metrics are served."""
        self._ended = asyncio.Event()

    def stop(self) -> None:
        """All of them take no more messages, finish what is open or give it back."""
        for running in self.each:
            running.stop()

    async def wait_ended(self) -> None:
        """Returns when all of them have ended, after `stop`; what one of them cannot go on with is
        raised where they were started."""
        await self._ended.wait()

    async def live(self) -> None:
        """Runs them. Raises what the first of them cannot go on with, without a group around it."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for running in self.each:
                    tasks.create_task(running.live())
        except BaseExceptionGroup as group:
            raise _first(group) from None
        finally:
            self._ended.set()


@asynccontextmanager
async def run_all(
    pairs: Sequence[tuple[Processor, ProcessorSettings]],
    *,
    sink: Callable[[str], Sink] = open_sink,
    now_us: Callable[[], int] = system.now_us,
    random: Random | None = None,
) -> AsyncIterator[Processes]:
    """Runs processors while the context is open, and then stops them. Raises what one of them
    cannot go on with: `ProcessorEndedError`, `SinkUnfitError`, or what its own sink raises."""
    metrics = Metrics()
    random = random or Random(system.seed())  # noqa: S311 - only pauses depend on it.
    each = [
        Running(
            processor,
            settings,
            sink(settings.sink),
            metrics.of(settings.name, settings.environment),
            now_us=now_us,
            random=random,
        )
        for processor, settings in pairs
    ]
    processes = Processes(each, metrics)
    async with AsyncExitStack() as stack:
        for host, port in _health_addresses(pairs):
            there = [one for one in each if _health_address(one.settings) == (host, port)]
            served = serve_health(host, port, there, metrics)
            processes.health_ports.append(await stack.enter_async_context(served))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(processes.live())
                try:
                    yield processes
                finally:
                    processes.stop()
        except BaseExceptionGroup as group:
            raise _first(group) from None


@asynccontextmanager
async def run(
    processor: Processor,
    settings: ProcessorSettings,
    *,
    sink: Callable[[str], Sink] = open_sink,
    now_us: Callable[[], int] = system.now_us,
    random: Random | None = None,
) -> AsyncIterator[Running]:
    """Runs one processor while the context is open; the same as `run_all`."""
    pairs = ((processor, settings),)
    async with run_all(pairs, sink=sink, now_us=now_us, random=random) as processes:
        yield processes.each[0]


async def serve(pairs: Sequence[tuple[Processor, ProcessorSettings]]) -> None:
    """Runs processors until SIGTERM or SIGINT. Raises as `run_all` does."""
    loop = asyncio.get_running_loop()
    # The thread that commits asks for the interpreter after each word of its database: with
    # Python's own 5 ms it got a third of the rows into PostgreSQL.
    system.share_interpreter()
    system.calm_garbage_collector()
    async with run_all(pairs) as processes:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, processes.stop)
        await processes.wait_ended()


def _health_address(settings: ProcessorSettings) -> tuple[str, int | None]:
    return settings.health_host, settings.health_port


def _health_addresses(
    pairs: Sequence[tuple[Processor, ProcessorSettings]],
) -> list[tuple[str, int]]:
    """Each once."""
    found = [(each.health_host, each.health_port) for _, each in pairs]
    return list(dict.fromkeys((host, port) for host, port in found if port is not None))


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
