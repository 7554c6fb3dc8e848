"""Drives the Paho client: MQTT 3.1, 3.1.1 and 5, over TCP and WebSocket."""

import asyncio
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.interop.clients.lines import Tell, serve
from tests.interop.clients.paho_properties import connect_properties, from_paho, to_paho

TRANSPORTS = {"tcp": "tcp", "ws": "websockets"}
AGAIN_AFTER_S = 0.2


class PahoClient:
    """One client; Paho's own thread does its network, and connects again by itself."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._version = 5
        self._connected: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._ended = asyncio.Event()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._early: dict[int, dict[str, Any]] = {}

    async def connect(self, **options: Any) -> dict[str, Any]:
        self._version = options["version"]
        client = self._client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=options["client_identifier"],
            clean_session=None if self._version == 5 else options["clean_start"],
            protocol=mqtt.MQTTProtocolVersion(self._version),
            transport=TRANSPORTS[options["transport"]],
            reconnect_on_failure=options["reconnects"],
        )
        client.reconnect_delay_set(AGAIN_AFTER_S, AGAIN_AFTER_S)
        client.on_connect = self._on_connect
        client.on_disconnect = lambda *_: self._loop.call_soon_threadsafe(self._ended.set)
        client.on_message = self._on_message
        client.on_publish = lambda _c, _d, identifier, *_: self._on_answer(identifier, {})
        client.on_subscribe = self._on_reason_codes
        client.on_unsubscribe = self._on_reason_codes
        if (will := options["will"]) is not None:
            properties = to_paho(PacketTypes.WILLMESSAGE, will["properties"])
            client.will_set(will["topic"], will["payload"], will["qos"], will["retain"], properties)
        more: dict[str, Any] = {}
        if self._version == 5:
            # Paho's `True` would start clean at each connection, the later ones included.
            first = mqtt.MQTT_CLEAN_START_FIRST_ONLY
            more["clean_start"] = first if options["clean_start"] else False
            more["properties"] = connect_properties(options)
        client.ws_set_options(path="/mqtt")
        client.connect("127.0.0.1", options["port"], options["keep_alive_s"], **more)
        client.loop_start()
        return await self._connected

    async def subscribe(
        self, topic_filter: str, qos: int, identifier: int | None
    ) -> dict[str, Any]:
        if self._version < 5:
            _, number = self._client.subscribe(topic_filter, qos)
        else:
            values = {} if identifier is None else {"subscription_identifiers": identifier}
            properties = to_paho(PacketTypes.SUBSCRIBE, values)
            wanted = [(topic_filter, SubscribeOptions(qos=qos))]
            _, number = self._client.subscribe(wanted, properties=properties)
        return await self._answer(number)

    async def unsubscribe(self, topic_filter: str) -> dict[str, Any]:
        _, number = self._client.unsubscribe(topic_filter)
        return await self._answer(number)

    async def publish(
        self, topic: str, payload: bytes, qos: int, retain: bool, properties: dict[str, Any]
    ) -> dict[str, Any]:
        values = to_paho(PacketTypes.PUBLISH, properties)
        return await self._answer(self._client.publish(topic, payload, qos, retain, values).mid)

    async def disconnect(self, reason_code: int) -> dict[str, Any]:
        code = ReasonCode(PacketTypes.DISCONNECT, identifier=reason_code)
        self._client.disconnect(reasoncode=code if self._version == 5 else None)
        await self._ended.wait()
        self._client.loop_stop()
        return {}

    def _on_connect(self, _c: Any, _d: Any, flags: Any, reason_code: Any, properties: Any) -> None:
        answer = {"session_present": flags.session_present, "reason_code": reason_code.value}
        answer["properties"] = from_paho(properties)
        self._loop.call_soon_threadsafe(self._have_connected, answer)

    def _have_connected(self, answer: dict[str, Any]) -> None:
        if not self._connected.done():  # Later ones are reconnections.
            self._connected.set_result(answer)

    def _on_message(self, _c: Any, _d: Any, message: mqtt.MQTTMessage) -> None:
        self._tell(
            "message",
            topic=message.topic,
            payload=message.payload,
            qos=message.qos,
            retain=message.retain,
            properties=from_paho(message.properties),
        )

    def _on_reason_codes(self, _c: Any, _d: Any, identifier: int, codes: Any, _p: Any) -> None:
        self._on_answer(identifier, {"reason_codes": [code.value for code in codes]})

    def _on_answer(self, identifier: int, answer: dict[str, Any]) -> None:
        self._loop.call_soon_threadsafe(self._have_answer, identifier, answer)

    def _have_answer(self, identifier: int, answer: dict[str, Any]) -> None:
        if identifier in self._waiting:
            self._waiting.pop(identifier).set_result(answer)
        else:
            self._early[identifier] = answer

    async def _answer(self, identifier: int | None) -> dict[str, Any]:
        assert identifier is not None, "the client is not connected"
        if identifier in self._early:
            return self._early.pop(identifier)
        self._waiting[identifier] = self._loop.create_future()
        return await self._waiting[identifier]


if __name__ == "__main__":
    serve(PahoClient)
