"""The tables of control records: their numbers, and how their values are written.

Owns: the meaning of a control record's table, key and value; values are JSON, so that a person can
read them in `holdfast log`. Never: appends or looks up.

A number is never given to another table: old logs hold it.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from enum import IntEnum
from json.encoder import encode_basestring_ascii
from typing import Any, Final

from holdfast.core.loss_reason import LossReason
from holdfast.core.quota import QueueKind
from holdfast.core.share_name import ShareName, parse_shared
from holdfast.core.subscription import Rules, Subscription


class Table(IntEnum):
    """Control tables by number."""

    DELIVERY_STATE = 0
    """The kernel's: party (u32, little-endian) to what it has acknowledged and has in flight."""
    SESSIONS = 1
    """Client identifier to `mqtt.session.Session`."""
    SUBSCRIPTIONS = 2
    """Client identifier to the groups that its session shares, as subscriptions. Former versions
    had all of its subscriptions here."""
    LOSSES = 3
    """Running number (u64, big-endian) to `Loss`."""
    COUNTERS = 4
    """Name to a number below which everything may have been given out."""
    CREDENTIALS = 5
    """User name to `access.credential.Credential`."""
    RULES = 6
    """User name, `everyone` or `anonymous` to the list of its `access.credential.Rule`."""
    GROUPS = 7
    """Name of a group to its queue; of former versions, read alone (`former_tables`)."""
    WILLS = 8
    """When it was due (u64, big-endian) and client identifier, of a session that has ended, to its
    Will: until that is in the log as a message. `WILL_OF_CONNECTED` and the time of its CONNECT
    stand in place of that time where a session that ends with its connection has a Will."""
    REDRIVES = 9
    """Party of a re-drive (u32, little-endian) to its queue; of former versions, read alone."""
    QUEUES = 10
    """Party (u32, little-endian) to `QueueRecord`. A session's queue has no row while it reads
    nothing."""
    PRODUCERS = 11
    """Name of a producer to `ProducerRecord`."""
    BRIDGES = 12
    """Name of a bridge that was made while the broker ran to its `core.bridge.Bridge`."""
    TOPICS = 13
    """Name of a topic that Pulsar clients know of to nothing yet."""


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


RETURNED: Final = "returned"
"""The owner of a re-drive that is no loss: what ended sessions have given back, to a group or to a
bridge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRecord:
    """A queue of any kind, its delivery state and who takes from it apart."""

    party: int
    """The number under which the log knows it."""
    kind: QueueKind
    owner: str
    """Its client's identifier, the name of its group, cursor or subscription, the number of the
    loss that it drives again, or `RETURNED`."""
    created_at_offset: int
    """Where it begins to read as long as it has no delivery state."""
    reads: tuple[Subscription, ...]
    """What it gets, on the terms of each, without the offsets that were cut off."""
    rules: Rules = ()
    """What a bridge's queue leaves out of that."""
    queue_name: str | None = None
    """Its own name, if it has one: a client's that is an APPLICATION, a group's from the first of
    those that subscribes to it until it ends, a cursor's and a subscription's."""
    ends_at_us: int | None = None
    """When a group ends if nobody subscribes to it again; `None` while somebody does."""
    target: int = 0
    """Whom a re-drive stands in for: the party of a session or a group."""
    end_offset: int = 0
    """Where a re-drive ends."""
    made_by: str = ""
    """The user who made a cursor; empty if nobody had to say who they were."""
    messages_maximum: int = 0
    """How many messages a bridge's queue may have; 0: as many as the log keeps."""
    holder: str = ""
    """Who holds a cursor; empty if nobody does."""
    held_as: str = ""
    """How the holder calls itself, for people."""
    given_to: str = ""
    """The client identifier that a bridge had asked for, and the address that it had asked, when
    the remote gave it another one."""
    given: str = ""
    """That other one, under which the remote keeps the session."""
    asked: tuple[str, ...] = ()
    """What that session has of a bridge's subscriptions: their filters."""
    session_of: str | None = None
    """The client identifier that a bridge asked for when its remote last accepted it, and the
    address; empty while no remote has, `None` in records of former versions."""

    @property
    def named(self) -> bool:
        """True if it has a name of its own."""
        return self.queue_name is not None

    @property
    def is_whole(self) -> bool:
        """True if it is given entries as their producers sent them."""
        return self.kind == "subscription"

    @property
    def is_returned(self) -> bool:
        """True if it is what ended sessions have given back."""
        return self.kind == "redrive" and self.owner == RETURNED

    @property
    def parts(self) -> ShareName:
        """The name of its group in parts."""
        parts = parse_shared(self.owner)
        assert parts is not None, "planning lets no other pass"
        return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingBatch:
    """A batch that is decided: exactly these parts, and how far their rows have come."""

    sequence: int
    parts: tuple[str, ...]
    rows: int = 0
    """So many of its rows, the first ones, are in the log, ..."""
    offset: int
    """... all before this offset. What came behind is counted in the log."""
    is_last: bool = False
    """Its producer comes with no other one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerRecord:
    """What the log remembers of whoever publishes by sequence numbers."""

    party: int
    """The number under which its messages are in the log."""
    user_name: str | None
    """Whose it is."""
    sequence: int = -1
    """Everything up to this one is in the log, once."""
    rows: int = 0
    """How many messages that one had."""
    forget_at_us: int | None = None
    """When it is forgotten unless it comes again; `None` while a batch of its enters the log."""
    pending: PendingBatch | None = None
    """What is not in the log whole: on its way, or given up where the producer may be forgotten."""

    def given_up(self) -> PendingBatch | None:
        """The batch that it cannot go on from, if there is one."""
        return None if self.forget_at_us is None else self.pending


READS_AT_ONCE: Final = 1_000
"""Subscriptions that `parse_reads` makes at a time: some 2 us each."""
_NO_LOCAL: Final = ',"no_local":true'
_RETAIN_AS_PUBLISHED: Final = ',"retain_as_published":true'
_KEEPS_ALL: Final = ',"keeps_all":true'
_QUEUE_DEFAULTS: Final = {
    field.name: field.default for field in fields(QueueRecord) if field.name != "reads"
}


def party_key(party: int) -> bytes:
    """The key of a party in QUEUES, and in the kernel's own table."""
    return party.to_bytes(4, "little")


