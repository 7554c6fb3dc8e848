"""Work beside the loop: one worker, who does the steps of the kernel's jobs one after the other.

Owns: the worker. Never: knows what a job does. Between two steps the loop has its turns, so whoever
waits for a job sees how far it is, and a stop waits for one step at most.
"""

from collections.abc import Callable

from holdfast.broker.chores import Pieces
from holdfast.broker.world import World
from holdfast.kernel import Job


class Beside:
    """The worker of checkpoints and retention."""

    def __init__(self, world: World, soon: Callable[[], None]) -> None:
        """`soon` asks for a turn."""
        self._workers = world.workers(1)
        self._soon = soon

    def run(self, job: Job) -> Pieces[None]:
        """Does all steps of a job, for a chore."""
        while (yield from self._step(job)):
            pass

    def stop(self) -> None:
        """Waits for the step that is being done, and does no more."""
        self._workers.stop()

    def _step(self, job: Job) -> Pieces[bool]:
        answers: list[bool] = []

        def ended(has_more: bool) -> None:
            answers.append(has_more)
            self._soon()

        self._workers.run(job.step, ended)
        yield lambda: bool(answers)
        return answers[0]
