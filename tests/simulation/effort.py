"""How much the broker's loop does at one go: work that is counted, not timed, so that it repeats.

Owns: what is a step, and what is work. A step is a turn without its piece, that piece, a part of a
sweep, or whatever else a test calls one. Work is what the log counts (records looked at, topics
looked up or compared) and what SQLite does to look something up, in units of some 0.1 us.
Never: judges; `tests.equipment.checkers` does.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from holdfast.broker.server import Server
from holdfast.core.limits import STEP_BUDGET_MS
from tests.equipment.history import Event, Stepped

T = TypeVar("T")

STEP_EFFORT_MAXIMUM: Final = STEP_BUDGET_MS * 10_000
"""Work of one step: what the time that it may take is enough for."""
PACKET_EFFORT: Final = 1_000
"""More is allowed for each control packet that came in the turn: who asks for something waits for
its own work, and what may be long is a chore."""
SQLITE_OPERATIONS: Final = 100
"""SQLite says after so many operations of its machine that they are done; each takes some 20 ns."""
OPERATIONS_EFFORT: Final = 20


class Effort:
    """Watches the steps of one broker, and notes each that did more than any of its kind before."""

    def __init__(
        self, server: Server, note: Callable[[Event], None], maximum: int = STEP_EFFORT_MAXIMUM
    ) -> None:
        self._server = server
        self._log = server.stages.kernel.log
        self._note = note
        self._maximum = maximum
        self._most: dict[str, int] = {}
        self._looked_up = 0
        server.records._view._database.set_progress_handler(self._look_up, SQLITE_OPERATIONS)
        self._watch_turns()
        self._watch_sweeps()

    def so_far(self) -> int:
        """All work since the start."""
        return self._log.effort() + self._looked_up

    def measured(self, step: str, work: Callable[[], T]) -> T:
        """Does this as a step of its own."""
        before = self.so_far()
        outcome = work()
        self._ended(step, self.so_far() - before)
        return outcome

    def _look_up(self) -> int:
        self._looked_up += OPERATIONS_EFFORT
        return 0

    def _ended(self, step: str, effort: int, allowed: int = 0) -> None:
        if effort - allowed > self._most.get(step, 0):
            self._most[step] = effort - allowed
            self._note(Stepped(step, effort, self._maximum + allowed))

    def _watch_turns(self) -> None:
        server, chores = self._server, self._server.stages.chores
        run, run_piece = server.turn.run, chores.run_piece
        pieces = [0]

        def measured_piece() -> str:
            before = self.so_far()
            name = run_piece()
            pieces[0] = self.so_far() - before
            self._ended(f"a piece of {name}", pieces[0])
            return name

        def measured_turn() -> None:
            before, packets = self.so_far(), server.turn.control_packets
            pieces[0] = 0
            run()
            allowed = (server.turn.control_packets - packets) * PACKET_EFFORT
            self._ended("a turn", self.so_far() - before - pieces[0], allowed)

        chores.run_piece = measured_piece  # type: ignore[method-assign]
        server._schedule.turn = measured_turn

    def _watch_sweeps(self) -> None:
        sweep = self._server.sweep
        for parts in (sweep._parts, sweep._observers):
            parts[:] = [(name, self._measured_part(name, part)) for name, part in parts]

    def _measured_part(self, name: str, part: Callable[[int], None]) -> Callable[[int], None]:
        return lambda now_us: self.measured(f"the sweep's {name}", lambda: part(now_us))
