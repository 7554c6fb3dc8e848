"""`python -m bench.beside.prober PORT FILE`: one client publishes at QoS 1 and one asks for a sign
of life, every 5 ms, until SIGTERM; then the file says when each was sent and how long its answer
took.

Owns: these two connections. Never: waits for an answer before it asks again.
"""

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from collections import deque
from pathlib import Path

from bench.beside.wire import (
    CONNACK_BYTES,
    IDENTIFIER_MAXIMUM,
    PINGREQ,
    PINGRESP_BYTES,
    PUBACK_BYTES,
    READ_BYTES,
    encode_connect,
    encode_publish,
    opened,
)

EVERY_NS = 5_000_000
OUT_MAXIMUM = 60_000
"""Questions without an answer; the next ones would use their identifiers again."""
PAYLOAD = bytes(64)
AGAIN_AFTER_S = 0.05


class Line:
    """One connection: each answer has the same size and comes in order [MQTT-4.6.0-2]."""

    def __init__(self, name: str, port: int, answer_bytes: int) -> None:
        self.broken = 0
        self.samples: list[tuple[int, int]] = []
        """When each was sent and how long its answer took, in nanoseconds."""
        self._name = name
        self._port = port
        self._answer_bytes = answer_bytes
        self._out: deque[int] = deque()
        self._read = 0
        self._identifier = 0
        self.socket = self._connect()

    def _connect(self) -> socket.socket:
        while True:
            with contextlib.suppress(OSError):
                connection = opened(self._port)
                connection.sendall(encode_connect(f"prober-{self._name}", clean=True))
                if len(connection.recv(CONNACK_BYTES, socket.MSG_WAITALL)) == CONNACK_BYTES:
                    connection.setblocking(False)
                    return connection
            time.sleep(AGAIN_AFTER_S)

    def ask(self, now_ns: int) -> None:
        """Sends the next question."""
        if len(self._out) >= OUT_MAXIMUM:
            return
        question = PINGREQ
        if self._answer_bytes == PUBACK_BYTES:
            self._identifier = self._identifier % IDENTIFIER_MAXIMUM + 1
            question = encode_publish("probe/puback", self._identifier, PAYLOAD)
        self._out.append(now_ns)
        try:
            whole = self.socket.send(question) == len(question)
        except OSError:
            whole = False
        if not whole:
            # It ended the connection, or has read nothing for minutes.
            self.reconnect()

    def read(self) -> None:
        """Takes the answers that have come."""
        try:
            read = len(self.socket.recv(READ_BYTES))
        except OSError:
            read = 0
        if not read:
            self.reconnect()
            return
        now_ns = time.monotonic_ns()
        self._read += read
        while self._read >= self._answer_bytes and self._out:
            self._read -= self._answer_bytes
            sent_ns = self._out.popleft()
            self.samples.append((sent_ns, now_ns - sent_ns))

    def reconnect(self) -> None:
        """The broker ended the connection: what it still had to answer took until now."""
        self.broken += 1
        self.give_up()
        self.socket.close()
        self.socket = self._connect()

    def give_up(self) -> None:
        """What has no answer yet took until now, at least."""
        now_ns = time.monotonic_ns()
        self.samples += [(sent_ns, now_ns - sent_ns) for sent_ns in self._out]
        self._out.clear()
        self._read = 0


def main() -> int:
    """Probes until SIGTERM."""
    port, file = int(sys.argv[1]), Path(sys.argv[2])
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    gc.disable()
    # Whoever looks at the clock must not wait for the processor itself.
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    puback = Line("puback", port, PUBACK_BYTES)
    ping = Line("ping", port, PINGRESP_BYTES)
    late: list[tuple[int, int]] = []
    due_ns = time.monotonic_ns()
    print("probing", flush=True)
    while not ended:
        now_ns = time.monotonic_ns()
        if now_ns >= due_ns:
            late.append((due_ns, now_ns - due_ns))
            puback.ask(now_ns)
            ping.ask(now_ns)
            # What was missed while this process stood still is asked late and not left out.
            due_ns += EVERY_NS
            continue
        ready, _, _ = select.select([puback.socket, ping.socket], [], [], (due_ns - now_ns) / 1e9)
        for line in (puback, ping):
            if line.socket in ready:
                line.read()
    puback.give_up()
    ping.give_up()
    found = {"puback": puback.samples, "ping": ping.samples, "late": late}
    file.write_text(json.dumps({**found, "broken": puback.broken + ping.broken}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
