"""Groups of shared subscriptions while the broker is killed.

Owns: the groups' members, who come and go, and what each group got of what was published.
Never: touches the load's own history: of a group no order is promised, and each message goes to one
member.
"""

import asyncio
import contextlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from random import Random

from tests.equipment.checkers import check_sessions_are_kept, check_windows_are_kept
from tests.equipment.clients import Client, ClientOptions, ConnectionFailedError
from tests.equipment.groups import check_keyed_groups_keep_order
from tests.equipment.history import (
    Acknowledged,
    Event,
    History,
    Keyed,
    Message,
    Received,
    Subscribing,
)

AGAIN_AFTER_S = 0.02
STAYS_S = 0.5
"""The longest stay, and the longest absence, of those who come and go."""

GROUPS: dict[str, tuple[str, ...]] = {
    "busy": ("stays", "passes", "slow"),
    "loose": ("passes", "passes"),
    "keyed": ("stays", "passes", "slow"),
}
"""Name, and the habit of each member; of a loose group at times nobody is there."""

KEYED = "keyed=key:topic"
"""As a setting: this group shares by topic."""

HABITS = {
    "stays": ClientOptions(receive_maximum=20),
    "passes": ClientOptions(receive_maximum=8),
    "slow": ClientOptions(receive_maximum=4, answer_after_s=0.001),
}


@dataclass(slots=True)
class _Group:
    name: str
    members: list[tuple[str, Client]] = field(default_factory=list)
    got: Counter[Message] = field(default_factory=Counter)


class Sharing:
    """All groups of one run."""

    def __init__(self, host: str, port: int, random: Random) -> None:
        self._address = (host, port)
        self._random = random
        self._attending = True
        self._progress = asyncio.Event()
        self._history = History(watch=self._watch)
        self._by_member: dict[str, _Group] = {}
        self._keyed = History([Keyed()])
        """What the members of the group that shares by key asked for and saw."""
        self._groups = [self._group(name, GROUPS[name]) for name in GROUPS]
        self._tasks: list[asyncio.Task[None]] = []

    def _group(self, name: str, habits: tuple[str, ...]) -> _Group:
        group = _Group(name)
        for number, habit in enumerate(habits):
            member = f"{name}-{number}-{habit}"
            seed = Random(self._random.getrandbits(63))
            group.members.append((habit, Client(member, self._history, HABITS[habit], seed)))
            self._by_member[member] = group
        return group

    def _watch(self, event: Event) -> None:
        if isinstance(event, Received):
            self._by_member[event.subscriber].got[event.message] += 1
            self._progress.set()
        if isinstance(event, Received | Subscribing):
            name = self._by_member[event.subscriber].name
            if KEYED.startswith(f"{name}="):
                self._keyed.add(event)

    async def begin(self) -> None:
        """Every member is subscribed, and comes and goes from now on as is its habit."""
        for group in self._groups:
            for habit, client in group.members:
                await client.connect(*self._address)
                await client.subscribe(f"$share/{group.name}/load/#", 2)
                attend = self._attend(client, comes_and_goes=habit == "passes")
                self._tasks.append(asyncio.get_running_loop().create_task(attend))

    async def _attend(self, client: Client, *, comes_and_goes: bool) -> None:
        while True:
            if client.lost.is_set() and not await self._is_connected(client):
                continue
            if not (comes_and_goes and self._attending):
                await client.lost.wait()
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._random.uniform(0.01, STAYS_S)):
                    await client.lost.wait()
            leave = self._random.choice((client.drop, client.disconnect))
            leave()
            await asyncio.sleep(self._random.uniform(0.01, STAYS_S))

    async def _is_connected(self, client: Client) -> bool:
        try:
            await client.connect(*self._address)
        except ConnectionFailedError:
            await asyncio.sleep(AGAIN_AFTER_S)
            return False
        return True

    async def end(self, load: History, within_s: float) -> dict[str, int]:
        """Everybody comes and stays until each group has got all that was acknowledged, or time is
        up. Returns how many messages each group still lacks."""
        self._attending = False
        wanted = {event.message for event in load.events if isinstance(event, Acknowledged)}
        for group in self._groups:
            for _habit, client in group.members:
                client.hurry()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._lacking(wanted):
                    self._progress.clear()
                    await self._progress.wait()
        return self._lacking(wanted)

    def _lacking(self, wanted: set[Message]) -> dict[str, int]:
        lacking = {f"group {g.name}": len(wanted - g.got.keys()) for g in self._groups}
        return {name: count for name, count in lacking.items() if count}

    def violations(self, load: History) -> dict[str, list[str]]:
        """What no group may see."""
        acknowledged = {event.message for event in load.events if isinstance(event, Acknowledged)}
        found: dict[str, list[str]] = defaultdict(list)
        for group in self._groups:
            found["lost by a group"] += [
                f"group {group.name} never got {message}, which was acknowledged"
                for message in acknowledged - group.got.keys()
            ]
            found["doubled in a group at QoS 2"] += [
                f"group {group.name} got {message} {count} times"
                for message, count in group.got.items()
                if message.qos == 2 and count > 1
            ]
        found["reordered in a group by key"] = check_keyed_groups_keep_order(self._keyed)
        found["groups' sessions or windows"] = [
            *check_sessions_are_kept(self._history),
            *check_windows_are_kept(self._history),
        ]
        return found

    async def close(self) -> None:
        """Ends all members."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for group in self._groups:
            for _habit, client in group.members:
                client.drop()
