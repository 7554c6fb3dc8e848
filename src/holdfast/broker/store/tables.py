"""The tables of control records: their numbers, and how their values are written.

Owns: the meaning of a control record's table, key and value; values are JSON, so that a person can
read them in `holdfast log`. Never: appends or looks up.

A number is never given to another table: old logs hold it.
"""

import json
from base64 import b64decode, b64encode
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

from holdfast.core.loss_reason import LossReason
from holdfast.core.share_name import ShareName, is_shared, parse_shared
from holdfast.core.subscription import IN_FORCE, Subscription


class Table(IntEnum):
    """Control tables by number."""

    DELIVERY_STATE = 0
    """The kernel's: party (u32, little-endian) to what it has acknowledged and has in flight."""
    SESSIONS = 1
    """Client identifier to `mqtt.session.Session`."""
    SUBSCRIPTIONS = 2
    """Client identifier to the list of its subscriptions, past ones that still matter included."""
    LOSSES = 3
    """Running number (u64, big-endian) to `Loss`."""
    COUNTERS = 4
    """Name to a number below which everything may have been given out."""
    CREDENTIALS = 5
    """User name to `access.credential.Credential`."""
    RULES = 6
    """User name, `everyone` or `anonymous` to the list of its `access.credential.Rule`."""
    GROUPS = 7
    """Name of a group (`$share/<share name>/<topic filter>`) to `SharedGroup`."""
    WILLS = 8
    """When it was due (u64, big-endian) and client identifier, of a session that has ended, to its
    Will: until that is in the log as a message. `WILL_OF_CONNECTED` and the time of its CONNECT
    stand in place of that time where a session that ends with its connection has a Will."""
    REDRIVES = 9
    """Party of the re-drive (u32, little-endian) to `Redrive`."""


DELIVERY_STATE_REMOVED = b"\x02"
"""The value in table 0 that says: this party is gone."""
PARTY_COUNTER = b"party"
WILL_OF_CONNECTED = 1 << 63
"""The highest bit of a key in WILLS, which no time has: the Will is not due while its client is
connected, and found behind all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Messages that will not be delivered to someone: a row of the loss ledger."""

    client_identifier: str
    party: int
    reason: LossReason
    first_offset: int
    """With `end_offset` the range they lie in; both 0 for messages that were never stored."""
    end_offset: int
    count: int
    at_us: int
    ranges: tuple[tuple[int, int], ...] = ()
    """The ranges within that one, where they are several."""
    redriven_at_us: int | None = None
    """When it was driven again, if it was."""

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The ranges of offsets that were lost."""
        if not self.end_offset:
            return ()
        return self.ranges or ((self.first_offset, self.end_offset),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """A loss that is delivered again, until that is done."""

    loss: int
    """The number of its row in the ledger."""
    party: int
    """The number of its own queue."""
    target: int
    """Whom it stands in for: the party of a session or a group."""
    reads: tuple[Subscription, ...]
    """What it delivers, on the terms of each; from the first offset to the last."""
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedGroup:
    """A group of a shared subscription, its members and delivery state apart."""

    name: str
    party: int
    reads: tuple[Subscription, ...]
    """What its queue matches: one filter, without the offsets that were cut off."""
    ends_at_us: int | None = None
    """When it ends if nobody subscribes to it again; `None` while somebody does."""
    queue_name: str | None = None
    """The name of its queue, from the first APPLICATION client that subscribes to it until it
    ends."""

    @property
    def parts(self) -> ShareName:
        """Its name in parts."""
        parts = parse_shared(self.name)
        assert parts is not None, "planning lets no other pass"
        return parts


def party_key(party: int) -> bytes:
    """The key of a party in the kernel's own table."""
    return party.to_bytes(4, "little")


def format_subscriptions(subscriptions: tuple[Subscription, ...]) -> bytes:
    """The value of a row in SUBSCRIPTIONS; no subscriptions are no row."""
    return format_value([asdict(item) for item in subscriptions]) if subscriptions else b""


def parse_subscriptions(value: bytes) -> tuple[Subscription, ...]:
    """The inverse of `format_subscriptions`."""
    return tuple(Subscription(**item) for item in parse_value(value)) if value else ()


def parse_own_tables(value: str) -> list[dict[str, Any]]:
    """The subscriptions by which a session's own queue is read, as the kernel takes them: fast,
    for whoever reads those of all sessions."""
    items: list[dict[str, Any]] = json.loads(value)
    own = [item for item in items if not is_shared(item["topic_filter"])]
    for item in own:
        item["topic_filter"] = item["topic_filter"].encode()
        item.setdefault("until_offset", IN_FORCE)
    return own


def format_group(group: SharedGroup) -> bytes:
    """The value of a row in GROUPS."""
    return format_value(asdict(group))


def parse_group(value: bytes) -> SharedGroup:
    """The inverse of `format_group`."""
    fields = parse_value(value)
    return SharedGroup(
        **{**fields, "reads": tuple(Subscription(**item) for item in fields["reads"])}
    )


def format_loss(loss: Loss) -> bytes:
    """The value of a row in LOSSES."""
    return format_value(asdict(loss))


def parse_loss(value: bytes) -> Loss:
    """The inverse of `format_loss`."""
    fields = parse_value(value)
    ranges = tuple((first, end) for first, end in fields.get("ranges", ()))
    return Loss(**{**fields, "reason": LossReason(fields["reason"]), "ranges": ranges})


def format_redrive(redrive: Redrive) -> bytes:
    """The value of a row in REDRIVES."""
    return format_value(asdict(redrive))


def parse_redrive(value: bytes) -> Redrive:
    """The inverse of `format_redrive`."""
    fields = parse_value(value)
    return Redrive(**{**fields, "reads": tuple(Subscription(**item) for item in fields["reads"])})


def format_value(value: object) -> bytes:
    """A value of JSON's kinds, or bytes, as a control record holds it."""
    return json.dumps(value, default=_format_binary, separators=(",", ":")).encode()


def parse_value(value: bytes) -> Any:
    """The inverse of `format_value`."""
    return json.loads(value, object_hook=_parse_binary)


def _format_binary(value: object) -> dict[str, str]:
    if not isinstance(value, bytes):
        raise TypeError(f"a control record cannot hold a {type(value).__name__}")
    return {"base64": b64encode(value).decode()}


def _parse_binary(fields: dict[str, Any]) -> Any:
    return b64decode(fields["base64"]) if fields.keys() == {"base64"} else fields
