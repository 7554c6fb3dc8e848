"""Drives the HiveMQ MQTT client for Java: MQTT 3.1.1 and 5.

Usage: python -m tests.interop.clients.hivemq JAVA JARS PY4J_JAR
"""

import sys
import threading
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError

from tests.interop.clients.java import Java
from tests.interop.clients.lines import Client, Tell, serve

RECONNECT_MS = 200


class HivemqClient:
    """One client; it connects again by itself."""

    def __init__(self, java: Java, tell: Tell) -> None:
        self._java = java
        self._mqtt = java.packages.com.hivemq.client.mqtt
        self._tell = tell
        self._version = 5

    async def connect(self, **options: Any) -> dict[str, Any]:
        self._version = options["version"]
        builder = self._mqtt.MqttClient.builder()
        builder = builder.identifier(options["client_identifier"]).serverHost("127.0.0.1")
        builder = builder.serverPort(options["port"])
        if options["reconnects"]:
            unit = self._java.milliseconds
            reconnect = builder.automaticReconnect()
            reconnect = reconnect.initialDelay(RECONNECT_MS, unit).maxDelay(RECONNECT_MS, unit)
            builder = reconnect.applyAutomaticReconnect()
        builder = builder.useMqttVersion5() if self._version == 5 else builder.useMqttVersion3()
        self._client = builder.buildAsync()
        every = self._mqtt.MqttGlobalPublishFilter.ALL
        publishes = self._client.toBlocking().publishes(every)
        threading.Thread(target=self._read, args=(publishes,), daemon=True).start()
        connack = await self._java.result(self._connect_with(options).send())
        return {
            "session_present": connack.isSessionPresent(),
            "reason_code": self._code(connack),
            "properties": self._connack_properties(connack),
        }

    def _connect_with(self, options: dict[str, Any]) -> Any:
        connect = self._client.connectWith().keepAlive(options["keep_alive_s"])
        if (will := options["will"]) is not None:
            connect = self._publish(connect.willPublish(), **will).applyWillPublish()
        if self._version == 3 or self._version == 4:
            return connect.cleanSession(options["clean_start"])
        connect = connect.cleanStart(options["clean_start"])
        if (interval := options["session_expiry_interval"]) is not None:
            connect = connect.sessionExpiryInterval(interval)
        restrictions = connect.restrictions()
        if (maximum := options["receive_maximum"]) is not None:
            restrictions = restrictions.receiveMaximum(maximum)
        if (maximum := options["topic_alias_maximum"]) is not None:
            restrictions = restrictions.topicAliasMaximum(maximum)
        return restrictions.applyRestrictions()

    def _connack_properties(self, connack: Any) -> dict[str, Any]:
        if self._version < 5:
            return {}
        return {"topic_alias_maximum": connack.getRestrictions().getTopicAliasMaximum()}

    def _code(self, packet: Any) -> int:
        code = packet.getReasonCode() if self._version == 5 else packet.getReturnCode()
        return int(code.getCode())

    def _read(self, publishes: Any) -> None:
        while True:
            try:
                message = publishes.receive()
            except Py4JError:
                return
            self._tell(
                "message",
                topic=message.getTopic().toString(),
                payload=message.getPayloadAsBytes(),
                qos=message.getQos().getCode(),
                retain=message.isRetain(),
                properties=_properties_of(message) if self._version == 5 else {},
            )

    async def subscribe(
        self, topic_filter: str, qos: int, identifier: int | None
    ) -> dict[str, Any]:
        assert identifier is None, "HiveMQ's client chooses the identifiers itself"
        level = self._mqtt.datatypes.MqttQos.fromCode(qos)
        future = self._client.subscribeWith().topicFilter(topic_filter).qos(level).send()
        suback = await self._java.result(future)
        codes = suback.getReasonCodes() if self._version == 5 else suback.getReturnCodes()
        return {"reason_codes": [code.getCode() for code in codes]}

    async def unsubscribe(self, topic_filter: str) -> dict[str, Any]:
        await self._java.result(self._client.unsubscribeWith().topicFilter(topic_filter).send())
        return {}

    async def publish(self, **message: Any) -> dict[str, Any]:
        await self._java.result(self._publish(self._client.publishWith(), **message).send())
        return {}

    def _publish(
        self,
        publish: Any,
        topic: str,
        payload: bytes,
        qos: int,
        retain: bool,
        properties: dict[str, Any],
    ) -> Any:
        level = self._mqtt.datatypes.MqttQos.fromCode(qos)
        publish = publish.topic(topic).payload(payload).qos(level).retain(retain)
        if (indicator := properties.get("payload_format_indicator")) is not None:
            indicators = self._mqtt.mqtt5.message.publish.Mqtt5PayloadFormatIndicator
            publish = publish.payloadFormatIndicator(indicators.fromCode(indicator))
        if (interval := properties.get("message_expiry_interval")) is not None:
            publish = publish.messageExpiryInterval(interval)
        if (content_type := properties.get("content_type")) is not None:
            publish = publish.contentType(content_type)
        if (response_topic := properties.get("response_topic")) is not None:
            publish = publish.responseTopic(response_topic)
        if (correlation_data := properties.get("correlation_data")) is not None:
            publish = publish.correlationData(correlation_data)
        if pairs := properties.get("user_properties"):
            added = publish.userProperties()
            for name, value in pairs:
                added = added.add(name, value)
            publish = added.applyUserProperties()
        return publish

    async def disconnect(self, reason_code: int) -> dict[str, Any]:
        if self._version < 5:
            await self._java.result(self._client.disconnect())
        else:
            codes = self._mqtt.mqtt5.message.disconnect.Mqtt5DisconnectReasonCode
            code = codes.fromCode(reason_code)
            await self._java.result(self._client.disconnectWith().reasonCode(code).send())
        return {}


def _properties_of(message: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if (indicator := message.getPayloadFormatIndicator()).isPresent():
        values["payload_format_indicator"] = indicator.get().getCode()
    if (interval := message.getMessageExpiryInterval()).isPresent():
        values["message_expiry_interval"] = interval.getAsLong()
    if (content_type := message.getContentType()).isPresent():
        values["content_type"] = content_type.get().toString()
    if (response_topic := message.getResponseTopic()).isPresent():
        values["response_topic"] = response_topic.get().toString()
    if (data := message.getCorrelationData()).isPresent():
        buffer = data.get()
        values["correlation_data"] = bytes(buffer.get(at) & 0xFF for at in range(buffer.limit()))
    values["user_properties"] = [
        (pair.getName().toString(), pair.getValue().toString())
        for pair in message.getUserProperties().asList()
    ]
    return values


def main() -> None:
    """The virtual machine is there before the first command is read."""
    java = Java(sys.argv[1], Path(sys.argv[2]), sys.argv[3])

    def make_client(tell: Tell) -> Client:
        return HivemqClient(java, tell)

    serve(make_client)


if __name__ == "__main__":
    main()
