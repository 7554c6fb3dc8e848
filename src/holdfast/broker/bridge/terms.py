"""What a bridge's settings mean to the stages: subscriptions, grants, and how messages are
rewritten.

Owns: that translation. Never: changes anything.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from holdfast.broker.access.rules import Grant
from holdfast.broker.store.tables import QueueRecord
from holdfast.core.bridge import Bridge, BridgeSubscription, parts_of
from holdfast.core.subscription import Rules, Subscription, without_past
from holdfast.kernel import Rewriting
from holdfast.protocols.mqtt.remote import Granted, Wish

_Rule = tuple[list[bytes], list[int | bytes] | None, list[tuple[str, str]], bool]
"""As the kernel takes it."""


def reads(bridge: Bridge, from_offset: int) -> tuple[Subscription, ...]:
    """What the bridge's queue reads. Nothing that it has brought itself goes back; one that brings
    nothing does not ask of each message who published it, so that what waits is told by the index.
    """
    found: dict[str, Subscription] = {}
    for item in bridge.local_subscriptions:
        qos = item.max_qos if item.persist else 0
        for topic_filter in item.filters:
            # Two to one filter would be two subscriptions of one queue; the first decides.
            found.setdefault(
                topic_filter,
                Subscription(
                    topic_filter=topic_filter,
                    qos=qos,
                    no_local=bool(bridge.remote_subscriptions),
                    retain_as_published=item.preserve_retain,
                    identifier=None,
                    from_offset=from_offset,
                ),
            )
    return tuple(found.values())


def read_on(
    bridge: Bridge, before: Iterable[Subscription], mark: int, end_offset: int
) -> tuple[Subscription, ...]:
    """What the queue reads once it is the queue of this bridge: what has come until `end_offset`
    and waits behind `mark` was for it on the terms of `before`, and stays for it."""
    held = tuple(before)
    in_force = {item.topic_filter: item for item in held if item.in_force}
    now = []
    for item in reads(bridge, end_offset):
        known = in_force.get(item.topic_filter)
        if known is not None and known.qos == item.qos:
            del in_force[item.topic_filter]
            # What it has brought may still wait, though it brings nothing any more.
            no_local = item.no_local or known.no_local
            item = item._replace(from_offset=known.from_offset, no_local=no_local)
        now.append(item)
    ended = [item._replace(until_offset=end_offset) for item in in_force.values()]
    past = [item for item in (*held, *ended) if not item.in_force]
    kept = [item for item in past if item.from_offset < item.until_offset]
    return (*now, *without_past(tuple(kept), mark))


def ended(record: QueueRecord, at_offset: int) -> QueueRecord:
    """A bridge's queue that gets nothing from this offset on."""
    past = (it._replace(until_offset=min(it.until_offset, at_offset)) for it in record.reads)
    return replace(record, reads=tuple(past))


def former_bytes(reads: Iterable[Subscription]) -> int:
    """How much of `BRIDGE_FORMER_BYTES_MAXIMUM` is taken by what a queue reads for former
    settings."""
    former = (item for item in reads if not item.in_force)
    return sum(len(item.topic_filter.encode()) + 64 for item in former)


def within(subscriptions: Iterable[Subscription], granted: Granted) -> tuple[Subscription, ...]:
    """The same, as far as the remote takes it."""
    return tuple(
        item._replace(
            qos=min(item.qos, granted.maximum_qos),
            retain_as_published=item.retain_as_published and granted.retain_available,
        )
        for item in subscriptions
    )


def driven(subscriptions: Iterable[Subscription]) -> tuple[Subscription, ...]:
    """Those by which it is given again what it lost: all on the same terms but for their QoS, so
    that what several match goes once. Whether it keeps its RETAIN flag is decided where it is
    rewritten."""
    return tuple(item._replace(retain_as_published=True) for item in subscriptions)


def taken(granted: Granted) -> Subscription:
    """On which terms the remote takes what is driven again."""
    return Subscription(
        topic_filter="#",
        qos=granted.maximum_qos,
        no_local=False,
        retain_as_published=granted.retain_available,
        identifier=None,
        from_offset=0,
    )


