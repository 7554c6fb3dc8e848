"""A load by Pulsar's official clients: their programs, and what is measured of each of their parts.

A program writes a line with the number of its messages where a measured part begins, and one where
it ends; whatever else it measured is a line of JSON at the end.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.macro.brokers import BrokerError, java, processor_ticks
from bench.macro.machine import ROOT
from bench.macro.rows import JAVA, Row

PAIR = ROOT / "bench" / "official" / "Pair.java"
PYTHON_CLIENT = "bench.official.python_client"
ALLOWANCE_SECONDS = 60
"""What a run may take beyond what is measured: a virtual machine that starts, a drain."""
WARM_UP_SECONDS = 10.0
"""At least: until a virtual machine of Java has compiled what is run often."""
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
LOG_CHARACTERS = 400


@dataclass(frozen=True)
class Look:
    """What a program, the clock and the system said at one moment."""

    messages: int
    at_s: float
    broker_s: float
    client_s: float


def measure(
    row: Row, process: int, port: int, timing: tuple[float, float], directory: Path
) -> dict[str, float]:
    """The figures of one run. Raises `BrokerError` if it does not end well."""
    warm_up, seconds = timing
    timing = max(warm_up, WARM_UP_SECONDS), seconds
    log = directory / "official.log"
    with _program(_command(row, port, timing), log, sum(timing) + ALLOWANCE_SECONDS) as program:
        parts = [(_look(program, process), _look(program, process)) for _ in row.parts]
        rest = program.stdout.read() if program.stdout else ""
    figures: dict[str, float] = json.loads(rest) if rest.strip() else {}
    return figures | _figures(row, parts)


def _figures(row: Row, parts: list[tuple[Look, Look]]) -> dict[str, float]:
    rates = {
        figure: (after.messages - before.messages) / (after.at_s - before.at_s)
        for figure, (before, after) in zip(row.parts, parts, strict=True)
    }
    # A message costs what it costs in each part that it goes through.
    broker_us = sum(
        (after.broker_s - before.broker_s) / max(after.messages - before.messages, 1) * 1e6
        for before, after in parts
    )
    seconds = sum(after.at_s - before.at_s for before, after in parts)
    client_s = sum(after.client_s - before.client_s for before, after in parts)
    return rates | {"broker_processor_us": broker_us, "generator_share": client_s / seconds}


def _command(row: Row, port: int, timing: tuple[float, float]) -> list[str]:
    warm_up, seconds = map(str, timing)
    payload = str(row.payload_bytes)
    if row.clients == JAVA:
        return [*java(), str(PAIR), str(port), payload, *row.arguments, warm_up, seconds]
    options = (
        "--port",
        str(port),
        "--payload",
        payload,
        "--warm-up",
        warm_up,
        "--seconds",
        seconds,
    )
    return [sys.executable, "-m", PYTHON_CLIENT, *row.arguments, *options]


@contextmanager
def _program(command: list[str], log: Path, within_s: float) -> Iterator["subprocess.Popen[str]"]:
    """It, which is killed if it does not end in time."""
    with log.open("wb") as errors:
        program = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT
        )
    limit = threading.Timer(within_s, program.kill)
    limit.start()
    try:
        yield program
        if program.wait() != 0:
            raise BrokerError(f"the client ended with {program.returncode}: {_tail(log)}")
    finally:
        limit.cancel()
        program.kill()
        program.wait()


def _look(program: "subprocess.Popen[str]", process: int) -> Look:
    line = program.stdout.readline() if program.stdout else ""
    at_s = time.monotonic()
    if not line:
        raise BrokerError(f"the client ended early: {program.args!r}")
    broker_s, client_s = (
        processor_ticks(number) / TICKS_A_SECOND for number in (process, program.pid)
    )
    return Look(int(line), at_s, broker_s, client_s)


def _tail(log: Path) -> str:
    return " / ".join(log.read_text(errors="replace")[-LOG_CHARACTERS:].split("\n")).strip(" /")
