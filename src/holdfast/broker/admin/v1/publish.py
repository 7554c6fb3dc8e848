"""Publish a message as an administrator: answered when it is as safe as its QoS asks for."""

import asyncio
from base64 import b64decode
from typing import Any

from holdfast.broker.admin.http.operation import (
    TEXT_CHARACTERS_MAXIMUM,
    Answered,
    Asked,
    Operation,
    ProblemError,
    Schema,
    bad_request,
    row_of,
)
from holdfast.broker.delivery.entrance import Publication, Refusal
from holdfast.broker.server import Server
from holdfast.kernel import encode_packet, is_valid_topic_name

WAITING_MAXIMUM = 256
"""Publications that are not answered yet; this is for people and scripts, not for fleets."""
ANSWER_WITHIN_S = 60
"""A disk that stalls for longer is in trouble; the message may still become durable."""
USER_PROPERTIES_MAXIMUM = 64
_TEXT: Schema = {"type": "string", "maxLength": TEXT_CHARACTERS_MAXIMUM}
PROPERTIES: Schema = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "content_type": _TEXT,
        "response_topic": _TEXT,
        "correlation_data": {"type": "string", "description": "In base64."},
        "message_expiry_interval": {"type": "integer", "minimum": 0, "maximum": 2**32 - 1},
        "payload_format_indicator": {"type": "integer", "minimum": 0, "maximum": 1},
        "user_property": {
            "type": "array",
            "maxItems": USER_PROPERTIES_MAXIMUM,
            "items": {"type": "array", "minItems": 2, "maxItems": 2, "items": _TEXT},
        },
    },
}
BODY: Schema = {
    "type": "object",
    "additionalProperties": False,
    "required": ["topic_name"],
    "properties": {
        "topic_name": _TEXT,
        "payload": {"type": "string", "description": "As text."},
        "payload_base64": {"type": "string", "description": "Or as bytes, in base64."},
        "qos": {"type": "integer", "minimum": 0, "maximum": 2, "default": 1},
        "retain": {"type": "boolean", "default": False},
        "properties": PROPERTIES,
    },
}


class Publishing:
    """Publishes, and waits for the answer."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._waiting = 0

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        done = Answered("It is published.", row_of(topic_name="string", durable="boolean"))
        full = Answered("The log is full, or too much is being published here.")
        return [
            Operation(
                method="POST",
                path="/v1/publish",
                name="publish",
                summary="Publish a message. At QoS 1 and 2 the answer says that it is durable.",
                run=self.publish,
                body=BODY,
                answers={
                    200: done,
                    503: full,
                    504: Answered("The disk does not answer; it may still become durable."),
                },
            )
        ]

    async def publish(self, asked: Asked) -> dict[str, Any]:
        """Publishes the message of the body."""
        body = asked.body
        publication = Publication(
            body["topic_name"],
            _payload(body),
            body.get("qos", 1),
            body.get("retain", False),
            _properties(body.get("properties", {})),
        )
        await self.send(publication)
        return {"topic_name": publication.topic_name, "durable": publication.qos > 0}

    async def send(self, publication: Publication) -> None:
        """Publishes, and returns when the message is durable, at QoS 0 when it is on its way."""
        _check(publication, self._server.config.maximum_packet_size_bytes)
        if self._waiting >= WAITING_MAXIMUM:
            detail = f"{WAITING_MAXIMUM} messages are being published here; try again later"
            raise ProblemError(503, "busy", detail)
        answered: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()

        def take(refusal: Refusal | None) -> None:
            if not answered.done():
                answered.set_result(refusal)

        self._waiting += 1
        try:
            told = Publication(
                publication.topic_name,
                publication.payload,
                publication.qos,
                publication.retain,
                publication.properties,
                answered=take,
            )
            self._server.stages.entrance.publish(told)
            self._server.ask_turn()
            async with asyncio.timeout(ANSWER_WITHIN_S):
                refusal = await answered
        except TimeoutError:
            detail = f"not durable after {ANSWER_WITHIN_S} s; it may still become so"
            raise ProblemError(504, "timeout", detail) from None
        finally:
            self._waiting -= 1
        if refusal is not None:
            detail = f"refused: {refusal.value}; it goes on when retention has made room"
            raise ProblemError(503, "refused", detail)


def _check(publication: Publication, packet_bytes_maximum: int) -> None:
    topic_name = publication.topic_name
    if not is_valid_topic_name(topic_name.encode(errors="replace")) or topic_name.startswith("$"):
        detail = "it is empty, has a wildcard or a NUL, or begins with $"
        raise bad_request(f"topic_name {topic_name!r} cannot be published to: {detail}")
    fields = {
        "packet_identifier": 1 if publication.qos else 0,
        "qos": publication.qos,
        "retain": publication.retain,
        "topic_name": topic_name,
        "payload": publication.payload,
        "properties": publication.properties,
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


def _payload(body: Any) -> bytes:
    if "payload" in body and "payload_base64" in body:
        raise bad_request("payload and payload_base64 are two payloads; give one")
    if "payload_base64" in body:
        return _bytes(body["payload_base64"], "payload_base64")
    text: str = body.get("payload", "")
    return text.encode(errors="replace")


def _properties(given: dict[str, Any]) -> dict[str, Any]:
    properties = dict(given)
    if "correlation_data" in properties:
        properties["correlation_data"] = _bytes(properties["correlation_data"], "correlation_data")
    if "user_property" in properties:
        for pair in properties["user_property"]:
            if len(pair) != 2:
                raise bad_request("each user_property is a pair of a name and a value")
        properties["user_property"] = [(name, value) for name, value in properties["user_property"]]
    return properties


def _bytes(word: str, name: str) -> bytes:
    try:
        return b64decode(word, validate=True)
    except ValueError as error:
        raise bad_request(f"{name} is not base64: {error}") from error
