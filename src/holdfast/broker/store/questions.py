"""Questions to the log about what waits in queues, asked in pieces.

Owns: how much of a piece is left. Never: decides anything by an answer.

An answer is exact as of the moment in which the question is first put. Where the log's index holds
it, it is there at once; else its chore (`broker.chores`) gives way and goes on in the next turn.
"""

from collections.abc import Sequence
from typing import Final

from holdfast.broker.chores import PIECE_EFFORT, Pieces
from holdfast.core.subscription import Subscription
from holdfast.kernel import Log, Question

QUESTION_EFFORT: Final = 100
"""What putting a question costs beside what the log looks at: some 10 us."""
SUBSCRIPTION_EFFORT: Final = 10
"""What each subscription of a question adds to that: some 1 us."""
SESSION_EFFORT: Final = 1_000
"""What it costs to read the record and the subscriptions of a session: some 100 us."""
SUBSCRIPTION_READ_EFFORT: Final = 30
"""What each subscription adds to that: some 3 us. There may be hundreds."""
EXACT: Final = 2**63
"""The effort of an inquiry whose answers have to be exact."""
LIST_EFFORT_MAXIMUM: Final = 1_000_000
"""The effort of one page of a list: a tenth of a second, or a few where the broker is busy. What
has not been counted by then is told as "at least"."""


class Inquiry:
    """The questions of one chore; they share its pieces."""

    def __init__(self, log: Log, effort_maximum: int = EXACT) -> None:
        """The first piece begins now. Once all questions together have taken `effort_maximum`,
        counts say what has been counted so far, and `is_exact` is false."""
        self._log = log
        self._left = effort_maximum
        self._spent = 0
        self.is_exact = True
        """False if something was counted that is only told as "at least"."""

    def count(
        self,
        wanted: Sequence[Subscription],
        owner: int,
        begin: int,
        end: int,
        *,
        unexpired_at_us: int = 0,
    ) -> Pieces[int]:
        """How many stored messages of QoS 1 and 2 these subscriptions match from `begin` up to
        `end`, without those that have expired by a time; 0 counts all of them."""
        if not wanted or begin >= end:
            return 0
        return (
            yield from self._ask(
                "count", wanted, owner, begin, end, unexpired_at_us=unexpired_at_us
            )
        )

    def weigh(
        self, wanted: Sequence[Subscription], owner: int, begin: int, end: int
    ) -> Pieces[int]:
        """How many bytes they have: each as many as the messages of its topic and segment have on
        average."""
        if not wanted or begin >= end:
            return 0
        return (yield from self._ask("bytes", wanted, owner, begin, end))

    def first(
        self, wanted: Sequence[Subscription], owner: int, begin: int, end: int
    ) -> Pieces[int]:
        """The offset of the first of them; the end of the range, or of what is durable, if there is
        none. Not exact: an offset below which there is none."""
        return (yield from self._ask("first", wanted, owner, begin, end))

    def newest(
        self,
        wanted: Sequence[Subscription],
        owner: int,
        begin: int,
        end: int,
        messages: int,
        *,
        unexpired_at_us: int = 0,
    ) -> Pieces[int]:
        """The offset from which on exactly so many remain before `end`, or `begin` if there are no
        more."""
        return (
            yield from self._ask(
                "newest",
                wanted,
                owner,
                begin,
                end,
                messages=messages,
                unexpired_at_us=unexpired_at_us,
            )
        )

    def rest(self, effort: int = QUESTION_EFFORT) -> Pieces[None]:
        """Gives way if the piece is used up: before other work between two questions, which takes
        this effort."""
        if self._spent >= PIECE_EFFORT:
            yield None
            self._spent = 0
        self._spent += effort

    def _ask(
        self,
        figure: str,
        wanted: Sequence[Subscription],
        owner: int,
        begin: int,
        end: int,
        *,
        messages: int = 0,
        unexpired_at_us: int = 0,
    ) -> Pieces[int]:
        effort = QUESTION_EFFORT + SUBSCRIPTION_EFFORT * len(wanted)
        yield from self.rest(effort)
        self._left -= effort
        question = Question(
            figure,
            wanted,
            owner,
            begin,
            end,
            messages=messages,
            unexpired_at_us=unexpired_at_us,
        )
        while True:
            if self._left <= 0:
                self.is_exact = False
                return question.so_far()
            before = self._log.effort()
            answer = self._log.answer(question, max(PIECE_EFFORT - self._spent, QUESTION_EFFORT))
            spent = self._log.effort() - before
            self._spent += spent
            self._left -= spent
            if answer is not None:
                return answer
            yield None
            self._spent = 0
