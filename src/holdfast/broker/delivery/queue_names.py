"""Which queue has which name.

Owns: the names that are taken, and by whom. Never: makes one up (core.queue_names does),
or writes it down: a name is part of the session's or the group's record, and is taken from there
after a restart.

Invariants:
1. A name has one owner: whoever comes second under a name gets the next one of its own.
2. An owner keeps its name for as long as its record has it.
"""

import heapq
from collections import Counter
from collections.abc import Iterator
from typing import Literal, NamedTuple

from holdfast.core.config import Config
from holdfast.core.queue_names import client_queue_names, shared_queue_names


class Owner(NamedTuple):
    """Whose queue it is."""

    kind: Literal["application", "shared", "cursor", "bridge", "subscription"]
    of: str
    """The client identifier, the topic filter that groups read, or the own name of a cursor, a
    bridge or a subscription."""


class QueueNames:
    """All names that are taken."""

    def __init__(self, config: Config) -> None:
        self._owners: dict[str, Owner] = {}
        self._uses: Counter[str] = Counter()
        """How many records have the name: each group of a filter has it."""
        self.reconfigure(config)

    def reconfigure(self, config: Config) -> None:
        """Names whatever is new by these settings."""
        self._config = config

    def of_client(self, client_identifier: str) -> str | None:
        """A name for a client's new queue; `None` if it can have none."""
        hashed = self._config.application_client_id_validation
        names = client_queue_names(client_identifier, hashed=hashed)
        return self._first_free(names, Owner("application", client_identifier))

    def of_filter(self, topic_filter: str) -> str | None:
        """A name for the queue of a filter that is shared, the same for all who share it; `None` if
        it can have none."""
        hashed = self._config.application_shared_topic_validation
        names = shared_queue_names(topic_filter, hashed=hashed)
        return self._first_free(names, Owner("shared", topic_filter))

    def take(self, name: str, owner: Owner) -> None:
        """A record has this name."""
        self._owners[name] = owner
        self._uses[name] += 1

    def release(self, name: str | None) -> None:
        """A record that had this name, if any, is gone or has it no more."""
        if name is None:
            return
        self._uses[name] -= 1
        if self._uses[name] <= 0:
            del self._uses[name]
            del self._owners[name]

    def owner(self, name: str) -> Owner | None:
        """Whose queue has this name."""
        return self._owners.get(name)

    def page(self, after: str, limit: int) -> list[tuple[str, Owner]]:
        """The first names after one, in their order."""
        names = heapq.nsmallest(limit, (name for name in self._owners if name > after))
        return [(name, self._owners[name]) for name in names]

    def __len__(self) -> int:
        return len(self._owners)

    def _first_free(self, names: Iterator[str], owner: Owner) -> str | None:
        for name in names:
            if self._owners.get(name, owner) == owner:
                self.take(name, owner)
                return name
        return None
