"""Publish a message as an administrator: answered when it is as safe as its QoS asks for."""

import asyncio
from base64 import b64decode
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from holdfast.broker.admin.http.operation import (
    TEXT_CHARACTERS_MAXIMUM,
    Answered,
    Asked,
    Operation,
    ProblemError,
    bad_request,
)
from holdfast.broker.commands import CommandRefusedError, Commands, Message
from holdfast.broker.state.broker import Broker
from holdfast.kernel import encode_packet, is_valid_topic_name

WAITING_MAXIMUM = 256
"""Publications that are not answered yet; this is for people and scripts, not for fleets."""
ANSWER_WITHIN_S = 60
"""A disk that stalls for longer is in trouble; the message may still become durable."""
USER_PROPERTIES_MAXIMUM = 64
Text = Annotated[str, Meta(max_length=TEXT_CHARACTERS_MAXIMUM)]
UserProperty = Annotated[tuple[Text, Text], Meta(description="A pair of a name and a value.")]


class Properties(Struct, forbid_unknown_fields=True, kw_only=True):
    """Properties of MQTT 5 that a message may have."""

    content_type: Text | UnsetType = UNSET
    response_topic: Text | UnsetType = UNSET
    correlation_data: Annotated[str, Meta(description="In base64.")] | UnsetType = UNSET
    message_expiry_interval: Annotated[int, Meta(ge=0, le=2**32 - 1)] | UnsetType = UNSET
    payload_format_indicator: Annotated[int, Meta(ge=0, le=1)] | UnsetType = UNSET
    user_property: (
        Annotated[list[UserProperty], Meta(max_length=USER_PROPERTIES_MAXIMUM)] | UnsetType
    ) = UNSET


class NewMessage(Struct, forbid_unknown_fields=True, kw_only=True):
    """A message to be published."""

    topic_name: Text
    payload: Annotated[str, Meta(description="As text.")] | UnsetType = UNSET
    payload_base64: Annotated[str, Meta(description="Or as bytes, in base64.")] | UnsetType = UNSET
    qos: Annotated[int, Meta(ge=0, le=2)] = 1
    retain: bool = False
    properties: Properties | UnsetType = UNSET


class Published(Struct, kw_only=True):
    """What has become of it."""

    topic_name: str
    durable: bool


class Publishing:
    """Publishes, and waits for the answer."""

    def __init__(self, broker: Broker, commands: Commands) -> None:
        self._config = broker.config
        self._commands = commands
        self._waiting = 0

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        done = Answered("It is published.", Published)
        full = Answered("The log is full, or too much is being published here.")
        return [
            Operation(
                method="POST",
                path="/v1/publish",
                name="publish",
                summary="Publish a message. At QoS 1 and 2 the answer says that it is durable.",
                run=self.publish,
                body=NewMessage,
                answers={
                    200: done,
                    503: full,
                    504: Answered("The disk does not answer; it may still become durable."),
                },
            )
        ]

    async def publish(self, asked: Asked) -> Published:
        """Publishes the message of the body."""
        message: NewMessage = asked.body
        await self.send(
            Message(
                topic_name=message.topic_name,
                payload=_payload(message),
                qos=message.qos,
                retain=message.retain,
                properties=_properties(message.properties),
            )
        )
        return Published(topic_name=message.topic_name, durable=message.qos > 0)

    async def send(self, message: Message) -> None:
        """Publishes, and returns when the message is durable, at QoS 0 when it is on its way."""
        _check(message, self._config().maximum_packet_size_bytes)
        if self._waiting >= WAITING_MAXIMUM:
            detail = f"{WAITING_MAXIMUM} messages are being published here; try again later"
            raise ProblemError(503, "busy", detail)
        self._waiting += 1
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                await self._commands.publish(message)
        except TimeoutError:
            detail = f"not durable after {ANSWER_WITHIN_S} s; it may still become so"
            raise ProblemError(504, "timeout", detail) from None
        except CommandRefusedError as error:
            raise ProblemError(503, error.refusal.value, str(error)) from error
        finally:
            self._waiting -= 1


def _check(message: Message, packet_bytes_maximum: int) -> None:
    topic_name = message.topic_name
    if not is_valid_topic_name(topic_name.encode(errors="replace")) or topic_name.startswith("$"):
        detail = "it is empty, has a wildcard or a NUL, or begins with $"
        raise bad_request(f"topic_name {topic_name!r} cannot be published to: {detail}")
    fields = {
        "packet_identifier": 1 if message.qos else 0,
        "qos": message.qos,
        "retain": message.retain,
        "topic_name": topic_name,
        "payload": message.payload,
        "properties": message.properties,
    }
    try:
        size_bytes = len(encode_packet("publish", fields, protocol_version=5))
    except ValueError as error:
        raise bad_request(f"this is no message of MQTT: {error}") from error
    if size_bytes > packet_bytes_maximum:
        raise bad_request(
            f"the message takes {size_bytes} bytes; mqtt.maximum_packet_size_bytes allows"
            f" {packet_bytes_maximum}"
        )


def _payload(message: NewMessage) -> bytes:
    if message.payload is not UNSET and message.payload_base64 is not UNSET:
        raise bad_request("payload and payload_base64 are two payloads; give one")
    if message.payload_base64 is not UNSET:
        return _bytes(message.payload_base64, "payload_base64")
    return b"" if message.payload is UNSET else message.payload.encode()


def _properties(given: Properties | UnsetType) -> dict[str, Any]:
    if given is UNSET:
        return {}
    properties = {name: value for name, value in asdict(given).items() if value is not UNSET}
    if given.correlation_data is not UNSET:
        properties["correlation_data"] = _bytes(
            given.correlation_data, "properties.correlation_data"
        )
    return properties


def _bytes(word: str, name: str) -> bytes:
    try:
        return b64decode(word, validate=True)
    except ValueError as error:
        raise bad_request(f"{name} is not base64: {error}") from error
