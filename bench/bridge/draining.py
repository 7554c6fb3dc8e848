"""What waits for a bridge that was stopped, and how quickly that goes when it starts."""

import http.client
import json
import time
from contextlib import closing
from typing import Any

from bench.bridge.pairs import BridgedHoldfast, Pair
from bench.macro.measurement import Timing, generate
from bench.macro.rows import Row

MESSAGES = 1_000_000
FILLED_WITHIN = 60
"""Rounds of a second each."""
FILLING = Timing(0.2, 1.0)
DRAINED_WITHIN_S = 60.0
EVERY_S = 0.02
BRIDGE = "/v1/bridges/b0"


def drained_per_second(first: BridgedHoldfast, pair: Pair, load: Row) -> float:
    """A million messages or more wait, and go: how many a second."""
    _ask(first, "POST", f"{BRIDGE}/stop")
    waiting = 0
    for _ in range(FILLED_WITHIN):
        generate(load, pair.process, pair.port, FILLING)
        waiting = _ask(first, "GET", BRIDGE)["waiting"]
        if waiting >= MESSAGES:
            break
    assert waiting >= MESSAGES, f"only {waiting} messages wait"
    began = time.monotonic()
    _ask(first, "POST", f"{BRIDGE}/start")
    while _ask(first, "GET", BRIDGE)["waiting"]:
        assert time.monotonic() - began < DRAINED_WITHIN_S, "it does not drain"
        time.sleep(EVERY_S)
    return float(waiting / (time.monotonic() - began))


def _ask(first: BridgedHoldfast, method: str, path: str) -> Any:
    with closing(http.client.HTTPConnection("127.0.0.1", first.http_port)) as connection:
        body = "{}" if method == "POST" else None
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
    assert answer.status == 200, f"{path} was answered with {answer.status}: {content[:200]!r}"
    return json.loads(content)
