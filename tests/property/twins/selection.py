"""The twin of the kernel's selection: the hash by definition, owners as a list of all slots.

Owns: the table. Never: decides who owns what. Invariant: every slot has an entry.
"""

from collections.abc import Iterable

KEY_SLOTS = 65_536


def rotate_left(value: int, bits: int) -> int:
    """Of 32 bits."""
    return (value << bits | value >> (32 - bits)) & 0xFFFFFFFF


def murmur3_32(key: bytes) -> int:
    """MurmurHash3 (x86, 32 bit) with seed 0."""
    hashed = 0
    for start in range(0, len(key), 4):
        block = key[start : start + 4]
        scrambled = int.from_bytes(block, "little") * 0xCC9E2D51 & 0xFFFFFFFF
        hashed ^= rotate_left(scrambled, 15) * 0x1B873593 & 0xFFFFFFFF
        if len(block) == 4:
            hashed = (rotate_left(hashed, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    hashed ^= len(key)
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return hashed ^ hashed >> 16


class Owners:
    """The owner of each key slot."""

    def __init__(self) -> None:
        self.slots: list[int | None] = [None] * KEY_SLOTS

    def set(self, ranges: Iterable[tuple[int, int, int]]) -> None:
        """Replaces the table, or raises ValueError and leaves it."""
        slots: list[int | None] = [None] * KEY_SLOTS
        for start, end, holder in ranges:
            if not 0 <= start < end <= KEY_SLOTS or any(
                slot is not None for slot in slots[start:end]
            ):
                raise ValueError(f"slots [{start}, {end})")
            slots[start:end] = [holder] * (end - start)
        self.slots = slots

    def owner(self, key_slot: int) -> int | None:
        """Who owns a slot."""
        return self.slots[key_slot]
