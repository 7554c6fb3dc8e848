"""The keys of a processor's configuration: their kinds, their defaults, and what each is for.

Owns: the table. The first ones are the decision record's, with its defaults (S3.37 to S3.47); the
others are ours, spelt alike. Never: looks where a value is written (`sources`), or works out what
follows from several (`configuration`).
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from holdfast.core.settings import Kind, boolean, integer, size, text, texts
from holdfast.core.units import GIB
from holdfast.kernel import is_valid_topic_filter, is_valid_topic_name
from holdfast.processors import settings as defaults
from holdfast.processors.identity import TEXT_BYTES_MAXIMUM
from holdfast.processors.settings import ProcessorSettings

HIDDEN: Final = "********"
"""In place of a secret, wherever a configuration is shown."""
FOUR_BYTES: Final = 4_294_967_295
DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class Key:
    """One key."""

    name: str
    kind: Kind
    default: Any
    """None: nothing is set, or it is worked out."""
    reason: str
    attribute: str | None = None
    """What `ProcessorSettings` calls it; None where it is only a part of something there."""
    secret: bool = False

    def shown(self, value: Any) -> str:
        """A value in one line, without secrets."""
        if value is None:
            return "(none)"
        return HIDDEN if self.secret else self.kind.show(value) or "(none)"


def seconds(minimum: float, maximum: float) -> Kind:
    """A number of seconds, perhaps with a fraction."""

    def parse(value: object) -> float:
        try:
            number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if math.isnan(number):
            raise ValueError("it is no number")
        if not minimum <= number <= maximum:
            raise ValueError(f"{number:g} is not")
        return number

    return Kind(f"seconds from {minimum:g} to {maximum:g}", parse, lambda value: f"{value:g}")


def sink_url() -> Kind:
    """Where rows go; a password in it is not shown."""

    def show(value: str) -> str:
        shown = re.sub(r"(://[^:@/]*:).*@", rf"\1{HIDDEN}@", value)
        return re.sub(r"(password=)[^&]*", rf"\1{HIDDEN}", shown, flags=re.IGNORECASE)

    return Kind("a URL", text().parse, show)


def field(*, binary: bool = False) -> Kind:
    """A text that stands in a field of a packet, as a string or as binary data."""

    def parse(value: object) -> str:
        written: str = text().parse(value)
        if not _in_utf8(written, lambda encoded: len(encoded) <= TEXT_BYTES_MAXIMUM):
            raise ValueError("it is none that a packet has room for")
        if "\0" in written and not binary:
            raise ValueError("it has U+0000, which MQTT forbids")
        return written

    return Kind("text", parse)


def host() -> Kind:
    """A name or an address of a machine."""

    def parse(value: object) -> str:
        written: str = text().parse(value)
        try:
            written.encode("idna")
        except UnicodeError as error:
            raise ValueError(f"{written!a} is not the name of a host") from error
        if not written.isprintable():
            raise ValueError(f"{written!a} is not the name of a host")
        return written

    return Kind("text", parse)


def topic_name() -> Kind:
    """A topic that can be published to."""

    def parse(value: object) -> str:
        if not isinstance(value, str) or not _in_utf8(value, is_valid_topic_name):
            raise ValueError(f"{value!a} is not")
        return value

    return Kind("a topic without wildcards", parse)


def _is_subscribable(topic_filter: str) -> bool:
    """The group is a key of its own, and `$share` would otherwise stand twice."""
    return not topic_filter.startswith("$share/") and _in_utf8(topic_filter, is_valid_topic_filter)


def _in_utf8(value: str, is_valid: Callable[[bytes], bool]) -> bool:
    try:
        return is_valid(value.encode())
    except UnicodeEncodeError:
        return False


_PRESET: Final = ProcessorSettings(
    name="", broker_host="", environment="", client_identifier="", sink=""
)
_FILTERS: Final = texts(_is_subscribable, "a topic filter without $share")


def _ours(name: str, kind: Kind, attribute: str, reason: str) -> Key:
    """A key whose default is that of the settings."""
    return Key(name, kind, getattr(_PRESET, attribute), reason, attribute)


RECORD: Final = (
    Key("Enabled", boolean(), True, "false: it is not run."),
    Key("BrokerHost", host(), None, "The broker's host. It is required.", "broker_host"),
    Key(
        "BrokerPort",
        integer(1, 65_535),
        defaults.PORT_DEFAULT,
        "Its port; 8883 is MQTT over TLS.",
        "broker_port",
    ),
    Key(
        "ClientId",
        text(),
        "mqtt-processor",
        "What the client identifier begins with; environment and instance follow.",
    ),
    Key("SubscribeTopics", _FILTERS, (), "Topic filters that it subscribes to.", "topics"),
    Key(
        "SharedSubscriptionGroup",
        text(),
        None,
        "The group whose members share the messages; the environment is put behind it. Without"
        " one each instance gets all of them.",
    ),
    Key(
        "EnvironmentId",
        text(),
        None,
        "The environment. Else MQTT_ENVIRONMENT_ID, else the machine in a development build.",
    ),
    Key(
        "InstanceId",
        text(),
        None,
        "The instance within its environment, such as the pod; else the machine's name.",
    ),
    Key("Username", field(), None, "The user name at the broker.", "user_name"),
    Key("Password", field(binary=True), None, "Its password.", "password", secret=True),
    Key(
        "CleanSession",
        boolean(),
        False,
        "true: begins each start without what was queued for it.",
        "clean_start",
    ),
    Key(
        "SessionExpiryIntervalSeconds",
        integer(0, FOUR_BYTES),
        defaults.SESSION_EXPIRY_DEFAULT_S,
        "How long the broker keeps the session, and queues for it, while it is away.",
        "session_expiry_interval_s",
    ),
    Key(
        "AppendUniqueIdToClientId",
        boolean(),
        False,
        "true: another client identifier at each start, for tests.",
    ),
    Key("AutoReconnect", boolean(), True, "false: ends when it is cut off.", "auto_reconnect"),
    Key(
        "ReconnectDelaySeconds",
        seconds(0, DAY_S),
        defaults.RECONNECT_DELAY_DEFAULT_S,
        "The wait between attempts to connect.",
        "reconnect_delay_s",
    ),
)
"""Those of the decision record."""
OURS: Final = (
    Key("Processor", text(), None, "Its class: `module:Class`, beside the configuration."),
    Key(
        "Sink",
        sink_url(),
        None,
        "Where rows go: sqlite:///FILE or postgresql://…; else a file of SQLite beside the"
        " configuration, with the processor's name.",
        "sink",
    ),
    _ours("UseTls", boolean(), "tls", "false: the connection is not encrypted."),
    _ours(
        "TlsAuthority",
        text(),
        "tls_authority",
        "A file with the authorities that it trusts, else those of the machine.",
    ),
    _ours("TlsCertificate", text(), "tls_certificate", "A file with its own certificate."),
    _ours("TlsKey", text(), "tls_key", "A file with the key of that."),
    _ours("QualityOfService", integer(1, 2), "qos", "What it subscribes with."),
    _ours(
        "ReceiveMaximum",
        integer(1, 65_535),
        "receive_maximum",
        "Messages that are open at a time: delivered to it and not acknowledged.",
    ),
    _ours("BatchMessages", integer(1, 65_535), "batch_messages", "A batch has at most so many."),
    _ours("BatchBytes", size(1, GIB), "batch_bytes", "A batch is closed at so many bytes."),
    _ours("BatchAgeSeconds", seconds(0, 3_600), "batch_age_s", "A batch is closed at that age."),
    _ours(
        "MaximumAttempts",
        integer(1, 1_000),
        "maximum_attempts",
        "A message that has failed so often is a dead letter.",
    ),
    _ours(
        "DeadLetterTopic",
        topic_name(),
        "dead_letter_topic",
        "Where dead letters are published; else dead-letters/ENVIRONMENT/NAME.",
    ),
    _ours(
        "StopWithinSeconds",
        seconds(0, 3_600),
        "stop_within_s",
        "How long a stop may work on what is open; then it is given back to the broker.",
    ),
    _ours("HealthHost", host(), "health_host", "Where health and metrics are served."),
    _ours(
        "HealthPort",
        integer(0, 65_535),
        "health_port",
        "The port for that; none: not served; 0: one that the system chooses.",
    ),
)
"""The others."""
KEYS: Final = MappingProxyType({row.name: row for row in RECORD + OURS})
"""Every key by its name."""
BY_FOLDED_NAME: Final = MappingProxyType({name.lower(): row for name, row in KEYS.items()})
"""The same in lower case: as in .NET, the case of a key does not matter."""
