"""One measurement: a fresh broker, one run of the generator, and the figures that follow."""

import json
import subprocess
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from bench.macro import machine, official, standstill
from bench.macro.brokers import Broker, BrokerError, peak_resident_kib, pulsar_port
from bench.macro.rows import MQTT, OURS, PULSAR, Row

GENERATOR = machine.ROOT / "target" / "release" / "holdfast-load"

# On the disk that holds the project, not in a temporary directory that may be memory.
WORK = machine.ROOT / "target" / "bench"

# What a run may take beyond its warm-up and measured part: a thousand sessions, a slow drain.
ALLOWANCE_SECONDS = 90


@dataclass(frozen=True)
class Timing:
    """How long each measurement warms up and measures."""

    warm_up_seconds: float
    seconds: float


@dataclass(frozen=True)
class Measurement:
    """What one run gave: figures, or the reason why there are none."""

    row: str
    broker: str
    repetition: int
    figures: dict[str, float]
    error: str | None = None


def build_generator() -> None:
    """Build the generator if its sources are newer."""
    command = ["cargo", "build", "--quiet", "--release", "--locked", "-p", "holdfast-load"]
    subprocess.run(command, cwd=machine.ROOT, check=True)


def measure(row: Row, broker: Broker, repetition: int, timing: Timing) -> Measurement:
    """Run one load on a fresh broker. A failure is a result too, with its reason."""
    WORK.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=WORK) as name:
        directory = Path(name)
        # A broker that leaves its user behind at the start still has to read its file.
        directory.chmod(0o755)
        fdatasync_us = machine.quiet_fdatasync_us(directory)
        bandwidth = machine.sequential_bytes_per_second(directory) if is_large(row) else 0.0
        try:
            with broker.serve(row, directory) as (process, port):
                with standstill.noted(directory) if is_latency(row) else nullcontext([]) as stood:
                    figures = _load(row, process, port, timing, directory)
                peak_kib = peak_resident_kib(process)
        except BrokerError as error:
            return Measurement(row.name, broker.name, repetition, {}, str(error))
    figures |= {"fdatasync_us": fdatasync_us, "resident_mib_peak": peak_kib / 1024}
    if stood:
        figures["standstill_p99_us"] = standstill.p99_us(stood)
    if bandwidth:
        figures["disk_share"] = figures["messages_per_second"] * row.payload_bytes / bandwidth
    return Measurement(row.name, broker.name, repetition, figures)


def _load(row: Row, process: int, port: int, timing: Timing, directory: Path) -> dict[str, float]:
    if row.clients == OURS:
        return _derive(generate(row, process, port, timing))
    seconds = (timing.warm_up_seconds, timing.seconds)
    return official.measure(row, process, pulsar_port(port), seconds, directory)


def generate(row: Row, process: int, port: int, timing: Timing) -> dict[str, float]:
    """One run of the generator against a broker: what it counted. Raises `BrokerError`."""
    deadline = timing.warm_up_seconds + timing.seconds + ALLOWANCE_SECONDS
    command = [
        str(GENERATOR), *row.arguments, *doors(row, port),
        "--warm-up", str(timing.warm_up_seconds),
        "--seconds", str(timing.seconds),
        "--deadline", str(deadline),
        "--broker-process", str(process),
    ]  # fmt: skip
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=deadline + 30
        )
    except subprocess.TimeoutExpired as error:
        raise BrokerError(f"the generator did not end within {error.timeout:.0f} s") from error
    if answer.returncode != 0:
        raise BrokerError(answer.stderr.strip() or f"the generator ended with {answer.returncode}")
    raw: dict[str, float] = json.loads(answer.stdout)
    return raw


def doors(row: Row, port: int) -> list[str]:
    """Where publishers and subscribers connect, and what they speak there."""
    publishers, subscribers = row.speaks
    ports = {MQTT: str(port), PULSAR: str(pulsar_port(port))}
    doors = ["--port", ports[publishers]]
    if PULSAR in row.speaks:
        doors += ["--protocol", publishers, "--to-protocol", subscribers]
        doors += ["--to-port", ports[subscribers]]
    return doors


def is_latency(row: Row) -> bool:
    """True if it is compared with what the machine itself stood still."""
    return any(line.figure == "standstill_p99_us" for line in row.lines)


def is_large(row: Row) -> bool:
    """True if it is compared with what the disk takes."""
    return any(line.figure == "disk_share" for line in row.lines)


def _derive(raw: dict[str, float]) -> dict[str, float]:
    """Add what the table shows to what the generator counted."""
    # What a message costs is counted by deliveries; where there are none, by acknowledgements.
    messages = raw["received"] or raw["acknowledged"] or raw.get("connections", 0) or 1
    before, after = raw["broker_resident_kib_before"], raw["broker_resident_kib_after"]
    ranges = {}
    if raw.get("latency_p50_us"):
        ranges["latency_p99_to_p50"] = raw["latency_p99_us"] / raw["latency_p50_us"]
    return (
        raw
        | ranges
        | {
            "messages_per_second": raw["received"] / raw["seconds"],
            "broker_processor_us": raw["broker_processor_s"] / messages * 1e6,
            "generator_share": raw["processor_s"] / raw["seconds"],
            "resident_mib_after": after / 1024,
            "resident_mib_grown": (after - before) / 1024,
            "resident_mib_taken_in": raw.get("broker_resident_kib_taken_in", 0) / 1024,
        }
    )
