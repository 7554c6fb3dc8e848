"""How the next member of a group is chosen: strategies by name, compiled for the kernel.

Owns: what the words of `shared.strategy` mean, and which member owns which keys. Never: chooses for
a single message; the kernel does, by the table made here.

Invariants:
1. While a group has members, every key slot has an owner among them.
2. Members own as many slots as the others, give or take one part, and a slot passes to another
   owner only where that needs it: those who stay keep their keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Literal

from holdfast.broker.access.credential import matches_parts
from holdfast.core.config import Config
from holdfast.kernel import Selection

KEY_SLOTS: Final = 65_536
PARTS: Final = 1_024
"""Parts of the key slots, each with one owner: as many as a group may have members, so that each
gets some, and few enough that dividing them is a millisecond's work."""
PART_SLOTS: Final = KEY_SLOTS // PARTS

How = Literal["turns", "least_loaded", "stay", "topic", "publisher", "user_property"]
_HOW: Final[dict[str, How]] = {
    "round_robin": "turns",
    "least_in_flight": "least_loaded",
    "sticky": "stay",
    "key:topic": "topic",
    "key:client": "publisher",
}
_PROPERTY: Final = "key:property:"
KINDS: Final = (*_HOW, _PROPERTY.removesuffix(":"))
"""What there is to be counted by: user properties count as one."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """One strategy, as the settings name it."""

    name: str

    @property
    def is_by_key(self) -> bool:
        """True if the same key goes to the same member."""
        return self.name.startswith("key:")

    @property
    def kind(self) -> str:
        """Its name, without that of a user property."""
        return KINDS[-1] if self.name.startswith(_PROPERTY) else self.name

    def compile(self, owners: Sequence[int]) -> Selection:
        """The kernel's table, with the owner of each part of the slots."""
        if not self.is_by_key:
            return Selection(_HOW[self.name])
        ranges, begin = [], 0
        for owner, parts in groupby(owners):
            end = begin + PART_SLOTS * sum(1 for _ in parts)
            ranges.append((begin, end, owner))
            begin = end
        if self.name in _HOW:
            return Selection(_HOW[self.name], ranges)
        return Selection("user_property", ranges, self.name.removeprefix(_PROPERTY).encode())


def strategy_for(share_name: str, config: Config) -> Strategy:
    """The strategy that the settings give groups of this share name."""
    for rule in config.shared_strategies:
        pattern, _, name = rule.partition("=")
        if matches_parts(pattern.split("*"), share_name):
            return Strategy(name)
    return Strategy(config.shared_strategy)


def plan_owners(owners: Sequence[int], members: Sequence[int]) -> list[int]:
    """Who owns each part from now on, given who owned it before: nobody's parts, and no more of the
    others' than makes it even, pass to those who have fewer."""
    if not members:
        return []
    kept: dict[int, list[int]] = {member: [] for member in members}
    free: list[int] = []
    for part in range(PARTS):
        owner = owners[part] if owners else None
        (free if owner is None or owner not in kept else kept[owner]).append(part)
    even, more = divmod(PARTS, len(kept))
    # Those who have most keep one more where it cannot be even, so that fewer parts move.
    in_order = sorted(kept.values(), key=len, reverse=True)
    shares = [even + (place < more) for place in range(len(in_order))]
    for parts, share in zip(in_order, shares, strict=True):
        free += parts[share:]
        del parts[share:]
    for parts, share in zip(in_order, shares, strict=True):
        missing = share - len(parts)
        parts += free[:missing]
        del free[:missing]
    owner_of = {part: member for member, parts in kept.items() for part in parts}
    return [owner_of[part] for part in range(PARTS)]
