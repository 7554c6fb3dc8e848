"""Whether a table holds what devices have published: each message once, none missing, in order.

Owns: the comparison. Never: asks the broker or Spark; the table is read from its files.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

SHOWN_MAXIMUM = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a comparison found."""

    rows: int
    problems: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """True if the table and the devices agree."""
        return not self.problems


def reached(table: Path) -> int:
    """The offset behind the last one that the table has, by its own list of files."""
    try:
        files = DeltaTable(str(table)).get_add_actions(flatten=True)
    except TableNotFoundError:
        return 0
    return max(files.column("max.offset").to_pylist(), default=-1) + 1


def compare(table: Path, published: Mapping[str, int]) -> Verdict:
    """Compares a table that is up to date with how many messages each topic's device has
    published."""
    rows = DeltaTable(str(table)).to_pyarrow_table(columns=["topic", "offset", "value"])
    numbers: dict[str, list[int]] = defaultdict(list)
    for row in rows.sort_by("offset").to_pylist():
        numbers[row["topic"]].append(json.loads(row["value"])["number"])
    problems = [f"{topic} is not a device's" for topic in numbers.keys() - published.keys()]
    offsets = Counter(rows["offset"].to_pylist())
    problems += [f"offset {offset} is there {n} times" for offset, n in offsets.items() if n > 1]
    for topic, count in published.items():
        problems += _problems(topic, numbers[topic], count)
    return Verdict(rows.num_rows, problems)


def _problems(topic: str, numbers: list[int], count: int) -> list[str]:
    if numbers == list(range(1, count + 1)):
        return []
    there = Counter(numbers)
    missing = [number for number in range(1, count + 1) if number not in there]
    doubled = [number for number, times in there.items() if times > 1]
    invented = [number for number in there if not 1 <= number <= count]
    found = {"lacks": missing, "has twice": doubled, "has, never published,": invented}
    said = [
        f"{topic} {what} {len(which)}: {which[:SHOWN_MAXIMUM]}"
        for what, which in found.items()
        if which
    ]
    return said or [f"{topic} is out of order"]
