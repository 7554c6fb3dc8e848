"""The kernel tells all of its limits."""

import re
from pathlib import Path

from holdfast.kernel import LIMITS

SOURCE = Path(__file__).parents[2] / "kernel" / "src" / "limits.rs"


def test_limits_are_those_of_the_source() -> None:
    found = re.findall(r"^pub const (\w+): \w+ = ([\d_]+);", SOURCE.read_text(), re.MULTILINE)
    assert {name.lower(): int(value) for name, value in found} == LIMITS
