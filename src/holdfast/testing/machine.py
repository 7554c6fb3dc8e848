"""One simulated computer.

Owns: what belongs to it. Never: runs anything; the loop does, for as long as it has power.
"""

import asyncio
from contextvars import Context, ContextVar, copy_context
from typing import Any


class Machine:
    """What loses its power as one: the callbacks, timers, tasks and connections of one simulated
    computer."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.has_power = True
        self.tasks: list[asyncio.Task[Any]] = []

    def context(self) -> Context:
        """A context in which everything that is started belongs to this machine."""
        context = copy_context()
        context.run(MACHINE.set, self)
        return context


MACHINE: ContextVar[Machine | None] = ContextVar("machine", default=None)
"""The machine that the running code belongs to."""
