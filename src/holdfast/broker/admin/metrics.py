"""Write the broker's counters as Prometheus text.

Owns: the form of a metric's name.
Never: counts anything itself.
"""

import re
from collections.abc import Mapping
from typing import Any

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_]")


def format_metrics(statistics: Mapping[str, Any]) -> str:
    """One line a number; a nested mapping adds its key to the names of what is in it."""
    return "".join(f"{name} {value}\n" for name, value in sorted(_named("holdfast", statistics)))


def _named(prefix: str, values: Mapping[str, Any]) -> list[tuple[str, int | float]]:
    found: list[tuple[str, int | float]] = []
    for key, value in values.items():
        name = f"{prefix}_{_NOT_IN_A_NAME.sub('_', str(key))}"
        if isinstance(value, Mapping):
            found += _named(name, value)
        elif isinstance(value, bool):
            found.append((name, int(value)))
        elif isinstance(value, int | float):
            found.append((name, value))
    return found
