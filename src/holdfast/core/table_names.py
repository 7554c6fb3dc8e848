"""The names of the tables that a broker tells about itself."""

from typing import Final

TABLES: Final = (
    "messages",
    "topics",
    "retained",
    "sessions",
    "subscriptions",
    "groups",
    "queues",
    "deliveries",
    "acknowledgements",
    "losses",
    "cursors",
)
FOR_READERS: Final = frozenset({"messages", "topics", "retained"})
"""Those that whoever may read the log may read; the others are for administrators."""
