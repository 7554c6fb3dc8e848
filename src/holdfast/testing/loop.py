"""An asyncio event loop in virtual time: it moves its clock instead of waiting.

Owns: the virtual clock, which machine's code runs, the trace, and where connections lead
(`network`).
Never: waits, opens a socket, starts a thread or reads the real clock.

Invariants:
1. The same seed gives the same trace on the same minor version of Python.
2. Plain callbacks run in the order asyncio promises; only steps of tasks are shuffled.
3. Nothing of a machine without power runs any more.

Flow: `simulate` makes a loop for a seed and runs one coroutine in it; a failure says how to repeat
it.
"""

# ruff: noqa: D102 (most methods are asyncio's own)

import asyncio
import hashlib
import socket
import sys
from asyncio import base_events
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context
from random import Random
from typing import Any, TypeVar, TypeVarTuple

from holdfast.testing.hardships import Hardships, draw_hardships
from holdfast.testing.machine import MACHINE, Machine
from holdfast.testing.network import Network

TRACE_TAIL_LINES = 40
"""Lines of the trace that a failure shows."""

TURNS_WITHOUT_TIME_MAXIMUM = 200_000
"""Turns at one instant, after which code is taken to spin: the longest honest run needs some
thousands."""


Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class SimulationFailedError(AssertionError):
    """A simulated run failed; the message says how to repeat it."""


class DeadlockError(RuntimeError):
    """Nothing is ready and no timer is set: nothing will ever happen again."""


class SpinningError(RuntimeError):
    """The loop turns and turns, and its time does not move."""


class Trace:
    """What happened, as a hash of all lines and the last of them."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self.tail: deque[str] = deque(maxlen=TRACE_TAIL_LINES)

    def note(self, time_us: int, what: str) -> None:
        """Adds a line."""
        line = f"{time_us / 1e6:.6f} {what}"
        self._hash.update(line.encode())
        self.tail.append(line)

    def digest(self) -> str:
        """The hash of everything noted so far."""
        return self._hash.hexdigest()


class _VirtualSelector:
    """Stands where a selector stands, and moves the clock by the time it was asked to wait."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop
        self._turns_without_time = 0

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise DeadlockError("deadlock: nothing is ready and no timer is set")
        if timeout > 0:
            self._turns_without_time = 0
            self._loop.advance(timeout)
        self._turns_without_time += 1
        if self._turns_without_time > TURNS_WITHOUT_TIME_MAXIMUM:
            raise SpinningError(f"{TURNS_WITHOUT_TIME_MAXIMUM} turns at one instant")
        self._loop.shuffle_steps()
        return []


