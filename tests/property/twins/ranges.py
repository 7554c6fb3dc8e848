"""The twin of the kernel's `RangeSet`: a set of integers.

Owns: nothing but the integers. Never: fast, or meant for large numbers. Invariant: `ranges` are
disjoint, not adjacent, and in order.
"""

from collections.abc import Iterable


def ranges_of(positions: Iterable[int]) -> list[tuple[int, int]]:
    """The integers as coalesced half-open ranges."""
    ranges: list[tuple[int, int]] = []
    for position in sorted(positions):
        if ranges and ranges[-1][1] == position:
            ranges[-1] = (ranges[-1][0], position + 1)
        else:
            ranges.append((position, position + 1))
    return ranges


def positions_of(ranges: Iterable[tuple[int, int]]) -> set[int]:
    """The integers in these ranges."""
    return {position for start, end in ranges for position in range(start, end)}


def encode_integer(value: int) -> bytes:
    """Base 128, lowest digit first, every byte but the last with its high bit set."""
    digits = [value & 0x7F]
    while value := value >> 7:
        digits.append(value & 0x7F)
    return bytes([digit | 0x80 for digit in digits[:-1]] + digits[-1:])


class RangeSet:
    """A set of integers that is shown as ranges."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self.held = positions_of(ranges)

    def insert(self, start: int, end: int) -> None:
        """Adds the integers from `start` up to `end`."""
        self.held |= set(range(start, end))

    def remove_below(self, position: int) -> None:
        """Removes the integers below `position`."""
        self.held = {held for held in self.held if held >= position}

    def contains(self, position: int) -> bool:
        """True if the integer is in the set."""
        return position in self.held

    def contains_range(self, start: int, end: int) -> bool:
        """True if all of the range is in the set."""
        return set(range(start, end)) <= self.held

    def gaps(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of the range that are not in the set."""
        return ranges_of(set(range(start, end)) - self.held)

    def ranges(self) -> list[tuple[int, int]]:
        """The set as ranges."""
        return ranges_of(self.held)

    def positions(self) -> int:
        """How many integers are in the set."""
        return len(self.held)

    def encode(self) -> bytes:
        """The number of ranges, then the distance of each from the one before, and its size."""
        encoded = encode_integer(len(self.ranges()))
        previous = 0
        for start, end in self.ranges():
            encoded += encode_integer(start - previous) + encode_integer(end - start)
            previous = end
        return encoded
