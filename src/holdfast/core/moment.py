"""A moment as people and programs write it.

Owns: how it is read. Never: reads a clock.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

_BEGINNING: Final = datetime.fromtimestamp(0, UTC)


def parse_moment_us(text: str) -> int:
    """Microseconds since 1970 of a moment in ISO 8601, UTC unless it says otherwise; nothing is
    earlier than 0. Raises `ValueError`."""
    moment = datetime.fromisoformat(text)
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0, (aware - _BEGINNING) // timedelta(microseconds=1))
