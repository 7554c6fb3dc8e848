"""Names of topics: as Pulsar clients spell them, and as the log and MQTT clients know them.

    topic = parse_topic_name("orders")                TopicName("public", "default", "orders")
    log_name(topic)                                   "orders"
    pulsar_name("plant/line1")                        TopicName(..., "plant%2Fline1")

Owns: which names there are, and which two mean the same topic. Never: knows which topics exist.

Invariants, drawn in docs/pulsar/names.md:
1. Each TopicName has one name in the log, and no two the same.
2. Each topic name of MQTT that does not begin with `$pulsar/` is the name of one TopicName, and
   `log_name` and `pulsar_name` undo each other.
"""

import re
from collections.abc import Container
from dataclasses import dataclass
from typing import Final

from holdfast.protocols.pulsar.refusals import Refusal

PERSISTENT: Final = "persistent"
NON_PERSISTENT: Final = "non-persistent"
TOPIC_NAME_BYTES_MAXIMUM: Final = 65_535
"""What a topic name of MQTT may have [MQTT-1.5.4-1]; the log knows topics by such names."""
APART: Final = "$pulsar/"
"""What the names of other topics than those of public/default begin with: a wildcard at the
beginning of a filter does not match it [MQTT-4.7.2-1]."""

_ENTITY: Final = re.compile(r"[-=:.\w]+", re.ASCII).fullmatch
_PARTITION: Final = re.compile(r"-partition-([0-9]+)\Z")
_ESCAPED_PARTITION: Final = re.compile(r"-partition%2D([0-9]+)\Z")
_ESCAPE: Final = re.compile("%2F|%25")
_WITHOUT_MQTT: Final = {"%": "%25", "+": "%2B", "#": "%23", "\0": "%00"}
_ESCAPE_WITHOUT_MQTT: Final = re.compile("|".join(_WITHOUT_MQTT.values()))
_CHARACTERS: Final = {escape: character for character, escape in _WITHOUT_MQTT.items()}


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace with its tenant."""

    tenant: str
    namespace: str

    def __str__(self) -> str:
        return f"{self.tenant}/{self.namespace}"


PUBLIC_DEFAULT: Final = Namespace("public", "default")


@dataclass(frozen=True, slots=True)
class TopicName:
    """A persistent topic. Its text is the whole name: `persistent://tenant/namespace/local name`;
    a partition is a topic with a name of its own."""

    namespace: Namespace
    local_name: str

    def __str__(self) -> str:
        return f"{PERSISTENT}://{self.namespace}/{self.local_name}"


def parse_topic_name(text: str) -> TopicName | Refusal:
    """The topic that a client means; what it leaves out is persistent, public and default."""
    domain, colon, rest = text.partition("://")
    if not colon:
        domain, rest = PERSISTENT, text if "/" in text else f"{PUBLIC_DEFAULT}/{text}"
    parts = rest.split("/")
    if domain not in (PERSISTENT, NON_PERSISTENT) or len(parts) != 3 or not parts[2]:
        return Refusal.TOPIC_NAME_INVALID
    namespace = parse_namespace(f"{parts[0]}/{parts[1]}")
    if namespace is None:
        return Refusal.TOPIC_NAME_INVALID
    if domain == NON_PERSISTENT:
        return Refusal.TOPIC_NON_PERSISTENT
    topic = TopicName(namespace, parts[2])
    if len(log_name(topic).encode()) > TOPIC_NAME_BYTES_MAXIMUM:
        return Refusal.TOPIC_NAME_TOO_LONG
    return topic


def find_topic(text: str, namespaces: Container[Namespace]) -> TopicName | Refusal:
    """The same, if it lies in public/default or in one of these namespaces."""
    topic = parse_topic_name(text)
    if isinstance(topic, Refusal) or topic.namespace == PUBLIC_DEFAULT:
        return topic
    return topic if topic.namespace in namespaces else Refusal.NAMESPACE_UNKNOWN


def parse_namespace(text: str) -> Namespace | None:
    """The namespace of this name, `tenant/namespace`; `None` if it is none."""
    tenant, _, namespace = text.partition("/")
    return Namespace(tenant, namespace) if _ENTITY(tenant) and _ENTITY(namespace) else None


def log_name(topic: TopicName) -> str:
    """The topic's name in the log, which is its topic name for MQTT clients."""
    name = _undone(topic.local_name)
    if name is None:
        return f"{APART}/{topic.namespace}/{_escaped_without_mqtt(topic.local_name)}"
    if topic.namespace != PUBLIC_DEFAULT:
        return f"{APART}{topic.namespace}/{name}"
    return name


def pulsar_name(topic_name: str) -> TopicName | None:
    """The topic that is called this in the log; `None` if Pulsar clients have no name for it, which
    only happens below `$pulsar/`."""
    if not topic_name.startswith(APART):
        return TopicName(PUBLIC_DEFAULT, _escaped(topic_name))
    rest = topic_name.removeprefix(APART)
    has_mqtt = not rest.startswith("/")
    parts = rest.removeprefix("/").split("/", 2)
    namespace = parse_namespace("/".join(parts[:2]))
    if len(parts) < 3 or not parts[2] or namespace is None:
        return None
    local_name = _escaped(parts[2]) if has_mqtt else _undone_without_mqtt(parts[2])
    topic = TopicName(namespace, local_name)
    # Another spelling of a name that lies elsewhere is nobody's.
    return topic if "/" not in local_name and log_name(topic) == topic_name else None


def _escaped(topic_name: str) -> str:
    """The local name of a topic name of MQTT. Where it ends as the name of a partition does, the
    last hyphen is escaped, or clients would take it for a part of another topic."""
    escaped = topic_name.replace("%", "%25").replace("/", "%2F")
    return _PARTITION.sub(r"-partition%2D\1", escaped)


def _undone(local_name: str) -> str | None:
    """The topic name of MQTT that a local name stands for, `None` if there is none: no other local
    name stands for it, so that what is not its escaped form has no topic name."""
    hyphen = _ESCAPED_PARTITION.sub(r"-partition-\1", local_name)
    topic_name = _ESCAPE.sub(lambda found: "/" if found[0] == "%2F" else "%", hyphen)
    has_none = topic_name.startswith(APART) or any(each in topic_name for each in "+#\0")
    return None if has_none or _escaped(topic_name) != local_name else topic_name


def _escaped_without_mqtt(local_name: str) -> str:
    return "".join(_WITHOUT_MQTT.get(each, each) for each in local_name)


def _undone_without_mqtt(escaped: str) -> str:
    return _ESCAPE_WITHOUT_MQTT.sub(lambda found: _CHARACTERS[found[0]], escaped)