class VirtualLoop(base_events.BaseEventLoop):
    """The loop. Its time starts at 0 and is kept in whole microseconds, so that sums do not
    drift."""

    def __init__(self, seed: int, hardships: Hardships | None = None) -> None:
        super().__init__()
        self.seed = seed
        self.random = Random(seed)  # noqa: S311 (seeded on purpose)
        self.hardships = draw_hardships(self.random) if hardships is None else hardships
        self.trace = Trace()
        self.time_us = 0
        self._clock_resolution = 1e-6
        self._selector = _VirtualSelector(self)
        self.network = Network(self, self.random, self.hardships, self.note)

    # --- time and order -------------------------------------------------------------------------

    def time(self) -> float:
        return self.time_us / 1e6

    def advance(self, seconds: float) -> None:
        """Moves the clock; by at least a microsecond, so that rounding never makes the loop
        spin."""
        self.time_us += max(1, round(seconds * 1e6))

    def note(self, what: str) -> None:
        """Adds a line to the trace."""
        self.trace.note(self.time_us, what)

    def shuffle_steps(self) -> None:
        """Puts runnable steps of tasks into a seeded order; everything else keeps its place."""
        if not self.hardships.shuffle:
            return
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        places = [place for place, handle in enumerate(ready) if _is_step(handle)]
        if len(places) > 1:
            steps = [ready[place] for place in places]
            self.random.shuffle(steps)
            for place, step in zip(places, steps, strict=True):
                ready[place] = step

    # --- machines -------------------------------------------------------------------------------

    def power_off(self, machine: Machine) -> None:
        """Ends a machine between two callbacks: nothing of it runs again, its connections are
        reset."""
        self.note(f"power off {machine.name}")
        machine.has_power = False
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        for handle in [*ready, *scheduled]:
            if _machine_of(handle) is machine:
                handle.cancel()
        for task in machine.tasks:
            # It will never run again, and that is meant.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.network.power_off(machine)

    def call_soon(
        self,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.Handle:
        handle = super().call_soon(callback, *args, context=context)
        return _cancel_without_power(handle)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        _cancel_without_power(handle)
        return handle

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task = super().create_task(coro, **options)
        context: Context | None = options.get("context")
        machine = MACHINE.get() if context is None else context.get(MACHINE)
        if machine is not None:
            machine.tasks = [known for known in machine.tasks if not known.done()]
            machine.tasks.append(task)
        return task

    # --- what reaches out of the loop -----------------------------------------------------------

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        return self.network.listen(protocol_factory, host, port, **options)

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        return await self.network.connect(protocol_factory, host, port, **options)

    async def getaddrinfo(self, host: Any, port: Any, **_options: Any) -> Any:
        host.encode("idna")  # As the real one, it refuses what can be no name.
        if host not in self.network.names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        stream = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
        return [(*stream, (address, port)) for address in self.network.names[host]]

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Arguments], Result], *args: *Arguments
    ) -> asyncio.Future[Result]:
        """Runs `func` in this thread, after a seeded time."""
        future: asyncio.Future[Result] = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 (it is handed on)
                future.set_exception(error)

        mean_s = self.hardships.executor_latency_s
        self.call_later(self.random.expovariate(1 / mean_s) if mean_s else 0.0, work)
        return future

    def add_signal_handler(
        self, sig: int, callback: Callable[[*Arguments], object], *args: *Arguments
    ) -> None:
        """Nobody sends signals here."""

    def remove_signal_handler(self, sig: int) -> bool:
        return False

    def add_reader(self, fd: Any, callback: Callable[[*Arguments], Any], *args: *Arguments) -> None:
        raise NotImplementedError("there are no file descriptors in virtual time")

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none: bytes arrive by timers of the network."""

    def _write_to_self(self) -> None:
        """Nothing sleeps, so nothing has to be woken."""


def _is_step(handle: asyncio.Handle) -> bool:
    return isinstance(getattr(handle._callback, "__self__", None), asyncio.Task)  # type: ignore[attr-defined]


def _machine_of(handle: asyncio.Handle) -> Machine | None:
    return handle._context.get(MACHINE)  # type: ignore[attr-defined,no-any-return]


def _cancel_without_power(handle: asyncio.Handle) -> asyncio.Handle:
    machine = _machine_of(handle)
    if machine is not None and not machine.has_power:
        handle.cancel()
    return handle


def simulate(
    main: Callable[[VirtualLoop], Coroutine[Any, Any, Result]],
    *,
    seed: int,
    repeat: str,
    hardships: Hardships | None = None,
) -> tuple[Result, str]:
    """Runs `main` in virtual time; returns its result and the hash of the trace.

    `repeat` is the command that runs this seed again. Any failure, and any exception that a
    callback let escape, becomes a `SimulationFailedError` that shows it together with the seed and
    the end of the trace.
    """
    loop = VirtualLoop(seed, hardships)
    escaped: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: escaped.append(context))
    try:
        result = loop.run_until_complete(main(loop))
        if escaped:
            raise _escaped_error(escaped[0])
    except (Exception, asyncio.CancelledError) as error:
        raise SimulationFailedError(_explain(loop, error, repeat)) from error
    finally:
        _end(loop)
    return result, loop.trace.digest()


def _escaped_error(context: dict[str, Any]) -> BaseException:
    error: BaseException | None = context.get("exception")
    return error if error is not None else RuntimeError(str(context.get("message")))


def _end(loop: VirtualLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()


def _describe(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_describe(inner) for inner in error.exceptions)
    return f"{type(error).__name__}: {error}"


def _explain(loop: VirtualLoop, error: BaseException, repeat: str) -> str:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return "\n".join(
        (
            _describe(error),
            f"seed {loop.seed} on Python {version}, after {loop.time():.3f} virtual seconds",
            f"hardships: {loop.hardships.describe()}",
            f"repeat with: {repeat}",
            "the end of the trace:",
            *loop.trace.tail,
        )
    )
