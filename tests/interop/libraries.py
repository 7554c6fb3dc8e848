"""The libraries that Holdfast is tried with, and what each of them cannot do."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from tests.interop import installation
from tests.interop.installation import Command

SESSION_PRESENT = "say whether the session was present"
RECONNECTS = "connect again by itself"
DISCONNECT_REASON = "give a reason with DISCONNECT"
SUBSCRIPTION_IDENTIFIERS = "let one choose a Subscription Identifier"
ALIASES_SENT = "send topic aliases"
ALIASES_TAKEN = "take topic aliases"
RESUMES = "keep what is in flight and send it again"


@dataclass(frozen=True, slots=True)
class Library:
    """One library, unchanged."""

    name: str
    title: str
    """As its people write it."""
    driver: Callable[[], Command]
    """Installs it; returns how its driver is started."""
    versions: tuple[int, ...]
    over_websocket: tuple[int, ...] = ()
    lacks: Mapping[str, str] = field(default_factory=dict)
    """What it cannot do, with the reason. No scenario that needs it is tried."""
    forgets_releases: bool = False
    """True if a failed try to connect again makes it publish what it had released already, so that
    it must not fail where messages are counted (`test_paho_exactly_once.py`)."""
    keep_alive_s: int = 1
    """The shortest that it allows."""
    aliases_itself: bool = False
    """True if it chooses topic aliases by itself, and an empty topic is not for its users."""


LIBRARIES = (
    Library(
        "paho",
        "Paho (Python)",
        partial(installation.python, "paho"),
        versions=(3, 4, 5),
        over_websocket=(4, 5),
        lacks={ALIASES_TAKEN: "hands on an empty topic"},
        forgets_releases=True,
    ),
    Library(
        "aiomqtt",
        "aiomqtt (Python)",
        partial(installation.python, "aiomqtt"),
        versions=(3, 4, 5),
        over_websocket=(5,),
        lacks={
            SESSION_PRESENT: "has no word for it",
            RECONNECTS: "a client lives for one connection",
            RESUMES: "a client lives for one connection",
            DISCONNECT_REASON: "has no word for it",
            ALIASES_TAKEN: "hands on an empty topic",
        },
    ),
    Library("gmqtt", "gmqtt (Python)", partial(installation.python, "gmqtt"), versions=(4, 5)),
    Library(
        "mqtt_js",
        "MQTT.js (Node)",
        installation.mqtt_js,
        versions=(3, 4, 5),
        over_websocket=(3, 4, 5),
    ),
    Library(
        "rumqttc",
        "rumqttc (Rust)",
        installation.rumqttc,
        versions=(4, 5),
        lacks={
            DISCONNECT_REASON: "always says that all is well",
            ALIASES_TAKEN: "hands on an empty topic",
        },
        keep_alive_s=5,
    ),
    Library(
        "hivemq",
        "HiveMQ (Java)",
        installation.hivemq,
        versions=(4, 5),
        lacks={SUBSCRIPTION_IDENTIFIERS: "chooses them itself"},
        aliases_itself=True,
    ),
)
