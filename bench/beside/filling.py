"""Sessions that are away and messages that wait, made over MQTT as fast as one process can.

Never: decodes an answer; of what it asks, each answer's size is known.
"""

import itertools
import socket
from collections.abc import Callable, Iterable, Sequence

from bench.beside.wire import (
    CONNACK_BYTES,
    DISCONNECT,
    IDENTIFIER_MAXIMUM,
    PUBACK_BYTES,
    READ_BYTES,
    GoneError,
    encode_connect,
    encode_publish,
    encode_subscribe,
    opened,
    suback_bytes,
)

AT_ONCE = 100
"""Connections that wait for the broker at a time: what its listener keeps waiting."""
BATCH_MESSAGES = 1_000
BATCHES_OUT = 20
"""Written and not yet acknowledged: far less than there are identifiers, and their acknowledgements
fit into a socket's buffer."""
FILLED_WITHIN_S = 600.0
"""Without an answer: what stands still here is not what is measured."""
BATCH_BYTES_MAXIMUM = 1 << 20


def leave_sessions(
    port: int, name: str, count: int, topic_filters: Callable[[int], Sequence[str]]
) -> None:
    """So many persistent sessions exist, are subscribed and away."""
    for first in range(0, count, AT_ONCE):
        group = []
        for number in range(first, min(first + AT_ONCE, count)):
            connection = opened(port, FILLED_WITHIN_S)
            wanted = topic_filters(number)
            subscribe = encode_subscribe(wanted) if wanted else b""
            connection.sendall(encode_connect(f"{name}{number}") + subscribe)
            group.append((connection, CONNACK_BYTES + (suback_bytes(len(wanted)) if wanted else 0)))
        for connection, answers in group:
            _receive(connection, answers)
            connection.sendall(DISCONNECT)
        for connection, _ in group:
            with connection:
                if connection.recv(1):
                    raise GoneError("a session that left is answered still")


def publish(port: int, topics: Iterable[str], payload: bytes, *, retain: bool = False) -> None:
    """Publishes one message at QoS 1 to each topic; all are acknowledged when this returns."""
    with opened(port, FILLED_WITHIN_S) as connection:
        connection.sendall(encode_connect("filler", clean=True))
        _receive(connection, CONNACK_BYTES)
        identifiers = itertools.cycle(range(1, IDENTIFIER_MAXIMUM + 1))
        size = max(1, min(BATCH_MESSAGES, BATCH_BYTES_MAXIMUM // (len(payload) + 1)))
        left, out = iter(topics), []
        while batch := list(itertools.islice(left, size)):
            connection.sendall(
                b"".join(
                    encode_publish(topic, next(identifiers), payload, retain=retain)
                    for topic in batch
                )
            )
            out.append(len(batch) * PUBACK_BYTES)
            if len(out) > BATCHES_OUT:
                _receive(connection, out.pop(0))
        _receive(connection, sum(out))


def _receive(connection: socket.socket, count: int) -> None:
    while count:
        read = connection.recv(min(count, READ_BYTES))
        if not read:
            raise GoneError("the broker closed the connection")
        count -= len(read)
