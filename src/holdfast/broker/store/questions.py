"""Questions to the log about what waits in queues, asked in pieces.

Owns: how much of a piece is left, and what it means that a message waits: a subscription that keeps
matches it, and no rule leaves it out. Limits, losses, retention and whoever tells lengths ask here.
Never: decides anything by an answer.

An answer is exact as of the moment in which the question is first put. Where the log's index holds
it, it is there at once; else its chore (`broker.chores`) gives way and goes on in the next turn.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from holdfast.broker.chores import PIECE_EFFORT, Pieces
from holdfast.core.subscription import Rules, Subscription, keeping
from holdfast.kernel import Log, Question

QUESTION_EFFORT: Final = 100
"""What putting a question costs beside what the log looks at: some 10 us."""
SUBSCRIPTION_EFFORT: Final = 10
"""What each subscription of a question adds to that: some 1 us."""
SESSION_EFFORT: Final = 1_000
"""What it costs to read the record and the subscriptions of a session: some 100 us."""
SUBSCRIPTION_READ_EFFORT: Final = 30
"""What each subscription adds to that: some 3 us. There may be hundreds."""
QOS_MAXIMUM: Final = 2
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
        rules: Rules = (),
        unexpired_at_us: int = 0,
    ) -> Pieces[int]:
        """How many stored messages of QoS 1 and 2 wait for these subscriptions from `begin` up to
        `end`, by these rules and without those that have expired by a time; 0 counts all of
        them."""
        found = 0
        for sign, together in _signed(keeping(wanted), rules) if begin < end else ():
            matched = yield from self._ask(
                "count", together, owner, begin, end, unexpired_at_us=unexpired_at_us
            )
            found += sign * matched
        return max(found, 0)

    def weigh(
        self, wanted: Sequence[Subscription], owner: int, begin: int, end: int
    ) -> Pieces[int]:
        """How many bytes they have, whatever rules leave out: each as many as the messages of its
        topic and segment have on average."""
        kept = keeping(wanted)
        if not kept or begin >= end:
            return 0
        return (yield from self._ask("bytes", kept, owner, begin, end))

    def first(
        self,
        wanted: Sequence[Subscription],
        owner: int,
        begin: int,
        end: int,
        *,
        rules: Rules = (),
    ) -> Pieces[int]:
        """The offset of the first of them; the end of the range, or of what is durable, if there is
        none. Not exact: an offset below which there is none."""
        kept, end = keeping(wanted), min(end, self._log.durable_offset())
        found, width = (yield from self._ask("first", kept, owner, begin, end)), 1
        while rules and found < end and self.is_exact:
            high = min(found + width, end)
            if (yield from self.count(kept, owner, found, high, rules=rules)):
                return (yield from self._first_before(high, kept, owner, found, rules))
            # What is left out is passed by in ever larger steps, and not one by one.
            found, width = (yield from self._ask("first", kept, owner, high, end)), 2 * width
        return found

    def newest(
        self,
        wanted: Sequence[Subscription],
        owner: int,
        begin: int,
        end: int,
        messages: int,
        *,
        rules: Rules = (),
        unexpired_at_us: int = 0,
    ) -> Pieces[int]:
        """The offset from which on exactly so many remain before `end`, or `begin` if there are no
        more."""
        kept, at_us = keeping(wanted), unexpired_at_us
        if not rules or not messages:
            return (
                yield from self._ask(
                    "newest", kept, owner, begin, end, messages=messages, unexpired_at_us=at_us
                )
            )
        low, high = begin, end
        while high - low > 1:
            middle = (low + high) // 2
            # Only what lies between is counted, so that all steps together cost two looks.
            behind = yield from self.count(
                kept, owner, middle, high, rules=rules, unexpired_at_us=at_us
            )
            if behind < messages:
                high, messages = middle, messages - behind
            else:
                low = middle
        return low

    def _first_before(
        self, high: int, kept: Sequence[Subscription], owner: int, low: int, rules: Rules
    ) -> Pieces[int]:
        """The offset of the first of them where there is one from `low` up to `high`."""
        while high - low > 1:
            middle = (low + high) // 2
            if (yield from self.count(kept, owner, low, middle, rules=rules)):
                high = middle
            else:
                low = middle
        return low

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


def _signed(
    kept: tuple[Subscription, ...], rules: Rules
) -> list[tuple[int, tuple[Subscription, ...]]]:
    """What subscriptions have together, to be added up or taken off, so that what they keep by the
    rules comes out.

    The log counts what any of some filters match, and each message once. So what is wanted and none
    of the first rules match is what they match together, less what the rules match. A message is
    left out that none of the rules before a group of refusals match, and one of the group does."""
    if not kept:
        return []
    signs = Counter({kept: 1})
    begin, before = min(item.from_offset for item in kept), tuple[Subscription, ...]()
    for keeps, group in groupby(rules, key=lambda rule: rule[1]):
        after = (*before, *(Subscription(text, QOS_MAXIMUM, begin) for text, _ in group))
        if not keeps:
            # Two of them may be the same: what is wanted is just what the rules leave out.
            signs.update([(*kept, *after), before])
            signs.subtract([(*kept, *before), after])
        before = after
    found = [(sign, together) for together, sign in signs.items() if together and sign]
    # What is taken off comes first: a count that is not complete never says more than there is.
    return sorted(found, key=lambda each: each[0])
