"""Drives gmqtt: MQTT 3.1.1 and 5."""

import asyncio
import logging
from typing import Any

import gmqtt
from gmqtt.storage import PersistentStorage

from tests.interop.clients.lines import Tell, serve

GMQTT_NAMES = {
    "payload_format_indicator": "payload_format_id",
    "user_properties": "user_property",
    "subscription_identifiers": "subscription_identifier",
}
REPEATED = ("user_property", "subscription_identifier")


class Unacknowledged(PersistentStorage):
    """What gmqtt keeps until the broker has answered; it tells nobody else."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.pushed: asyncio.Future[dict[str, Any]] | None = None

    def push_message(self, mid: int, raw_package: bytes) -> None:
        super().push_message(mid, raw_package)
        if mid not in self.waiting:  # PUBREL comes under the same number.
            self.pushed = asyncio.get_running_loop().create_future()
            self.waiting[mid] = self.pushed

    def remove_message_by_mid(self, mid: int) -> None:
        super().remove_message_by_mid(mid)
        if mid in self.waiting:
            self.waiting.pop(mid).set_result({})


class GmqttClient:
    """One client; it connects again by itself."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._connected: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._unacknowledged = Unacknowledged()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def connect(self, **options: Any) -> dict[str, Any]:
        names = ("session_expiry_interval", "receive_maximum", "topic_alias_maximum")
        properties = {name: options[name] for name in names if options[name] is not None}
        self._client = gmqtt.Client(
            options["client_identifier"],
            clean_session=options["clean_start"],
            will_message=_will(options["will"]),
            persistent_storage=self._unacknowledged,
            **(properties if options["version"] == 5 else {}),
        )
        retries = -1 if options["reconnects"] else 0
        self._client.set_config({"reconnect_delay": 0.2, "reconnect_retries": retries})
        self._client.on_connect = self._on_connect
        self._client.on_message = self._on_message
        self._client.on_subscribe = self._on_subscribe
        self._client.on_unsubscribe = self._on_unsubscribe
        await self._client.connect(
            "127.0.0.1",
            options["port"],
            keepalive=options["keep_alive_s"],
            version=options["version"],
        )
        return await self._connected

    async def subscribe(
        self, topic_filter: str, qos: int, identifier: int | None
    ) -> dict[str, Any]:
        wanted = gmqtt.Subscription(topic_filter, qos=qos, subscription_identifier=identifier)
        return await self._answer(self._client.subscribe(wanted))

    async def unsubscribe(self, topic_filter: str) -> dict[str, Any]:
        return await self._answer(self._client.unsubscribe(topic_filter))

    async def publish(
        self, topic: str, payload: bytes, qos: int, retain: bool, properties: dict[str, Any]
    ) -> dict[str, Any]:
        values = _to_gmqtt(properties)
        self._client.publish(topic, payload, qos, retain, **values)
        if qos == 0:
            return {}
        assert self._unacknowledged.pushed is not None
        return await self._unacknowledged.pushed

    async def disconnect(self, reason_code: int) -> dict[str, Any]:
        await self._client.disconnect(reason_code=reason_code)
        return {}

    def _on_connect(
        self, _client: Any, session_present: int, reason_code: int, properties: dict[str, Any]
    ) -> None:
        answer = {"session_present": bool(session_present), "reason_code": reason_code}
        if not self._connected.done():  # Later ones are reconnections.
            self._connected.set_result({**answer, "properties": _from_gmqtt(properties)})

    async def _on_message(
        self, _client: Any, topic: str, payload: bytes, qos: int, properties: dict[str, Any]
    ) -> int:
        retain = bool(properties.pop("retain"))
        self._tell(
            "message",
            topic=topic,
            payload=payload,
            qos=qos,
            retain=retain,
            properties=_from_gmqtt(properties),
        )
        return 0

    def _on_subscribe(self, _client: Any, number: int, codes: Any, _properties: Any) -> None:
        self._waiting.pop(number).set_result({"reason_codes": list(codes)})

    def _on_unsubscribe(self, _client: Any, number: int, codes: Any) -> None:
        self._waiting.pop(number).set_result({"reason_codes": list(codes)})

    async def _answer(self, number: int) -> dict[str, Any]:
        self._waiting[number] = asyncio.get_running_loop().create_future()
        return await self._waiting[number]


def _will(will: dict[str, Any] | None) -> gmqtt.Message | None:
    if will is None:
        return None
    properties = _to_gmqtt(will["properties"])
    return gmqtt.Message(will["topic"], will["payload"], will["qos"], will["retain"], **properties)


def _to_gmqtt(properties: dict[str, Any]) -> dict[str, Any]:
    values = {GMQTT_NAMES.get(name, name): value for name, value in properties.items()}
    if "user_property" in values:
        values["user_property"] = [tuple(pair) for pair in values["user_property"]]
    return values


def _from_gmqtt(properties: dict[str, Any]) -> dict[str, Any]:
    names = {name: ours for ours, name in GMQTT_NAMES.items()}
    return {
        names.get(name, name): value if name in REPEATED else value[0]
        for name, value in properties.items()
        if isinstance(value, list)
    }


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    serve(GmqttClient)
