"""Drives Pulsar's own client for Python, whose core is the one in C++.

It has a process of its own: it keeps the largest message that a broker allows for the whole
process, whichever broker that was. Its calls wait, so that each runs in a thread.
"""

import asyncio
import base64
import inspect
import logging
import os
import re
import sys
import threading
from typing import Any

import pulsar

from tests.interop.clients.lines import Tell, serve

log = logging.getLogger("pulsar")


class PulsarClient:
    """One client, with its producers and consumers by the names that the test gives them."""

    def __init__(self, _tell: Tell) -> None:
        self._producers: dict[str, pulsar.Producer] = {}
        self._consumers: dict[str, pulsar.Consumer] = {}
        self._received: list[pulsar.Message] = []
        """All of them: the test names one by its place here."""

    async def connect(
        self, address: str, user: list[str] | None, operation_timeout_s: int
    ) -> dict[str, Any]:
        """Nothing is sent yet; a client connects when it has something to do."""
        authentication = None if user is None else pulsar.AuthenticationBasic(*user)
        self._client = pulsar.Client(
            f"pulsar://{address}",
            authentication=authentication,
            operation_timeout_seconds=operation_timeout_s,
            logger=log,
        )
        return {}

    async def produce(self, producer: str, topic: str, **options: Any) -> dict[str, Any]:
        """Makes a producer."""
        if "compression" in options:
            chosen = options.pop("compression")
            options["compression_type"] = getattr(pulsar.CompressionType, chosen)
        made = await asyncio.to_thread(self._client.create_producer, topic, **options)
        self._producers[producer] = made
        return {"name": made.producer_name(), "last_sequence_id": made.last_sequence_id()}

    async def send(self, producer: str, payload: bytes, **options: Any) -> dict[str, Any]:
        """Sends a message, and waits for its receipt."""
        sent = await asyncio.to_thread(self._producers[producer].send, payload, **options)
        return {"message_id": _told(sent)}

    async def send_many(self, producer: str, payloads: list[str], **options: Any) -> dict[str, Any]:
        """Sends messages as fast as they go, and waits for all receipts."""
        return await asyncio.to_thread(self._send_many, producer, payloads, options)

    def _send_many(
        self, producer: str, payloads: list[str], options: dict[str, Any]
    ) -> dict[str, Any]:
        outcomes: list[Any] = [None] * len(payloads)
        left = threading.Semaphore(0)

        def sent(place: int, result: pulsar.Result, message_id: pulsar.MessageId) -> None:
            outcomes[place] = _told(message_id) if result == pulsar.Result.Ok else str(result)
            left.release()

        for place, payload in enumerate(payloads):
            self._producers[producer].send_async(
                base64.b64decode(payload),
                lambda result, message_id, place=place: sent(place, result, message_id),
                **options,
            )
        self._producers[producer].flush()
        for _ in payloads:
            left.acquire()
        return {"message_ids": outcomes}

    async def subscribe(
        self, consumer: str, topic: Any, subscription: str, **options: Any
    ) -> dict[str, Any]:
        """Makes a consumer."""
        kind = options.pop("kind", "Exclusive")
        position = options.pop("position", "Latest")
        if isinstance(topic, dict):
            topic = re.compile(topic["pattern"])
        self._consumers[consumer] = await asyncio.to_thread(
            self._client.subscribe,
            topic,
            subscription,
            consumer_type=getattr(pulsar.ConsumerType, kind),
            initial_position=getattr(pulsar.InitialPosition, position),
            **options,
        )
        return {}

    async def receive(self, consumer: str, timeout_ms: int | None) -> dict[str, Any]:
        """The next message; an error of the library if none comes in time."""
        within = () if timeout_ms is None else (timeout_ms,)
        taken = await asyncio.to_thread(self._consumers[consumer].receive, *within)
        self._received.append(taken)
        return {
            "place": len(self._received) - 1,
            "payload": taken.data(),
            "message_id": _told(taken.message_id()),
            "topic": taken.topic_name(),
            "properties": taken.properties(),
            "key": taken.partition_key(),
            "ordering_key": taken.ordering_key(),
            "event_time_ms": taken.event_timestamp(),
            "publish_time_ms": taken.publish_timestamp(),
            "producer": taken.producer_name(),
            "redeliveries": taken.redelivery_count(),
        }

    async def acknowledge(self, consumer: str, place: int, up_to: bool) -> dict[str, Any]:
        """Acknowledges a message, or all up to it."""
        taken, by = self._received[place], self._consumers[consumer]
        await asyncio.to_thread(by.acknowledge_cumulative if up_to else by.acknowledge, taken)
        return {}

    async def give_back(self, consumer: str, place: int) -> dict[str, Any]:
        """Acknowledges a message negatively."""
        self._consumers[consumer].negative_acknowledge(self._received[place])
        return {}

    async def unsubscribe(self, consumer: str) -> dict[str, Any]:
        """Ends the consumer's subscription."""
        await asyncio.to_thread(self._consumers.pop(consumer).unsubscribe)
        return {}

    async def close_consumer(self, consumer: str) -> dict[str, Any]:
        """Ends a consumer."""
        await asyncio.to_thread(self._consumers.pop(consumer).close)
        return {}

    async def close_producer(self, producer: str) -> dict[str, Any]:
        """Ends a producer."""
        await asyncio.to_thread(self._producers.pop(producer).close)
        return {}

    async def sequence_id(self, producer: str) -> dict[str, Any]:
        """The sequence id of a producer's last message."""
        return {"sequence_id": self._producers[producer].last_sequence_id()}

    async def defaults(self) -> dict[str, Any]:
        """What a consumer's options are by default."""
        parameters = inspect.signature(pulsar.Client.subscribe).parameters.values()
        plain = (each for each in parameters if isinstance(each.default, int))
        return {each.name: each.default for each in plain}

    async def partitions(self, topic: str) -> dict[str, Any]:
        """The partitions of a topic, as topics."""
        return {"topics": await asyncio.to_thread(self._client.get_topic_partitions, topic)}

    async def disconnect(self) -> dict[str, Any]:
        """Ends the client and all that it has."""
        await asyncio.to_thread(self._client.close)
        return {}


def _told(message_id: pulsar.MessageId) -> list[int]:
    return [message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()]


if __name__ == "__main__":
    # The core writes to standard output itself, between the answers and into them.
    sys.stdout = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), 1)
    serve(PulsarClient)
