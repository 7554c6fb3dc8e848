"""Who takes from which group, by environment: a group that another environment than its own takes
from is found, with names and shares.

Owns: what each environment took of each group lately. Never: sees a message; it reads what each
member has been given so far, now and then, which the kernel counts anyway.

Invariants:
1. One look is done in pieces, and the next one begins no sooner than it is over.
2. A group is told of once when it begins and once when it has ended, however long it lasts.
"""

import logging
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import Final

from holdfast.broker.chores import Pieces
from holdfast.broker.state.broker import Broker
from holdfast.broker.state.queues import OpenQueue
from holdfast.core.units import SECOND_US

log = logging.getLogger(__name__)

GROUPS_PER_LOOK: Final = 500
"""Groups that one second looks at; of ten thousand each has its turn every twenty seconds."""
MEMBERS_IN_A_PIECE: Final = 100
"""Each takes some microseconds: its session, and the environment that its identifier tells."""
JUDGED_IN_A_PIECE: Final = 500
"""Most of them have nothing to judge, which takes a tenth of a microsecond."""
SURE_AFTER_S: Final = 10
"""How long after its first message a theft is told of: by then its shares say something."""
THEFTS_REMEMBERED_MAXIMUM: Final = 100
"""Thefts that are over; a longer list is in the log."""


@dataclass(frozen=True, slots=True)
class Taker:
    """What one environment took of a group lately."""

    environment: str
    """Empty: of clients whose environment nothing tells."""
    messages: int
    share: float
    """Of all that was taken of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Theft:
    """A group that another environment than its own takes from."""

    group: str
    environment: str
    """Whose group it is."""
    since_us: int
    until_us: int | None
    """When it was over; `None` while it goes on."""
    taken: int
    """Messages that other environments have taken since it began."""
    takers: tuple[Taker, ...]
    """Who took what lately, the most first; once it is over, what was last seen of it."""

    def involves(self, environment: str) -> bool:
        """True if the group is this one's, or this one takes from it."""
        return environment == self.environment or any(
            taker.environment == environment for taker in self.takers
        )

    def told(self) -> str:
        """Who takes how much from whom, as people say it."""
        others = [
            f"{taker.environment} takes {taker.share:.0%}"
            for taker in self.takers
            if taker.environment not in ("", self.environment)
        ]
        return f"{' and '.join(others)} of the messages of {self.environment}"


@dataclass(slots=True)
class _Use:
    """Who took what of a group."""

    given: dict[str, int] = field(default_factory=dict)
    """What each attached member had been given when it was last looked at."""
    lately: Counter[str] = field(default_factory=Counter)
    """By environment, in this half of the window; the next is the half before."""
    before: Counter[str] = field(default_factory=Counter)
    began_us: int = 0
    first_us: int | None = None
    """When another environment was first seen to have taken something."""

    @property
    def is_quiet(self) -> bool:
        """Nobody has taken anything lately, and nothing is to be told of it."""
        return not self.lately and not self.before and self.first_us is None


