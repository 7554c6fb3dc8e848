"""Producers and consumers of Pulsar's own client, in a process of their own: what they were told.
MQTT clients beside them publish on one topic that those consume, and subscribe to all.

Run as a program it produces and consumes until a line comes on standard input, then has everything
drained, and writes what it saw as one line of JSON. With `--drain` it takes what nobody has taken.
"""

import argparse
import json
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any, Final

import pulsar

from tests.crash.pulsar.mqtt_clients import Publisher, Subscriber

PRODUCED: Final = ("crash/a", "crash/b")
PUBLISHED: Final = "crash/mqtt"
"""What is sent here comes through the other door."""
TOPICS: Final = (*PRODUCED, PUBLISHED)
SUBSCRIPTIONS: Final = ("exclusive", "shared")
MQTT: Final = "mqtt"
"""What stands for a subscription where an MQTT client subscribes to the topic."""
COUNTED: Final = "counted"
"""A subscription that nobody takes from before the end."""
BATCH_MESSAGES: Final = 100
IN_FLIGHT_MAXIMUM: Final = 2_000
GIVEN_BACK_EVERY: Final = 50
"""On a Shared subscription each message with such a number is given back once."""
RECEIVE_MS: Final = 200
ACKNOWLEDGED_WITHIN_S: Final = 3.0
"""Acknowledgements that nobody asks an answer for are sent within this time."""


@dataclass
class Seen:
    """What the clients saw, by topic; deliveries by topic and subscription."""

    sent: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOPICS, 0))
    """Messages were numbered from 0 up to, without, this."""
    receipts: dict[str, list[int]] = field(default_factory=lambda: {it: [] for it in TOPICS})
    delivered: dict[str, list[int]] = field(default_factory=dict)
    """In the order in which they came, those of all consumers of a subscription together."""
    failed: list[str] = field(default_factory=list)
    """Sends that the library gave up."""


