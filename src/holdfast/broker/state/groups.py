"""Groups as they are seen from outside."""

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.broker.chores import Pieces
from holdfast.broker.delivery.groups import Groups
from holdfast.broker.mqtt.session import Session
from holdfast.broker.state.queues import OpenQueue
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.tables import QueueRecord
from holdfast.core.subscription import Subscription

PIECE_SESSIONS = 20
"""Sessions that are looked at in one piece: each takes some 50 us if it is waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKnown:
    """One group as it is on record."""

    group: str
    """Its whole name, `$share/...`."""
    name: str
    topic_filter: str
    queue_name: str | None
    ends_at_us: int | None
    record: QueueRecord

    @property
    def party(self) -> int:
        """The number under which the log knows it."""
        return self.record.party

    @property
    def reads(self) -> tuple[Subscription, ...]:
        """What its queue reads."""
        return self.record.reads


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSeen(GroupKnown):
    """One group as it is now."""

    strategy: str
    members: tuple[str, ...]
    """Clients that are attached."""
    subscribers: int
    in_flight: int
    mark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSeen:
    """What an attached member has been given since it came, and has in flight."""

    client_identifier: str
    qos: int
    delivered: int
    in_flight: int
    key_slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldKeySeen:
    """A key that a member holds."""

    key_slot: int
    client_identifier: str
    in_flight: int
    waiting: int
    since_us: int
    first_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysSeen:
    """Where the strategy is by key, how many messages wait because of their key, and the keys that
    members hold."""

    waiting: int
    held: tuple[HeldKeySeen, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitedSeen:
    """A session at rest that a group waits for, since it was sent what it has not received."""

    client_identifier: str
    messages: int
    first_offset: int
    since_us: int | None
    """When its connection ended; `None` if it is kept for ever."""
    ends_at_us: int | None


class GroupsState:
    """Looks at one group at a time."""

    def __init__(
        self,
        groups: Groups,
        client_on: Callable[[int], str],
        at_rest: Callable[[int], Session | None],
    ) -> None:
        """`client_on` names the session on a connection; `at_rest` gives that of a party, if it is
        on none."""
        self._groups = groups
        self._client_on = client_on
        self._at_rest = at_rest

    def __contains__(self, name: str) -> bool:
        return name in self._groups

    def names(self) -> list[str]:
        """All groups by name."""
        return self._groups.names()

    def known(self, name: str) -> GroupKnown | None:
        """One group as it is on record, if it is there."""
        record = self._groups.record(name)
        return None if record is None else _known(record)

    def of(self, name: str) -> GroupSeen | None:
        """One group, if it is there; naming all its members."""
        record = self._groups.record(name)
        if record is None:
            return None
        told = self._groups.describe(name, self._client_on)
        members = tuple(told.pop("members"))
        return GroupSeen(group=name, members=members, record=record, **told)

    def shares(self, name: str) -> list[ShareSeen]:
        """Its attached members."""
        return [ShareSeen(**share) for share in self._groups.shares(name, self._client_on)]

    def keys(self, name: str) -> KeysSeen:
        """Its keys."""
        keys = self._groups.keys(name, self._client_on)
        held = tuple(HeldKeySeen(**held) for held in keys["held"])
        return KeysSeen(waiting=keys["waiting"], held=held)

    def awaited(self, name: str) -> Pieces[list[AwaitedSeen]]:
        """Sessions at rest that it waits for."""
        found = []
        for number, party in enumerate(self._groups.subscribers(name), 1):
            offsets = self._groups.handed(name, party)
            session = self._at_rest(party) if offsets else None
            if session is not None:
                awaited = AwaitedSeen(
                    client_identifier=session.client_identifier,
                    messages=len(offsets),
                    first_offset=min(offsets),
                    since_us=session.rests_since_us,
                    ends_at_us=session.expires_at_us,
                )
                found.append(awaited)
            if number % PIECE_SESSIONS == 0:
                yield None
        return found

    def queued(self, name: str, inquiry: Inquiry) -> Pieces[int]:
        """Messages of a group that nobody has and nobody has had, and those that came back."""
        return self._groups.queued(name, inquiry)

    def of_queue(self, queue_name: str) -> list[GroupKnown]:
        """The groups that read the queue of this name, by their own names."""
        return [_known(record) for record in self._groups.of_queue(queue_name)]

    def queues(self) -> list[tuple[int, int, int]]:
        """Party, queue and GROUP_CONNECTION of each group from whose queue members take."""
        return self._groups.open_queues()

    def queue_of(self, party: int) -> int | None:
        """The queue of a group from which members take."""
        return self._groups.queue_of(party)

    def open(self, party: int) -> OpenQueue | None:
        """A group, if members take from its queue."""
        watched = self._groups.watched(party)
        return None if watched is None else OpenQueue(*watched)


def _known(record: QueueRecord) -> GroupKnown:
    return GroupKnown(
        group=record.owner,
        name=record.parts.share_name,
        topic_filter=record.parts.topic_filter,
        queue_name=record.queue_name,
        ends_at_us=record.ends_at_us,
        record=record,
    )