class Thefts:
    """Finds them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._groups = broker.groups
        self._environments = broker.environments
        self._uses: dict[str, _Use] = {}
        self._stolen: dict[str, Theft] = {}
        """What goes on, by group."""
        self._unseen: list[int] = []
        self._is_looking = False
        self._over: deque[Theft] = deque(maxlen=THEFTS_REMEMBERED_MAXIMUM)
        self.found = 0
        """How many have been told of since the start."""
        self.taken: Counter[tuple[str, str]] = Counter()
        """Messages of groups that another environment has taken: whose the group is, and who."""

    def look(self, now_us: int) -> None:
        """A second has passed: one look, unless the last one is still under way."""
        if not self._is_looking and self._environments.names():
            self._is_looking = True
            self._broker.chores.begin(self._look(now_us), self._end_look)

    def going_on(self) -> list[Theft]:
        """Those that go on, the longest first."""
        return sorted(self._stolen.values(), key=lambda theft: (theft.since_us, theft.group))

    def over(self) -> list[Theft]:
        """Those that are over, the last one first."""
        return list(reversed(self._over))

    def takers(self, group: str) -> tuple[Taker, ...]:
        """Who took what of a group lately, the most first."""
        use = self._uses.get(group)
        return () if use is None else _takers(use.lately + use.before)

    def _look(self, now_us: int) -> Pieces[None]:
        if not self._unseen:
            self._forget_ended()
            self._unseen = [party for party, _, _ in self._groups.queues()]
        members = 0
        for _ in range(min(GROUPS_PER_LOOK, len(self._unseen))):
            group = self._groups.open(self._unseen.pop())
            if group is not None:
                self._see(group, now_us)
                members += 1 + len(group.takers)
            if members >= MEMBERS_IN_A_PIECE:
                members = 0
                yield None
        for number, (name, use) in enumerate(list(self._uses.items()), 1):
            # Also where nobody is left to take anything, until that has been told.
            if not use.is_quiet:
                self._judge(name, use, now_us)
            if number % JUDGED_IN_A_PIECE == 0:
                yield None

    def _end_look(self, _outcome: None) -> None:
        self._is_looking = False

    def _forget_ended(self) -> None:
        for name in [name for name in self._uses if name not in self._groups]:
            del self._uses[name]
            self._end(name, self._broker.now_us())

    def _see(self, group: OpenQueue, now_us: int) -> None:
        use = self._uses.setdefault(group.name, _Use(began_us=now_us))
        owner, given = self._environments.of_group(group.name), {}
        for share in self._groups.shares(group.name):
            client = share.client_identifier
            given[client] = share.delivered
            before = use.given.get(client, 0)
            # A client that has come again is counted from the beginning.
            taken = share.delivered - (before if before <= share.delivered else 0)
            if not taken:
                continue
            environment = self._environments.of_owner(client) or ""
            if use.is_quiet:
                use.began_us = now_us
            use.lately[environment] += taken
            if owner and environment not in ("", owner):
                self.taken[owner, environment] += taken
                theft = self._stolen.get(group.name)
                if theft is not None:
                    self._stolen[group.name] = replace(theft, taken=theft.taken + taken)
        use.given = given

    def _judge(self, group: str, use: _Use, now_us: int) -> None:
        self._move_window(use, now_us)
        owner = self._environments.of_group(group)
        takers = _takers(use.lately + use.before)
        strangers = [each for each in takers if owner and each.environment not in ("", owner)]
        if not strangers:
            use.first_us = None
            self._end(group, now_us)
            return
        if use.first_us is None:
            use.first_us = now_us
        theft = self._stolen.get(group)
        if theft is not None:
            self._stolen[group] = replace(theft, takers=takers)
        elif now_us - use.first_us >= SURE_AFTER_S * SECOND_US:
            assert owner is not None, "whose group it is makes others strangers"
            theft = self._stolen[group] = Theft(
                group=group,
                environment=owner,
                since_us=use.first_us,
                until_us=None,
                taken=sum(each.messages for each in strangers),
                takers=takers,
            )
            self.found += 1
            fields = {"group": group, "environment": owner, "told": theft.told()}
            log.warning("group is used by several environments", extra={"fields": fields})

    def _end(self, group: str, now_us: int) -> None:
        theft = self._stolen.pop(group, None)
        if theft is None:
            return
        self._over.append(replace(theft, until_us=now_us))
        fields = {"group": theft.group, "environment": theft.environment, "taken": theft.taken}
        log.info("group is used by its own environment alone again", extra={"fields": fields})

    def _move_window(self, use: _Use, now_us: int) -> None:
        half_us = self._broker.config().environments_theft_window_s * SECOND_US // 2
        if now_us - use.began_us < half_us:
            return
        is_next = now_us - use.began_us < 2 * half_us
        use.before = use.lately if is_next else Counter()
        use.lately, use.began_us = Counter(), now_us


def _takers(taken: Counter[str]) -> tuple[Taker, ...]:
    total = taken.total()
    return tuple(Taker(name, messages, messages / total) for name, messages in taken.most_common())
