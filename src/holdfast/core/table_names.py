"""The names of the tables that a broker tells about itself."""

from typing import Final, Literal, get_args

MomentTable = Literal[
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
]
"""Those that are of one moment."""
TABLES: Final = ("messages", *get_args(MomentTable))
"""All of them; messages are read by offset."""
FOR_READERS: Final = frozenset({"messages", "topics", "retained"})
"""Those that whoever may read the log may read; the others are for administrators."""
