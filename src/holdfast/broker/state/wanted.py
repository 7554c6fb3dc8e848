"""Which clients and subscriptions somebody asks for, of those on record and of those in memory.

Owns: that both are chosen alike. Never: looks one up.
"""

import json
from dataclasses import dataclass

from holdfast.broker.mqtt.session import Session
from holdfast.core.share_name import SHARED_PREFIX, is_shared, parse_shared
from holdfast.core.subscription import Subscription
from holdfast.kernel import topic_matches


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientsWanted:
    """Which clients; what is empty or `None` chooses nothing."""

    names: tuple[str, ...] = ()
    """One of these client identifiers."""
    name_part: str = ""
    user_names: tuple[str, ...] = ()
    user_name_part: str = ""
    connected: bool | None = None
    clean_start: bool | None = None
    protocol_version: int | None = None
    created_from_us: int | None = None
    created_until_us: int | None = None

    def conditions(self) -> list[tuple[str, object]]:
        """What holds of the row of each, with the value that it is compared with."""
        name, user_name = "sessions.key", "json_extract(sessions.value, '$.user_name')"
        created = "json_extract(sessions.value, '$.created_at_us')"
        names = "[]" if not self.names else json.dumps(self.names)
        users = "[]" if not self.user_names else json.dumps(self.user_names)
        asked: list[tuple[bool, str, object]] = [
            (
                bool(self.names),
                f"{name} IN (SELECT CAST(value AS BLOB) FROM json_each(?))",  # noqa: S608
                names,
            ),
            (bool(self.name_part), f"instr({name}, ?) > 0", self.name_part.encode()),
            (
                bool(self.user_names),
                f"{user_name} IN (SELECT value FROM json_each(?))",  # noqa: S608
                users,
            ),
            (bool(self.user_name_part), f"instr({user_name}, ?) > 0", self.user_name_part),
            (self.connected is not None, "connected = ?", self.connected),
            (
                self.clean_start is not None,
                "coalesce(json_extract(sessions.value, '$.clean_start'), FALSE) = ?",
                self.clean_start,
            ),
            (
                self.protocol_version is not None,
                "json_extract(sessions.value, '$.protocol_version') = ?",
                self.protocol_version,
            ),
            (self.created_from_us is not None, f"{created} >= ?", self.created_from_us),
            (self.created_until_us is not None, f"{created} <= ?", self.created_until_us),
        ]
        return [(condition, value) for is_asked, condition, value in asked if is_asked]

    def fits(self, session: Session) -> bool:
        """The same of a session that is connected and in no record."""
        user_name = session.user_name or ""
        created_us = session.created_at_us or 0
        return (
            (not self.names or session.client_identifier in self.names)
            and self.name_part in session.client_identifier
            and (not self.user_names or user_name in self.user_names)
            and self.user_name_part in user_name
            and self.connected is not False
            and self.clean_start in (None, session.clean_start)
            and self.protocol_version in (None, session.protocol_version)
            and (self.created_from_us is None or created_us >= self.created_from_us)
            and (self.created_until_us is None or created_us <= self.created_until_us)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionsWanted:
    """Which subscriptions; what is empty or `None` chooses nothing."""

    client_identifier: str = ""
    topic_filter: str = ""
    """The whole filter, or that of a group."""
    within: str = ""
    """A topic filter that matches whatever it subscribes to."""
    share_name: str = ""
    qos: int | None = None

    def conditions(self) -> list[tuple[str, object]]:
        """What holds of the row of each, with the value that it is compared with."""
        topic_filter = "json_extract(item.value, '$.topic_filter')"
        asked: list[tuple[bool, str, object]] = [
            (
                bool(self.client_identifier),
                "subscriptions.key = ?",
                self.client_identifier.encode(),
            ),
            (bool(self.topic_filter), f"names_filter({topic_filter}, ?)", self.topic_filter),
            (bool(self.within), f"lies_within({topic_filter}, ?)", self.within),
            (bool(self.share_name), f"instr({topic_filter}, ?) = 1", self._share()),
            (self.qos is not None, "json_extract(item.value, '$.qos') = ?", self.qos),
        ]
        return [(condition, value) for is_asked, condition, value in asked if is_asked]

    def fits(self, client_identifier: str, subscription: Subscription) -> bool:
        """The same of a subscription that ends with its client's connection."""
        topic_filter = subscription.topic_filter
        return (
            subscription.in_force
            and self.client_identifier in ("", client_identifier)
            and (not self.topic_filter or names_filter(topic_filter, self.topic_filter))
            and (not self.within or lies_within(topic_filter, self.within))
            and topic_filter.startswith(self._share())
            and self.qos in (None, subscription.qos)
        )

    def _share(self) -> str:
        return f"{SHARED_PREFIX}{self.share_name}/" if self.share_name else ""


def names_filter(topic_filter: str, wanted: str) -> bool:
    """True if a subscription to `topic_filter` is one to this, alone or in a group."""
    return wanted in (topic_filter, _without_share(topic_filter))


def lies_within(topic_filter: str, wanted: str) -> bool:
    """True if this filter matches whatever a subscription to `topic_filter` does."""
    return topic_matches(wanted.encode(), _without_share(topic_filter).encode())


def _without_share(topic_filter: str) -> str:
    parts = parse_shared(topic_filter) if is_shared(topic_filter) else None
    return topic_filter if parts is None else parts.topic_filter