def key_party(key: bytes) -> int:
    """The inverse of `party_key`."""
    return int.from_bytes(key, "little")


def format_subscriptions(subscriptions: tuple[Subscription, ...]) -> bytes:
    """The value of a row in SUBSCRIPTIONS; no subscriptions are no row."""
    return _format_rows(subscriptions).encode() if subscriptions else b""


def parse_subscriptions(value: bytes) -> tuple[Subscription, ...]:
    """The inverse of `format_subscriptions`."""
    return tuple(Subscription(**item) for item in parse_value(value)) if value else ()


def parse_reads(value: bytes) -> Iterator[tuple[Subscription, ...]]:
    """What a row of SUBSCRIPTIONS or QUEUES reads, some at a time: it may be ten thousand."""
    fields = json.loads(value) if value else []
    reads = fields["reads"] if isinstance(fields, dict) else fields
    for first in range(0, len(reads), READS_AT_ONCE):
        yield tuple([Subscription(**item) for item in reads[first : first + READS_AT_ONCE]])


def parse_queue_fields(value: str) -> dict[str, Any]:
    """The fields of a queue's record with what it reads: fast, for whoever reads those of all
    sessions."""
    fields: dict[str, Any] = json.loads(value)
    fields["reads"] = [Subscription(**item) for item in fields["reads"]]
    return fields


def format_queue(queue: QueueRecord) -> bytes:
    """The value of a row in QUEUES. Its kind comes first, by which the view tells them apart; what
    it does not have is left out."""
    values = {"kind": queue.kind} | _values(queue)
    return b'%b,"reads":%b}' % (format_value(values)[:-1], _format_rows(queue.reads).encode())


def parse_queue(value: bytes) -> QueueRecord:
    """The inverse of `format_queue`."""
    values = parse_value(value)
    reads = tuple(Subscription(**item) for item in values["reads"])
    asked, rules = tuple(values.get("asked", ())), parse_rules(values)
    return QueueRecord(**{**values, "reads": reads, "rules": rules, "asked": asked})


def parse_rules(values: dict[str, Any]) -> Rules:
    """What a queue leaves out, of the fields of its record."""
    return tuple((text, keeps) for text, keeps in values.get("rules", ()))


def _format_rows(subscriptions: tuple[Subscription, ...]) -> str:
    return f"[{','.join(map(_format_row, subscriptions))}]"


def _format_row(item: Subscription) -> str:
    # A SUBSCRIBE may have thousands of filters: each as a dictionary would cost three times that.
    identifier = "" if item.identifier is None else f',"identifier":{item.identifier}'
    until = "" if item.in_force else f',"until_offset":{item.until_offset}'
    return (
        f'{{"topic_filter":{encode_basestring_ascii(item.topic_filter)},"qos":{item.qos},'
        f'"from_offset":{item.from_offset}{until}{identifier}'
        f"{_NO_LOCAL if item.no_local else ''}"
        f"{_RETAIN_AS_PUBLISHED if item.retain_as_published else ''}"
        f"{_KEEPS_ALL if item.keeps_all else ''}}}"
    )


def _values(queue: QueueRecord) -> dict[str, Any]:
    """The fields of a queue but what it reads, where they are not what they are by default."""
    # This is done for each SUBSCRIBE, and `asdict` would copy what nobody changes.
    found = ((name, getattr(queue, name)) for name in _QUEUE_DEFAULTS)
    return {name: value for name, value in found if value != _QUEUE_DEFAULTS[name]}


def format_producer(producer: ProducerRecord) -> bytes:
    """The value of a row in PRODUCERS."""
    return format_value(asdict(producer))


def parse_producer(value: bytes) -> ProducerRecord:
    """The inverse of `format_producer`."""
    values = parse_value(value)
    pending = values["pending"]
    if pending is not None:
        pending = PendingBatch(**{**pending, "parts": tuple(pending["parts"])})
    return ProducerRecord(**{**values, "pending": pending})


def format_loss(loss: Loss) -> bytes:
    """The value of a row in LOSSES."""
    return format_value(asdict(loss))


def parse_loss(value: bytes) -> Loss:
    """The inverse of `format_loss`."""
    fields = parse_value(value)
    ranges = tuple((first, end) for first, end in fields.get("ranges", ()))
    return Loss(**{**fields, "reason": LossReason(fields["reason"]), "ranges": ranges})


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
