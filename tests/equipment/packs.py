"""Judges of how APPLICATION clients are delivered to, told by what they saw on the wire.

Owns: what a pack, a repeat and a give-up mean to a client.
Never: asks the broker. Who is such a client, and by which rules, the history says (`Applied`).
"""

from collections import Counter, defaultdict

from tests.equipment.expectations import Expectations
from tests.equipment.history import (
    Answered,
    Applied,
    Connecting,
    Damaged,
    GivenUp,
    History,
    Ledger,
    LifeEnded,
    Message,
    Opened,
    Transmitted,
)

GIVE_UPS = ("retries_used_up", "skipped")
LASTING_S = 86_400


def check_packs_are_kept(history: History) -> list[str]:
    """Did no client have more messages unanswered than a pack holds, so that nothing beyond a pack
    was sent while it was open?

    What a pack had been given and answered cannot be told from the pack before it, so only what is
    unanswered counts. Where a pack was given up, what it held stays unanswered beside the next; the
    rest of that connection is not judged.
    """
    violations = []
    maximum: dict[str, int] = {}
    packs: dict[str, set[Message]] = defaultdict(set)
    done: dict[str, set[Message]] = defaultdict(set)
    """What has been answered, and may come again nevertheless: it was on its way."""
    unjudged: set[str] = set()
    expectations = Expectations(History())
    for place, event in enumerate(history.events):
        expectations.take(place, event)
        match event:
            case Applied():
                maximum = dict.fromkeys(event.subscribers, event.pack_maximum)
            case Opened(client):
                packs[client].clear()
                done[client].clear()
                unjudged.discard(client)
                if not event.expiry_s:
                    unjudged.add(client)
            case GivenUp(client):
                unjudged.add(client)
            case Answered(client, message):
                packs[client].discard(message)
                done[client].add(message)
            case Damaged(message):
                for pack in packs.values():
                    pack.discard(message)
            case Transmitted(client, message) if client in maximum and client not in unjudged:
                is_over = message in done[client] or message in expectations.damaged
                if not is_over and not expectations.is_by_group(client, message):
                    packs[client].add(message)
                if len(packs[client]) > maximum[client]:
                    unjudged.add(client)
                    held = f"{len(packs[client])} unanswered of {maximum[client]}"
                    violations.append(f"{client} had {held} in a pack")
            case _:
                pass
    return violations


def check_transmissions_are_bounded(history: History) -> list[str]:
    """Was no message sent more often on one connection than it may be: once, and to APPLICATION
    clients once for each retry more [MQTT-4.4.0-1]?"""
    violations = []
    rules: Applied | None = None
    versions: dict[str, int] = {}
    counts: dict[str, Counter[tuple[int, Message]]] = defaultdict(Counter)
    for event in history.events:
        match event:
            case Applied():
                rules = event
            case Opened(client):
                versions[client] = event.protocol_version
                counts[client].clear()
            case Transmitted(client, message, identifier):
                counts[client][identifier, message] += 1
                count, most = counts[client][identifier, message], 1
                if rules is not None and client in rules.subscribers:
                    live = versions.get(client) == 5
                    most = rules.live_transmissions_maximum if live else rules.transmissions_maximum
                if most and count == most + 1:
                    violations.append(f"{client} was sent {message} more than {most} times")
            case _:
                pass
    return violations


def check_repeats_are_marked(history: History) -> list[str]:
    """Did each repeat come under the same packet identifier, with DUP?

    Judged by messages that were published at QoS 2, which are there once. A crash forgets what was
    in flight at QoS 1, and a group gives back what a member had.
    """
    violations = []
    known: dict[str, dict[Message, int]] = defaultdict(dict)
    lives = 0
    connects_in: Counter[str] = Counter()
    opened_in: Counter[str] = Counter()
    expectations = Expectations(History())
    for place, event in enumerate(history.events):
        expectations.take(place, event)
        match event:
            case LifeEnded():
                lives += 1
            case Connecting(client):
                connects_in[client] = lives
            case Opened(client):
                # Until now what the life before had sent may have been on its way.
                if not event.present or opened_in[client] != connects_in[client]:
                    known[client].clear()
                opened_in[client] = connects_in[client]
            case Transmitted(client, message, identifier, dup) if message.qos == 2:
                if expectations.is_by_group(client, message):
                    continue
                before = known[client].get(message)
                known[client][message] = identifier
                if before is not None and (before, dup) != (identifier, True):
                    violations.append(
                        f"{client} got {message} as {before}, then as {identifier} with DUP {dup}"
                    )
            case _:
                pass
    return violations


def check_what_is_given_up_is_in_the_ledger(history: History) -> list[str]:
    """Is each message that a client was sent and never answered in the ledger, for the reason that
    the strategy gives?"""
    rules: Applied | None = None
    unanswered: dict[str, set[Message]] = defaultdict(set)
    answered: dict[str, set[Message]] = defaultdict(set)
    ledger: Counter[str] = Counter()
    violations = []
    expectations = Expectations(history)
    lasting: set[str] = set()
    for event in history.events:
        match event:
            case Applied():
                rules = event
            case Opened(client):
                if not event.present:
                    unanswered[client].clear()
                (lasting.add if event.expiry_s >= LASTING_S else lasting.discard)(client)
            case Transmitted(client, message) if not message.expiry_s:
                unanswered[client].add(message)
            case Answered(client, message):
                answered[client].add(message)
            case Ledger(client, reason, count):
                ledger[client] += count
                if reason in GIVE_UPS and not _is_right(rules, client, reason):
                    violations.append(f"{client} has {count} in the ledger as {reason}")
            case _:
                pass
    for client in sorted(lasting & (rules.subscribers if rules else frozenset())):
        left = [
            message
            for message in unanswered[client] - answered[client] - expectations.damaged
            if not expectations.is_by_group(client, message)
        ]
        if len(left) > ledger[client]:
            violations.append(
                f"{client} has left {len(left)} unanswered, the ledger tells of {ledger[client]}"
            )
    return violations


def _is_right(rules: Applied | None, client: str, reason: str) -> bool:
    """True if messages of this client may be given up, and for this reason."""
    return rules is not None and client in rules.subscribers and reason == rules.give_up_reason
