"""What takes longer than the loop may stand still is done in pieces, one piece a turn.

Owns: the chores that are not done yet, and whose piece comes next. Never: knows what a chore does.

A chore is a generator. Each `yield` ends a piece, which does about PIECE_EFFORT of work: `yield`
alone says that the next piece can follow at once, `yield ready` that it has to wait until `ready()`
is true (for the disk, for a worker). What the generator returns is the chore's outcome.

Invariants:
1. One turn does one piece, whoever's it is, and first pieces of new chores that come to one more:
   many chores take longer, and hold up the loop no more.
2. Chores take turns, so that a long one does not keep a short one waiting.
3. A turn that has done its part of the work already leaves the piece to the next one, but not twice
   in a row.
4. At most CHORES_MAXIMUM are under way; whoever begins one asks `has_room` first where clients can
   cause any number of them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from types import GeneratorType
from typing import Any, Final, NamedTuple, TypeVar, cast

T = TypeVar("T")

PIECE_EFFORT: Final = 10_000
"""Records looked at and topics compared in one piece: each takes some 0.1 us, so about 1 ms."""
TURN_EFFORT: Final = 2 * PIECE_EFFORT
"""What the rest of a turn does before it does no piece besides: as much as queues that are behind
may read in one."""
CHORES_MAXIMUM: Final = 65_536
"""A fleet's sessions that come back at once; each costs a generator of some 500 bytes."""

Ready = Callable[[], bool]
Pieces = Generator[Ready | None, None, T]
"""A chore: what it yields is what it waits for."""


class _Chore(NamedTuple):
    pieces: Pieces[Any]
    done: Callable[[Any], None]

    @property
    def name(self) -> str:
        """Of the function whose pieces these are."""
        return cast("GeneratorType[Any, Any, Any]", self.pieces).__name__


class _Failure(NamedTuple):
    error: Exception


def named_as(pieces: Pieces[Any], wrapped: Pieces[T]) -> Pieces[T]:
    """The second one, which goes through the first one's pieces: a step of it is told as theirs."""
    name = _Chore(pieces, lambda _: None).name
    cast("GeneratorType[Any, Any, Any]", wrapped).__name__ = name
    return wrapped


def _told(pieces: Pieces[T]) -> "Pieces[T | _Failure]":
    """The same pieces, with what goes wrong as their outcome."""
    try:
        return (yield from pieces)
    except Exception as error:  # noqa: BLE001 - whoever asked is told; the loop goes on.
        return _Failure(error)


class Chores:
    """All chores of one broker."""

    def __init__(self, soon: Callable[[], None], effort: Callable[[], int] = lambda: 0) -> None:
        """`soon` asks for a turn; `effort` tells how much work has been done in all."""
        self._soon = soon
        self._effort = effort
        self._effort_before: int | None = None
        """What had been done when the first chore of this turn was started."""
        self._effort_at_turn = 0
        """What had been done when the last turn had done its piece, or left it."""
        self._has_left = False
        self._ready: deque[_Chore] = deque()
        self._waiting: list[tuple[Ready, _Chore]] = []

    def __len__(self) -> int:
        return len(self._ready) + len(self._waiting)

    def has_room(self) -> bool:
        """True if one more may begin."""
        return len(self) < CHORES_MAXIMUM

    def begin(self, pieces: Pieces[T], done: Callable[[T], None]) -> None:
        """Does the chore from the next turn on; `done` is called in a turn with its outcome."""
        self._ready.append(_Chore(pieces, done))
        self._soon()

    def start(self, pieces: Pieces[T], done: Callable[[T], None]) -> None:
        """The same, and the first piece is done here and now, which for most is the last one;
        unless others have used up this turn's effort in that way."""
        if self._effort_before is None:
            self._effort_before = self._effort()
        if self._effort() - self._effort_before >= PIECE_EFFORT:
            self.begin(pieces, done)
            return
        self._go_on(_Chore(pieces, done))
        if self.is_busy():
            self._soon()

    async def outcome(self, pieces: Pieces[T]) -> T:
        """The same, for a coroutine that waits for the outcome, and is told what goes wrong. If it
        is cancelled the chore goes on to its end."""
        kept: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def done(outcome: T | _Failure) -> None:
            # Whoever waited may have gone.
            if kept.done():
                return
            if isinstance(outcome, _Failure):
                kept.set_exception(outcome.error)
            else:
                kept.set_result(outcome)

        self.begin(named_as(pieces, _told(pieces)), done)
        return await kept

    def run_piece(self) -> str:
        """Does the next piece, if there is one and it is not left to the next turn; returns what
        its chore is called, and raises what it raises."""
        self._wake()
        name = ""
        is_full = self._effort() - self._effort_at_turn >= TURN_EFFORT
        self._has_left = bool(self._ready) and is_full and not self._has_left
        if self._ready and not self._has_left:
            chore = self._ready.popleft()
            self._go_on(chore)
            name = chore.name
        self._effort_before = None
        self._effort_at_turn = self._effort()
        return name

    def is_busy(self) -> bool:
        """True if another turn has a piece to do although nothing new has happened."""
        return bool(self._ready) or any(ready() for ready, _ in self._waiting)

    def close(self) -> None:
        """Leaves what is not done."""
        for chore in (*self._ready, *(chore for _, chore in self._waiting)):
            chore.pieces.close()
        self._ready.clear()
        self._waiting.clear()

    def _go_on(self, chore: _Chore) -> None:
        try:
            ready = next(chore.pieces)
        except StopIteration as ended:
            chore.done(ended.value)
            return
        if ready is None:
            self._ready.append(chore)
        else:
            self._waiting.append((ready, chore))

    def _wake(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for ready, chore in waiting:
            if ready():
                self._ready.append(chore)
            else:
                self._waiting.append((ready, chore))


def at_once(pieces: Pieces[T]) -> T:
    """Does all pieces now: where nobody else is held up, or nothing can take long. It must not wait
    for anything."""
    while True:
        try:
            ready = next(pieces)
        except StopIteration as ended:
            outcome: T = ended.value
            return outcome
        assert ready is None or ready(), "nobody brings about what it waits for"