class Clients:
    """One client with a producer on each topic and consumers on each subscription."""

    def __init__(self, port: int, mqtt_port: int, random: Random, drained_within_s: float) -> None:
        quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        # What is not answered in this time fails, and a broker that starts again takes seconds.
        self._client = pulsar.Client(
            f"pulsar://127.0.0.1:{port}", logger=quiet, operation_timeout_seconds=60
        )
        self._random = random
        self._drained_within_s = drained_within_s
        self._ended = threading.Event()
        self._drained = threading.Event()
        self._room = threading.Semaphore(IN_FLIGHT_MAXIMUM)
        self._unacknowledged = threading.Semaphore(IN_FLIGHT_MAXIMUM)
        self.seen = Seen()
        self._threads = [self._consumer(*each) for each in self._subscriptions()]
        self._threads += [threading.Thread(target=self._produce, args=(it,)) for it in PRODUCED]
        self._threads.append(threading.Thread(target=self._publish))
        self._subscriber = Subscriber(mqtt_port, TOPICS, self._came)
        self._publisher = Publisher(mqtt_port, PUBLISHED, self._acknowledged)

    def run(self) -> None:
        """Works until a line comes, and until all that has a receipt has come."""
        for thread in self._threads:
            thread.start()
        sys.stdin.readline()
        self._ended.set()
        self._wait_for_all()
        time.sleep(ACKNOWLEDGED_WITHIN_S)
        self._drained.set()
        for thread in self._threads:
            thread.join()
        self._publisher.close()
        self._subscriber.close()
        self._client.close()

    def _subscriptions(self) -> list[tuple[str, str]]:
        for topic in TOPICS:
            # It is there from the first message on.
            self._subscribe(topic, COUNTED, pulsar.ConsumerType.Shared).close()
        one = [(topic, "exclusive") for topic in TOPICS]
        return one + [(topic, "shared") for topic in TOPICS for _ in range(2)]

    def _subscribe(self, topic: str, subscription: str, kind: Any) -> Any:
        return self._client.subscribe(
            topic.replace("/", "%2F"),
            subscription,
            consumer_type=kind,
            initial_position=pulsar.InitialPosition.Earliest,
            negative_ack_redelivery_delay_ms=100,
        )

    def _consumer(self, topic: str, subscription: str) -> threading.Thread:
        is_shared = subscription == "shared"
        kind = pulsar.ConsumerType.Shared if is_shared else pulsar.ConsumerType.Exclusive
        consumer = self._subscribe(topic, subscription, kind)
        seen = self.seen.delivered.setdefault(f"{topic} {subscription}", [])
        return threading.Thread(target=self._consume, args=(consumer, seen, is_shared))

    def _produce(self, topic: str) -> None:
        producer = self._client.create_producer(
            topic.replace("/", "%2F"),
            send_timeout_millis=0,
            batching_enabled=True,
            batching_max_messages=BATCH_MESSAGES,
            batching_max_publish_delay_ms=5,
            block_if_queue_full=True,
        )
        while not self._ended.is_set():
            self._room.acquire()
            number = self.seen.sent[topic]
            self.seen.sent[topic] += 1
            told = self._told(topic, number)
            producer.send_async(b"%d" % number, told)
            if self._random.random() < 1 / BATCH_MESSAGES:
                time.sleep(self._random.uniform(0, 0.02))
        producer.flush()

    def _publish(self) -> None:
        while not self._ended.is_set():
            self._unacknowledged.acquire()
            number = self.seen.sent[PUBLISHED]
            self.seen.sent[PUBLISHED] += 1
            self._publisher.publish(number)
            if self._random.random() < 1 / BATCH_MESSAGES:
                time.sleep(self._random.uniform(0, 0.02))

    def _acknowledged(self, number: int) -> None:
        self._unacknowledged.release()
        self.seen.receipts[PUBLISHED].append(number)

    def _came(self, topic: str, number: int) -> None:
        self.seen.delivered.setdefault(f"{topic} {MQTT}", []).append(number)

    def _told(self, topic: str, number: int) -> Any:
        def told(result: Any, _message_id: Any) -> None:
            self._room.release()
            if result == pulsar.Result.Ok:
                self.seen.receipts[topic].append(number)
            else:
                self.seen.failed.append(f"{topic} {number}: {result}")

        return told

    def _consume(self, consumer: Any, seen: list[int], is_shared: bool) -> None:
        given_back: set[int] = set()
        while not self._drained.is_set():
            try:
                message = consumer.receive(RECEIVE_MS)
            except pulsar.Timeout:
                continue
            number = int(message.data())
            if is_shared and number % GIVEN_BACK_EVERY == 0 and number not in given_back:
                given_back.add(number)
                consumer.negative_acknowledge(message)
                continue
            seen.append(number)
            if is_shared or number % 2:
                consumer.acknowledge(message)
            else:
                consumer.acknowledge_cumulative(message)

    def _wait_for_all(self) -> None:
        """Until all that has a receipt has come, or nothing came for too long: whoever is behind
        after many kills takes its time."""
        before, came_at = -1, time.monotonic()
        while True:
            began = time.monotonic()
            if self._has_all() or began - came_at > self._drained_within_s:
                return
            count = sum(map(len, self.seen.delivered.values()))
            if count > before:
                before, came_at = count, began
            # Looking keeps the interpreter from those who take what comes.
            time.sleep(max(0.1, 10 * (time.monotonic() - began)))

    def _has_all(self) -> bool:
        def have(topic: str, subscription: str) -> bool:
            wanted = self.seen.receipts[topic]
            came = self.seen.delivered.get(f"{topic} {subscription}", [])
            return len(came) >= len(wanted) and set(wanted) <= set(came)

        told = sum(map(len, self.seen.receipts.values())) + len(self.seen.failed)
        is_told = told == sum(self.seen.sent.values())
        return is_told and all(
            have(one, other) for one in TOPICS for other in (*SUBSCRIPTIONS, MQTT)
        )


def drain(port: int) -> dict[str, list[int]]:
    """All that the subscription has on each topic from which nobody has taken."""
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(f"pulsar://127.0.0.1:{port}", logger=quiet)
    found: dict[str, list[int]] = {it: [] for it in TOPICS}
    for topic in TOPICS:
        name = topic.replace("/", "%2F")
        consumer = client.subscribe(name, COUNTED, consumer_type=pulsar.ConsumerType.Shared)
        while True:
            try:
                message = consumer.receive(10 * RECEIVE_MS)
            except pulsar.Timeout:
                break
            found[topic].append(int(message.data()))
            consumer.acknowledge(message)
    client.close()
    return found


def main() -> None:
    """Runs until a line comes, or takes what is left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--mqtt-port", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drained-within", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--drain", action="store_true", help="take what nobody has taken")
    options = parser.parse_args()
    # The library's core writes to standard output itself.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if options.drain:
        answers.write(json.dumps(drain(options.port)))
        return
    clients = Clients(options.port, options.mqtt_port, Random(options.seed), options.drained_within)
    answers.write("ready\n")
    answers.flush()
    clients.run()
    answers.write(json.dumps(asdict(clients.seen)))


if __name__ == "__main__":
    main()