def otherwise(wish: Wish, granted: Granted) -> list[str]:
    """What of CONNACK an operator has to know, since it is not what was asked for; the rest is
    obeyed, and no promise changes by it."""
    said = []
    asked_s, kept_s = wish.session_expiry_s, granted.session_expiry_s
    if kept_s is not None and kept_s < asked_s:
        said.append(
            f"the remote keeps the session for {kept_s} s, {asked_s} s were asked for: after a"
            " longer outage it may get again what it had said it had"
        )
    name = granted.client_identifier
    if name is not None and name != wish.client_identifier:
        said.append(f"the remote calls this client {name!r}, not {wish.client_identifier!r}")
    return said


def too_large_here(maximum_bytes: int) -> str:
    """What the operator is told of a packet above what this broker takes. Before MQTT 5 the remote
    cannot know of that, and has it waiting until it is taken."""
    return (
        f"the remote has a packet of more than {maximum_bytes} bytes for this broker, which takes"
        " no larger ones: raise mqtt.maximum_packet_size_bytes here"
    )


def caller(bridge: Bridge) -> str:
    """As what it asks for a session, and where: what a remote gives it in place of that is given to
    this one alone."""
    return f"{bridge.identifier}@{bridge.address}"


def is_named(bridge: Bridge, session_of: str) -> bool:
    """True if a session that this caller has had goes by the bridge's client identifier."""
    # An address has no user in it, so no "@".
    return session_of.rpartition("@")[0] == bridge.identifier


def rules(bridge: Bridge) -> Rules:
    """What its queue leaves out: excludes of a subscription come before its filters."""
    found: list[tuple[str, bool]] = []
    for item in bridge.local_subscriptions:
        found += [(text, False) for text in item.excludes]
        found += [(text, True) for text in item.filters]
    return tuple(found) if any(item.excludes for item in bridge.local_subscriptions) else ()


def receive_grant(rules: Rules) -> Grant | None:
    """Which topics go to the remote. `None`: all that it subscribes to, so that what it loses is
    never said to have been denied."""
    grant = [(text.encode(), keeps) for text, keeps in rules]
    # What waits by former settings comes as far as the ledger.
    return [*grant, (b"#", True)] if grant else None


def outbound(bridge: Bridge) -> Rewriting:
    """What messages become on their way to the remote."""
    return _rewriting(bridge, bridge.local_subscriptions)


def inbound(bridge: Bridge) -> Rewriting:
    """What messages become on their way from the remote."""
    return _rewriting(bridge, bridge.remote_subscriptions)


def is_taken(topic_filter: str, granted: Granted) -> bool:
    """False for a filter that the remote cannot have been asked for: with wildcards, of which it
    takes none. A SUBSCRIBE with one of those ends the connection [MQTT 5 section 3.2.2.3.11]."""
    return granted.wildcards_available or not ("+" in topic_filter or "#" in topic_filter)


def not_taken(bridge: Bridge, granted: Granted) -> list[str]:
    """The filters that the remote is not asked for."""
    filters = (text for item in bridge.remote_subscriptions for text in item.filters)
    return [text for text in dict.fromkeys(filters) if not is_taken(text, granted)]


def subscriptions(bridge: Bridge, granted: Granted) -> list[dict[str, Any]]:
    """What SUBSCRIBE asks the remote for."""
    is_new = bridge.mqtt_version == 5
    found: dict[str, dict[str, Any]] = {}
    for item in bridge.remote_subscriptions:
        for topic_filter in item.filters:
            # The remote would take the last of two to one filter; the first decides.
            found.setdefault(
                topic_filter,
                {
                    "topic_filter": topic_filter,
                    "qos": min(item.max_qos, granted.maximum_qos),
                    # Before MQTT 5 there is nothing but the QoS to ask for.
                    "no_local": is_new,
                    "retain_as_published": is_new and item.preserve_retain,
                    "retain_handling": 1 if is_new else 0,
                },
            )
    return [item for item in found.values() if is_taken(item["topic_filter"], granted)]


def _rewriting(bridge: Bridge, items: Iterable[BridgeSubscription]) -> Rewriting:
    rules: list[_Rule] = []
    for item in items:
        if item.excludes:
            rules.append(([text.encode() for text in item.excludes], None, [], False))
        added = [(each.key, each.value) for each in item.user_properties]
        filters = [text.encode() for text in item.filters]
        rules.append((filters, parts_of(item.destination), added, item.preserve_retain))
    hops = (bridge.hop_property, bridge.hop_limit) if bridge.loop_prevention else None
    return Rewriting(rules, hops=hops)
