"""What becomes of a message that cannot be worked on: a dead letter, and back again.

Owns: how a dead letter says what it was and why, and the session that keeps dead letters. Never:
acknowledges a message; `running` does when the letter is the broker's.

A dead letter is the payload with its properties, and user properties that begin with
`dead-letter-`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from holdfast.client.mqtt import FAILED, Client, ClientOptions, Publication
from holdfast.core.errors import OperatingError
from holdfast.core.units import SECOND_US
from holdfast.kernel import LIMITS
from holdfast.processors.session import KEEP_ALIVE_S, Letter, options_of
from holdfast.processors.settings import ProcessorSettings
from holdfast.processors.work import End
from holdfast.protocols.mqtt.reason_code import reason_name

PREFIX: Final = "dead-letter-"
FOR_EVER_S: Final = 0xFFFF_FFFF
"""A Session Expiry Interval that never passes [MQTT 5, 3.1.2.11.2]."""
KEEPER_RECEIVE_MAXIMUM: Final = 65_535
"""All that is listed is open at a time."""
TRAVELLING: Final = (
    "content_type",
    "correlation_data",
    "payload_format_indicator",
    "response_topic",
)
"""Properties of MQTT 5 that belong to a message, beside user properties."""


class LetterRefusedError(OperatingError):
    """The broker does not give or take a message."""

    retriable = False


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be worked on."""

    topic: str
    """The one that it was published to."""
    payload: bytes
    properties: Mapping[str, Any]
    """Its own, without what the dead letter says of it."""
    reason: str
    attempts: int
    time: str
    """When it became a dead letter, as in ISO 8601."""
    identity: str
    processor: str
    environment: str


def letter_of(
    settings: ProcessorSettings,
    topic: str,
    payload: bytes,
    properties: Mapping[str, Any],
    identity: str,
    end: End,
    now_us: int,
    done: Callable[[int], None],
) -> Letter:
    """What is published in place of a message."""
    said = {
        "reason": end.reason,
        "attempts": str(end.attempts),
        "topic": topic,
        "time": datetime.fromtimestamp(now_us / SECOND_US, UTC).isoformat(timespec="milliseconds"),
        "identity": identity,
        "processor": settings.name,
        "environment": settings.environment,
    }
    own = {name: properties[name] for name in TRAVELLING if name in properties}
    pairs = [pair for pair in properties.get("user_property", ()) if pair[0] != "holdfast-id"]
    # A message may have had as many as there may be: its last ones make room.
    del pairs[LIMITS["user_properties_maximum"] - len(said) :]
    pairs += [(PREFIX + name, value) for name, value in said.items()]
    return Letter(
        settings.dead_letters, payload, qos=1, properties={**own, "user_property": pairs}, done=done
    )


def read_letter(payload: bytes, properties: Mapping[str, Any]) -> DeadLetter | None:
    """What a delivery of the dead-letter topic says; None if it is no dead letter."""
    pairs = properties.get("user_property", ())
    said = {name.removeprefix(PREFIX): value for name, value in pairs if name.startswith(PREFIX)}
    own = {name: properties[name] for name in TRAVELLING if name in properties}
    rest = [pair for pair in pairs if not pair[0].startswith(PREFIX) and pair[0] != "holdfast-id"]
    if rest:
        own["user_property"] = rest
    try:
        return DeadLetter(
            topic=said["topic"],
            payload=payload,
            properties=own,
            reason=said["reason"],
            attempts=int(said["attempts"]),
            time=said["time"],
            identity=said["identity"],
            processor=said["processor"],
            environment=said["environment"],
        )
    except (KeyError, ValueError):
        return None


def publication_of(letter: DeadLetter) -> Publication:
    """The message as it was, to be published again."""
    return Publication(letter.topic, letter.payload, qos=1, properties=letter.properties)


def keeper_name(settings: ProcessorSettings) -> str:
    """The client identifier of the session that keeps the dead letters of a processor."""
    return f"dead-letters-{settings.environment}-{settings.name}"


def keeper_options(settings: ProcessorSettings) -> ClientOptions:
    """How that session is kept: for ever."""
    return replace(
        options_of(settings),
        clean_start=False,
        session_expiry_interval_s=FOR_EVER_S,
        keep_alive_s=KEEP_ALIVE_S,
        receive_maximum=KEEPER_RECEIVE_MAXIMUM,
    )


async def keep_letters(settings: ProcessorSettings) -> int:
    """Afterwards the broker keeps what is published to the dead-letter topic, until somebody takes
    it or as many seconds have passed as this returns. Raises `ConnectionFailedError`, or
    `LetterRefusedError` where the rules do not let the processor's user have letters."""
    client = _Visitor(keeper_name(settings), keeper_options(settings))
    await client.connect(settings.broker_host, settings.broker_port)
    assert client.granted is not None, "it is connected"
    granted_s = client.granted.session_expiry_s
    try:
        code = await client.subscribe(settings.dead_letters, 1)
        if code >= FAILED:
            raise LetterRefusedError(
                f"the broker refuses {settings.dead_letters}: {reason_name(code)}"
            )
    finally:
        client.disconnect()
        await client.lost.wait()
    return FOR_EVER_S if granted_s is None else granted_s


class _Visitor(Client):
    """Takes nothing: what comes is sent again to whoever takes it."""

    def received(self, delivery: Any) -> None:
        """Leaves it to the broker."""
