"""Drives Pulsar's own client for Java, by the commands that the driver of the Python one takes.

Usage: python -m tests.interop.clients.pulsar_java JAVA JARS PY4J_JAR
"""

import base64
import json
import sys
from pathlib import Path
from typing import Any

from tests.interop.clients.java import Java
from tests.interop.clients.lines import Tell, serve

NOT_IN_BATCH = -1
SCHEMA_VERSION_BYTES = 8


class PulsarJavaClient:
    """One client, with its producers and consumers by the names that the test gives them."""

    def __init__(self, java: Java, _tell: Tell) -> None:
        self._java = java
        self._pulsar = java.packages.org.apache.pulsar.client.api
        self._producers: dict[str, Any] = {}
        self._consumers: dict[str, Any] = {}
        self._received: list[Any] = []
        """All of them: the test names one by its place here."""

    async def connect(
        self, address: str, user: list[str] | None, operation_timeout_s: int
    ) -> dict[str, Any]:
        """Nothing is sent yet; a client connects when it has something to do."""
        builder = self._pulsar.PulsarClient.builder().serviceUrl(f"pulsar://{address}")
        builder = builder.operationTimeout(operation_timeout_s * 1_000, self._java.milliseconds)
        if user is not None:
            given = json.dumps({"userId": user[0], "password": user[1]})
            basic = "org.apache.pulsar.client.impl.auth.AuthenticationBasic"
            builder = builder.authentication(basic, given)
        self._client = await self._java.call(builder.build)
        return {}

    async def produce(
        self,
        producer: str,
        topic: str,
        *,
        compression: str | None = None,
        batching_enabled: bool = False,
        batching_max_messages: int = 1_000,
        batching_max_publish_delay_ms: int = 10,
    ) -> dict[str, Any]:
        """Makes a producer."""
        builder = self._client.newProducer().topic(topic).enableBatching(batching_enabled)
        if compression is not None:
            builder = builder.compressionType(self._pulsar.CompressionType.valueOf(compression))
        if batching_enabled:
            unit = self._java.milliseconds
            builder = builder.batchingMaxMessages(batching_max_messages)
            builder = builder.batchingMaxPublishDelay(batching_max_publish_delay_ms, unit)
        made = self._producers[producer] = await self._java.call(builder.create)
        return {"name": made.getProducerName(), "last_sequence_id": made.getLastSequenceId()}

    async def send(self, producer: str, payload: bytes, **options: Any) -> dict[str, Any]:
        """Sends a message, and waits for its receipt."""
        sent = await self._java.result(self._begin_send(producer, payload, **options))
        return {"message_id": _told(sent)}

    async def send_many(self, producer: str, payloads: list[str], **options: Any) -> dict[str, Any]:
        """Sends messages as fast as they go, and waits for all receipts."""
        sent = [
            self._begin_send(producer, base64.b64decode(payload), **options) for payload in payloads
        ]
        return {"message_ids": [_told(await self._java.result(each)) for each in sent]}

    def _begin_send(
        self,
        producer: str,
        payload: bytes,
        *,
        properties: dict[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        event_timestamp: int | None = None,
        is_null: bool = False,
        schema_version: int | None = None,
    ) -> Any:
        message = self._producers[producer].newMessage().value(None if is_null else payload)
        if schema_version is not None:
            # A producer with a schema is refused; its messages would say no more of it than this.
            told = schema_version.to_bytes(SCHEMA_VERSION_BYTES, "big")
            message.getMetadataBuilder().setSchemaVersion(told)
        for name, value in (properties or {}).items():
            message = message.property(name, value)
        if partition_key is not None:
            message = message.key(partition_key)
        if ordering_key is not None:
            message = message.orderingKey(ordering_key.encode())
        if event_timestamp is not None:
            message = message.eventTime(event_timestamp)
        return message.sendAsync()

    async def subscribe(
        self,
        consumer: str,
        topic: str,
        subscription: str,
        *,
        kind: str = "Exclusive",
        position: str = "Latest",
        negative_ack_redelivery_delay_ms: int = 60_000,
        unacked_messages_timeout_ms: int = 0,
        unacked_messages_tick_ms: int = 1_000,
    ) -> dict[str, Any]:
        """Makes a consumer."""
        unit = self._java.milliseconds
        topics = self._java.packages.java.util.ArrayList()
        topics.add(topic)
        builder = self._client.newConsumer().topics(topics).subscriptionName(subscription)
        builder = builder.subscriptionType(self._pulsar.SubscriptionType.valueOf(kind))
        positions = self._pulsar.SubscriptionInitialPosition
        builder = builder.subscriptionInitialPosition(positions.valueOf(position))
        builder = builder.negativeAckRedeliveryDelay(negative_ack_redelivery_delay_ms, unit)
        builder = builder.ackTimeout(unacked_messages_timeout_ms, unit)
        builder = builder.ackTimeoutTickTime(unacked_messages_tick_ms, unit)
        self._consumers[consumer] = await self._java.call(builder.subscribe)
        return {}

    async def receive(self, consumer: str, timeout_ms: int) -> dict[str, Any]:
        """The next message; an error if none comes in time."""
        by = self._consumers[consumer]
        taken = await self._java.call(by.receive, timeout_ms, self._java.milliseconds)
        if taken is None:
            raise TimeoutError("Timeout")
        self._received.append(taken)
        ordering_key = taken.getOrderingKey() or b""
        schema_version = taken.getSchemaVersion()
        return {
            "place": len(self._received) - 1,
            "payload": bytes(taken.getData() or b""),
            "message_id": _told(taken.getMessageId()),
            "topic": taken.getTopicName(),
            "properties": dict(taken.getProperties()),
            "key": taken.getKey() or "",
            "ordering_key": bytes(ordering_key).decode(),
            "event_time_ms": taken.getEventTime(),
            "publish_time_ms": taken.getPublishTime(),
            "producer": taken.getProducerName(),
            "redeliveries": taken.getRedeliveryCount(),
            "is_null": taken.getValue() is None,
            "schema_version": schema_version and int.from_bytes(bytes(schema_version), "big"),
        }

    async def acknowledge(self, consumer: str, place: int, up_to: bool) -> dict[str, Any]:
        """Acknowledges a message, or all up to it."""
        taken, by = self._received[place], self._consumers[consumer]
        await self._java.call(by.acknowledgeCumulative if up_to else by.acknowledge, taken)
        return {}

    async def give_back(self, consumer: str, place: int) -> dict[str, Any]:
        """Acknowledges a message negatively."""
        self._consumers[consumer].negativeAcknowledge(self._received[place])
        return {}

    async def close_producer(self, producer: str) -> dict[str, Any]:
        """Ends a producer."""
        await self._java.call(self._producers.pop(producer).close)
        return {}

    async def unsubscribe(self, consumer: str) -> dict[str, Any]:
        """Ends the consumer's subscription."""
        await self._java.call(self._consumers.pop(consumer).unsubscribe)
        return {}

    async def close_consumer(self, consumer: str) -> dict[str, Any]:
        """Ends a consumer."""
        await self._java.call(self._consumers.pop(consumer).close)
        return {}

    async def disconnect(self) -> dict[str, Any]:
        """Ends the client and all that it has."""
        for each in (*self._producers.values(), *self._consumers.values()):
            await self._java.call(each.close)
        # Its threads end by themselves, two seconds after the last work.
        self._client.closeAsync()
        return {}


def _told(message_id: Any) -> list[int]:
    in_batch = message_id.getClass().getSimpleName() == "BatchMessageIdImpl"
    index = message_id.getBatchIndex() if in_batch else NOT_IN_BATCH
    return [message_id.getLedgerId(), message_id.getEntryId(), index]


def main() -> None:
    """The virtual machine is there before the first command is read."""
    java = Java(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
    serve(lambda tell: PulsarJavaClient(java, tell))


if __name__ == "__main__":
    main()
