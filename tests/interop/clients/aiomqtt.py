"""Drives aiomqtt: MQTT 3.1, 3.1.1 and 5."""

import asyncio
import contextlib
from contextlib import AsyncExitStack
from typing import Any

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.interop.clients.lines import Tell, serve
from tests.interop.clients.paho_properties import connect_properties, from_paho, to_paho

WITHIN_S = 60.0
TRANSPORTS = {"tcp": "tcp", "ws": "websockets"}


class AiomqttClient:
    """One client. It lives in a context and has a stream of messages, which a task reads."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._entered = AsyncExitStack()
        self._version = 5

    async def connect(self, **options: Any) -> dict[str, Any]:
        self._version = options["version"]
        more: dict[str, Any] = {}
        if self._version == 5:
            more["clean_start"] = options["clean_start"]
            more["properties"] = connect_properties(options)
        else:
            more["clean_session"] = options["clean_start"]
        if (will := options["will"]) is not None:
            properties = to_paho(PacketTypes.WILLMESSAGE, will["properties"])
            more["will"] = aiomqtt.Will(
                will["topic"], will["payload"], will["qos"], will["retain"], properties
            )
        self._client = aiomqtt.Client(
            "127.0.0.1",
            options["port"],
            identifier=options["client_identifier"],
            protocol=aiomqtt.ProtocolVersion(self._version),
            transport=TRANSPORTS[options["transport"]],
            websocket_path="/mqtt",
            keepalive=options["keep_alive_s"],
            timeout=WITHIN_S,
            **more,
        )
        await self._entered.enter_async_context(self._client)
        tasks = await self._entered.enter_async_context(asyncio.TaskGroup())
        self._reading = tasks.create_task(self._read())
        return {"session_present": None, "reason_code": 0, "properties": {}}

    async def _read(self) -> None:
        with contextlib.suppress(aiomqtt.MqttError):  # The connection has ended.
            async for message in self._client.messages:
                self._tell(
                    "message",
                    topic=str(message.topic),
                    payload=message.payload,
                    qos=message.qos,
                    retain=message.retain,
                    properties=from_paho(message.properties),
                )

    async def subscribe(
        self, topic_filter: str, qos: int, identifier: int | None
    ) -> dict[str, Any]:
        if self._version < 5:
            codes = await self._client.subscribe(topic_filter, qos)
        else:
            values = {} if identifier is None else {"subscription_identifiers": identifier}
            properties = to_paho(PacketTypes.SUBSCRIBE, values)
            options = SubscribeOptions(qos=qos)
            codes = await self._client.subscribe(
                topic_filter, options=options, properties=properties
            )
        return {"reason_codes": [getattr(code, "value", code) for code in codes]}

    async def unsubscribe(self, topic_filter: str) -> dict[str, Any]:
        await self._client.unsubscribe(topic_filter)
        return {}

    async def publish(
        self, topic: str, payload: bytes, qos: int, retain: bool, properties: dict[str, Any]
    ) -> dict[str, Any]:
        values = to_paho(PacketTypes.PUBLISH, properties)
        await self._client.publish(topic, payload, qos, retain, values)
        return {}

    async def disconnect(self, reason_code: int) -> dict[str, Any]:
        assert reason_code == 0, "aiomqtt has no reason codes"
        self._reading.cancel()
        await self._entered.aclose()
        return {}


if __name__ == "__main__":
    serve(AiomqttClient)
