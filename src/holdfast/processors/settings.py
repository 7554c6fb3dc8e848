"""What one processor is told: the values, whatever they were read from.

Owns: the names and defaults. Never: reads files or the environment (`configuration` does), or makes
an identity (`identity` does).
"""

from dataclasses import dataclass, field
from typing import Final

PORT_DEFAULT: Final = 8883
"""MQTT over TLS (S3.38)."""
SESSION_EXPIRY_DEFAULT_S: Final = 3600
RECONNECT_DELAY_DEFAULT_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorSettings:
    """One processor, with all that depends on its environment worked out."""

    name: str
    """As in its configuration, such as `ZebraRfid`."""
    broker_host: str
    broker_port: int = PORT_DEFAULT
    tls: bool = True
    tls_authority: str | None = None
    """A file with the authorities that it trusts; None: the machine's."""
    tls_certificate: str | None = None
    """A file with its own certificate, and its key in `tls_key`."""
    tls_key: str | None = None
    user_name: str | None = None
    password: str | None = field(default=None, repr=False)

    environment: str
    client_identifier: str
    """Effective: with environment and instance (S3.22, S3.23)."""
    group: str | None = None
    """Effective: with the environment (S3.8). None: no group, plain subscriptions."""
    topics: tuple[str, ...] = ()
    """Topic filters as configured."""

    clean_start: bool = False
    session_expiry_interval_s: int = SESSION_EXPIRY_DEFAULT_S
    auto_reconnect: bool = True
    reconnect_delay_s: float = RECONNECT_DELAY_DEFAULT_S
    qos: int = 2
    receive_maximum: int = 2_000
    """Messages that are open at a time: delivered here and not acknowledged."""

    batch_messages: int = 1_000
    batch_bytes: int = 4 * 1024 * 1024
    batch_age_s: float = 0.2
    """A batch is closed when it has as many messages or bytes, or is as old as that."""
    maximum_attempts: int = 5
    dead_letter_topic: str | None = None
    """None: `dead-letters/<environment>/<name>`."""
    stop_within_s: float = 10.0
    """After that, what is open is given back to the broker."""

    sink: str = field(repr=False)
    """A URL: `sqlite:///file`, `postgresql://...`, perhaps with a password in it."""
    health_host: str = "127.0.0.1"
    health_port: int | None = None
    """None: no health and no metrics over HTTP; 0: a port that the system chooses."""

    @property
    def topic_filters(self) -> tuple[str, ...]:
        """What it subscribes to: the topics, through its group if it has one (S3.9, S3.10)."""
        if self.group is None:
            return self.topics
        return tuple(f"$share/{self.group}/{topic}" for topic in self.topics)

    @property
    def dead_letters(self) -> str:
        """The topic that dead letters are published to."""
        return self.dead_letter_topic or f"dead-letters/{self.environment}/{self.name}"
