"""Environments and groups as an operator sees them: who is there, what waits, and who takes what of
whom.

Owns: the sums of each environment, and the groups that metrics show one by one, as of the last
round over all of them. Never: finds a theft (`thefts` does).

Invariant: a round is done in pieces, and the next one begins no sooner than ROUND_EVERY_S later.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from holdfast.broker.chores import Pieces
from holdfast.broker.observe.thefts import Theft, Thefts
from holdfast.broker.state.broker import Broker
from holdfast.broker.state.groups import GroupSeen
from holdfast.broker.store.questions import LIST_EFFORT_MAXIMUM, Inquiry
from holdfast.core.units import SECOND_US

ROUND_EVERY_S: Final = 10
"""A round over a hundred thousand clients and ten thousand groups takes half a second in pieces."""
CLIENTS_IN_A_PIECE: Final = 100
"""Each takes some microseconds: its session, and the environment that its identifier tells."""
GROUP_EFFORT: Final = 300
"""What looking at a group costs beside counting its queue: some 30 us."""
GROUPS_SHOWN_MAXIMUM: Final = 100
"""Groups that metrics show one by one, the oldest: their names are labels that clients choose."""


@dataclass(frozen=True, slots=True)
class GroupStanding:
    """A group in a few numbers."""

    group: str
    party: int
    environment: str | None
    members: int
    """Clients that are attached."""
    waiting: int
    """Messages that nobody has; where there is much to count, at least so many."""
    in_flight: int
    """Messages that members have and have not acknowledged."""


@dataclass(frozen=True, slots=True)
class EnvironmentStanding:
    """An environment in a few numbers."""

    name: str
    clients: int
    """Those of its clients that are connected."""
    groups: tuple[GroupStanding, ...]
    waiting: int
    """Messages that wait in its groups."""
    in_flight: int
    """Messages of its groups that members have not acknowledged."""
    thefts: tuple[Theft, ...]
    """Groups of its own that others take from, and groups of others that it takes from, now."""


class EnvironmentsSeen:
    """Looks at environments and groups."""

    def __init__(self, broker: Broker, thefts: Thefts) -> None:
        self._broker = broker
        self._is_looking = False
        self._next_us = 0
        self._clients: Counter[str] = Counter()
        self._oldest: tuple[GroupStanding, ...] = ()
        self._groups: dict[str | None, list[GroupStanding]] = {}
        """Those of each environment, and those of none."""
        self.thefts = thefts

    def look(self, now_us: int) -> None:
        """A second has passed: one round, if it is time for the next one."""
        self.thefts.look(now_us)
        if not self._is_looking and now_us >= self._next_us:
            self._is_looking, self._next_us = True, now_us + ROUND_EVERY_S * SECOND_US
            self._broker.chores.begin(self._look(), self._end_look)

    def page(self, after: str, limit: int) -> list[EnvironmentStanding]:
        """The first environments after one by name."""
        names = [name for name in self._broker.environments.names() if name > after]
        thefts = self.thefts.going_on()
        return [self._standing(name, thefts) for name in names[:limit]]

    def show(self, name: str) -> EnvironmentStanding | None:
        """One environment, if it is known."""
        if name not in self._broker.environments.names():
            return None
        return self._standing(name, self.thefts.going_on())

    def all(self) -> tuple[EnvironmentStanding, ...]:
        """All of them."""
        thefts = self.thefts.going_on()
        return tuple(self._standing(name, thefts) for name in self._broker.environments.names())

    def groups(self) -> tuple[GroupStanding, ...]:
        """The oldest groups, as many as metrics show."""
        return self._oldest

    def _standing(self, name: str, thefts: list[Theft]) -> EnvironmentStanding:
        groups = self._groups.get(name, [])
        return EnvironmentStanding(
            name=name,
            clients=self._clients[name],
            groups=tuple(groups),
            waiting=sum(group.waiting for group in groups),
            in_flight=sum(group.in_flight for group in groups),
            thefts=tuple(theft for theft in thefts if theft.involves(name)),
        )

    def _look(self) -> Pieces[None]:
        environments, sessions = self._broker.environments, self._broker.sessions
        clients: Counter[str] = Counter()
        names = sessions.connected() if environments.names() else []
        for number, client in enumerate(names, 1):
            attached = sessions.attached(client)
            environment = None if attached is None else environments.of_session(attached.session)
            if environment is not None:
                clients[environment] += 1
            if number % CLIENTS_IN_A_PIECE == 0:
                yield None
        self._clients = clients
        found: dict[str | None, list[GroupStanding]] = {}
        oldest: list[GroupStanding] = []
        inquiry = self._broker.log.inquire(LIST_EFFORT_MAXIMUM)
        for name in self._broker.groups.names():
            seen = self._broker.groups.of(name)
            if seen is not None:
                group = yield from self._group(seen, inquiry)
                found.setdefault(group.environment, []).append(group)
                oldest.append(group)
            if len(oldest) >= 2 * GROUPS_SHOWN_MAXIMUM:
                oldest = _oldest(oldest)
            yield from inquiry.rest(GROUP_EFFORT)
        self._groups, self._oldest = found, tuple(_oldest(oldest))

    def _group(self, seen: GroupSeen, inquiry: Inquiry) -> Pieces[GroupStanding]:
        waiting = yield from self._broker.groups.queued(seen.group, inquiry)
        environment = self._broker.environments.of_group(seen.group)
        members = len(seen.members)
        return GroupStanding(seen.group, seen.party, environment, members, waiting, seen.in_flight)

    def _end_look(self, _outcome: None) -> None:
        self._is_looking = False


def _oldest(groups: list[GroupStanding]) -> list[GroupStanding]:
    return sorted(groups, key=lambda group: group.party)[:GROUPS_SHOWN_MAXIMUM]
