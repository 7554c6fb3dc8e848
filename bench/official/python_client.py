"""The official Python client: a producer and then a consumer, or a producer alone.

Run as a program: it tells with a line where each measured part begins and ends, which has the
number of messages so far, and in the end how long sends took, in microseconds.
"""

import argparse
import json
import os
import time
from typing import IO, Any, Final

import pulsar

TOPIC: Final = "persistent://public/default/bench"
SUBSCRIPTION: Final = "drained"
WINDOW: Final = 20_000
BATCH_MESSAGES: Final = 1_000
ACKNOWLEDGED_TOGETHER: Final = 100
"""Messages of an Exclusive subscription that one cumulative acknowledgement is for."""


def send_each(client: Any, payload: bytes, warm_up_s: float, seconds: float, tell: IO[str]) -> None:
    """Each message after the receipt of the one before."""
    producer = client.create_producer(TOPIC)
    _send_until(producer, payload, time.monotonic() + warm_up_s)
    print(0, file=tell, flush=True)
    took_us = sorted(_send_until(producer, payload, time.monotonic() + seconds))
    print(len(took_us), file=tell, flush=True)
    last = len(took_us) - 1
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "maximum": 1.0}
    quantiles = {f"latency_{name}_us": took_us[int(last * share)] for name, share in shares.items()}
    print(json.dumps(quantiles), file=tell, flush=True)


def _send_until(producer: Any, payload: bytes, until_s: float) -> list[float]:
    took_us = []
    began_s = time.monotonic()
    while began_s < until_s:
        producer.send(payload)
        ended_s = time.monotonic()
        took_us.append((ended_s - began_s) * 1e6)
        began_s = ended_s
    return took_us


def send_batches_and_drain(
    client: Any, payload: bytes, warm_up_s: float, seconds: float, tell: IO[str]
) -> None:
    """Batches as fast as they go, which a consumer that comes later takes in order."""
    _subscribed(client).close()
    producer = client.create_producer(
        TOPIC,
        max_pending_messages=WINDOW,
        block_if_queue_full=True,
        batching_enabled=True,
        batching_max_messages=BATCH_MESSAGES,
    )
    before = _send_batches_until(producer, payload, time.monotonic() + warm_up_s)
    print(0, file=tell, flush=True)
    sent = _send_batches_until(producer, payload, time.monotonic() + seconds)
    print(sent, file=tell, flush=True)
    _drain(_subscribed(client), before + sent, tell)


def _subscribed(client: Any) -> Any:
    return client.subscribe(TOPIC, SUBSCRIPTION, initial_position=pulsar.InitialPosition.Earliest)


def _send_batches_until(producer: Any, payload: bytes, until_s: float) -> int:
    """Returns how many have been sent and answered; the drain shows that each was stored.

    A callback of our own would take the interpreter's lock for each receipt, and a fifth of the
    rate would be left."""
    sent = 0
    while time.monotonic() < until_s:
        for _ in range(BATCH_MESSAGES):
            producer.send_async(payload, None)
        sent += BATCH_MESSAGES
    producer.flush()
    return sent


def _drain(consumer: Any, messages: int, tell: IO[str]) -> None:
    print(0, file=tell, flush=True)
    for number in range(1, messages + 1):
        message = consumer.receive()
        if number % ACKNOWLEDGED_TOGETHER == 0:
            consumer.acknowledge_cumulative(message)
    print(messages, file=tell, flush=True)


LOADS: Final = {"send": send_each, "batches": send_batches_and_drain}


def main() -> None:
    """Does what it is told on a broker at a port of this machine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("load", choices=LOADS)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--payload", type=int, required=True)
    parser.add_argument("--warm-up", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    # The library's core writes to standard output itself.
    tell = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(f"pulsar://127.0.0.1:{options.port}", logger=quiet)
    payload = bytes(options.payload)
    LOADS[options.load](client, payload, options.warm_up, options.seconds, tell)
    client.close()


if __name__ == "__main__":
    main()
