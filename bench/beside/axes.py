"""Lines without a prober: what a broker costs at rest, carries beside many, needs to start."""

import contextlib
import itertools
import socket
import statistics
import time

from bench.beside.figures import Bound
from bench.beside.filling import leave_sessions, publish
from bench.beside.lines import MANY_SESSIONS, SMALL, Line
from bench.beside.stage import Stage, processor_s
from bench.beside.wire import HOST, Peer
from bench.macro.measurement import Timing, generate
from bench.macro.rows import ROWS

IDLE_S = 20.0
IDLE_STEP_PERCENT = 1.0
SESSIONS_AT_REST = 200_000
TOPICS = 100_000
WAITING_MESSAGES = 1_000_000
PAIRS_ROW = "50-pair-qos-1"
RATIO_STEP = 0.9
REPETITIONS = 3
TIMING = Timing(1.0, 3.0)
STARTS = 3
START_STEP_MS = 2_000.0
STARTED_WITHIN_S = 60.0
ASK_EVERY_S = 0.002
IDLE, RATIO, OPEN = "percent of a core", "ratio", "until the port is open"


def _fill_waiting(port: int, scale: int) -> None:
    sessions, topics = SESSIONS_AT_REST * scale, TOPICS * scale
    leave_sessions(port, "device", sessions, lambda number: [f"device/{number}/down"])
    numbers = itertools.cycle(range(topics))
    waiting = itertools.islice(numbers, WAITING_MESSAGES * scale)
    publish(port, (f"device/{number}/down" for number in waiting), SMALL)


def _fill_both(port: int, scale: int) -> None:
    leave_sessions(port, "device", 10_000 * scale, lambda n: [f"device/{n}/+", f"all/+/{n}/#"])
    publish(port, (f"device/{number}/state" for number in range(TOPICS * scale)), SMALL)


def _fill_sessions(port: int, scale: int) -> None:
    count = SESSIONS_AT_REST * scale
    leave_sessions(port, "device", count, lambda number: [f"device/{number}/down"])


def _idle(stage: Stage, _scale: int) -> None:
    time.sleep(IDLE_S / 4)
    with stage.window("nobody is there") as own:
        used = processor_s(stage.broker.process)
        time.sleep(IDLE_S)
        own[IDLE] = (processor_s(stage.broker.process) - used) / IDLE_S * 100


def _carry(stage: Stage, _scale: int) -> None:
    row = next(row for row in ROWS if row.name == PAIRS_ROW)

    def rate(process: int, port: int) -> float:
        raw = generate(row, process, port, TIMING)
        return raw["received"] / raw["seconds"] / 1e3

    beside, alone = [], []
    with stage.window("50 pairs at QoS 1, beside them and on an empty broker in turn") as own:
        with stage.broker.empty() as empty:
            for _ in range(REPETITIONS):
                alone.append(rate(empty.process, empty.port))
                beside.append(rate(stage.broker.process, stage.broker.port))
        own["k/s beside them"] = statistics.median(beside)
        own["k/s alone"] = statistics.median(alone)
        own[RATIO] = statistics.median(b / a for b, a in zip(beside, alone, strict=True))


def _start(stage: Stage, _scale: int) -> None:
    opened, accepted = [], []
    with stage.window(f"kill -9 and a start, {STARTS} times") as own:
        for number in range(STARTS):
            # It is not killed at rest: what it did last is still to be read.
            publish(stage.broker.port, [f"start/{n}" for n in range(1_000)], SMALL)
            stage.broker.kill()
            began = time.monotonic()
            stage.broker.launch()
            _wait_until_open(stage.broker.port)
            opened.append((time.monotonic() - began) * 1e3)
            Peer(stage.broker.port, f"starter-{number}", clean=True).leave()
            accepted.append((time.monotonic() - began) * 1e3)
        own[OPEN] = statistics.median(opened)
        own["until CONNACK"] = statistics.median(accepted)


def _wait_until_open(port: int) -> None:
    ends_at = time.monotonic() + STARTED_WITHIN_S
    while time.monotonic() < ends_at:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1):
            return
        time.sleep(ASK_EVERY_S)
    raise TimeoutError(f"no port is open after {STARTED_WITHIN_S:.0f} s")


AXES = (
    Line(
        "idle",
        lambda s: (
            f"{SESSIONS_AT_REST * s} sessions at rest, {TOPICS * s} topics,"
            f" {WAITING_MESSAGES * s} messages wait"
        ),
        _idle,
        _fill_waiting,
        "waiting",
        MANY_SESSIONS,
        bounds=(Bound(IDLE, at_most=IDLE_STEP_PERCENT),),
        is_probed=False,
    ),
    Line(
        "carry",
        lambda s: f"{TOPICS * s} topics and {10_000 * s} sessions at rest",
        _carry,
        _fill_both,
        "both",
        bounds=(Bound(RATIO, at_least=RATIO_STEP),),
        is_probed=False,
    ),
    Line(
        "start",
        lambda s: f"{SESSIONS_AT_REST * s} sessions at rest",
        _start,
        _fill_sessions,
        "devices",
        MANY_SESSIONS,
        bounds=(Bound(OPEN, START_STEP_MS),),
        is_probed=False,
    ),
)
