"""How queues are named: those of APPLICATION clients by the broker (acceptance S0.10 to S0.13,
S0.74 to S0.80), cursors by whoever makes them, and subscriptions after their topics.

Owns: the rules, and the order in which names are tried. Never: knows which names are taken.

Invariants:
1. A name is made of its owner alone, so that an operator can work it out.
2. Two owners are never tried under the same names in the same order: whoever finds the first one
   taken has another to fall back to.
"""

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Final

EVERYTHING: Final = "tbmq.msg.all"
"""The log itself: whatever was stored."""
PERSISTED: Final = "tbmq.msg.persisted"
"""What is kept for persistent DEVICE clients, all of them together."""
APPLICATION_PREFIX: Final = "tbmq.msg.app."
SHARED_PREFIX: Final = "tbmq.msg.app.shared."
SUBSCRIPTION_PREFIX: Final = "subscription/"
CONSUMER_GROUP_PREFIX: Final = "application-shared-msg-consumer-group-"
_CURSOR_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}").fullmatch
CURSOR_NAME_RULE: Final = (
    "1 to 100 letters, digits, dots, hyphens and underscores, a letter or digit first, and not"
    " tbmq. at the beginning"
)
"""What the name of a cursor may be, for whoever has to choose another one."""
_RESERVED_PREFIX: Final = "tbmq."
_PLAIN_IDENTIFIER: Final = re.compile(r"[A-Za-z0-9]+").fullmatch
_PLAIN_FILTER: Final = re.compile(r"[A-Za-z0-9/+#]+").fullmatch
_WRITTEN: Final = str.maketrans({"/": ".", "+": "slw", "#": "mlw"})
"""`slw`: single-level wildcard; `mlw`: multi-level wildcard."""


def client_queue_names(client_identifier: str, *, hashed: bool) -> Iterator[str]:
    """The names for a client's queue, to be tried in this order. None at all, if its identifier has
    other characters than letters and digits and names may not be `hashed`."""
    written = client_identifier if _PLAIN_IDENTIFIER(client_identifier) else None
    return _names(APPLICATION_PREFIX, written, client_identifier, hashed=hashed)


def shared_queue_names(topic_filter: str, *, hashed: bool) -> Iterator[str]:
    """The same for the queue of the shared subscriptions to a filter; `topic_filter` is without
    `$share` and the share name."""
    written = topic_filter.translate(_WRITTEN) if _PLAIN_FILTER(topic_filter) else None
    return _names(SHARED_PREFIX, written, topic_filter, hashed=hashed)


def is_cursor_name(name: str) -> bool:
    """True if a cursor may be called that. It is its queue's name too, so that none of those which
    the broker gives can be one."""
    return bool(_CURSOR_NAME(name)) and not name.startswith(_RESERVED_PREFIX)


def bridge_queue_name(name: str) -> str:
    """The name of a bridge's queue; nothing else begins with this word and a slash."""
    return f"bridge/{name}"


def subscription_queue_name(subscription: str, topic_name: str) -> str:
    """The name of the queue of a durable subscription; a slash in the subscription's own name is
    escaped, and nothing else has one behind this word."""
    escaped = subscription.replace("%", "%25").replace("/", "%2F")
    return f"{SUBSCRIPTION_PREFIX}{escaped}/{topic_name}"


def parse_subscription_queue_name(name: str) -> tuple[str, str]:
    """The inverse: the subscription's own name, and its topic's."""
    escaped, _, topic_name = name.removeprefix(SUBSCRIPTION_PREFIX).partition("/")
    return escaped.replace("%2F", "/").replace("%25", "%"), topic_name


def consumer_group(share_name: str, queue_name: str) -> str:
    """The name of the group that reads a shared queue under this share name."""
    return f"{CONSUMER_GROUP_PREFIX}{share_name}-{queue_name}"


def _names(prefix: str, written: str | None, owner: str, *, hashed: bool) -> Iterator[str]:
    if written is not None:
        yield prefix + written
    elif not hashed:
        return
    digest = owner
    while True:
        # Again, should somebody have named himself by another's hash.
        digest = sha256(digest.encode()).hexdigest()
        yield prefix + digest
