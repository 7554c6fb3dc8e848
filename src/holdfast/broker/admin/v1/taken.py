"""What retention has taken from readers before they had read it.

Owns: which offsets were asked for by whom and were gone. A reader in many places, such as a Spark
query with its tasks, gives all of them one word, and asks by it how much they have missed.

Invariants:
1. An offset counts once for a reader, however often it is asked for.
2. Memory is bounded in readers and in ranges; of a reader that is forgotten there is nothing.
"""

from bisect import insort
from collections import OrderedDict
from dataclasses import dataclass, field

from holdfast.core.limits import READERS_TAKEN_FROM_MAXIMUM, TAKEN_RANGES_MAXIMUM


@dataclass(slots=True)
class _Taken:
    """Of one reader: ranges in order that do not touch, and how much lies in those before them."""

    ranges: list[tuple[int, int]] = field(default_factory=list)
    before: int = 0


class TakenFromReaders:
    """What all readers have missed."""

    def __init__(self) -> None:
        self._readers: OrderedDict[str, _Taken] = OrderedDict()

    def note(self, reader: str, begin: int, end: int) -> None:
        """The offsets of a range were gone when this reader asked for them."""
        taken = self._readers.setdefault(reader, _Taken())
        self._readers.move_to_end(reader)
        if len(self._readers) > READERS_TAKEN_FROM_MAXIMUM:
            self._readers.popitem(last=False)
        touching = [each for each in taken.ranges if each[0] <= end and begin <= each[1]]
        joined = [(begin, end), *touching]
        taken.ranges = [each for each in taken.ranges if each not in touching]
        insort(taken.ranges, (min(each[0] for each in joined), max(each[1] for each in joined)))
        if len(taken.ranges) > TAKEN_RANGES_MAXIMUM:
            first, last = taken.ranges.pop(0)
            taken.before += last - first

    def offsets(self, reader: str) -> int:
        """How many offsets this reader has missed."""
        taken = self._readers.get(reader)
        if taken is None:
            return 0
        return taken.before + sum(end - begin for begin, end in taken.ranges)
