"""One load: what a message costs, divided by stage."""

import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.macro import machine
from bench.macro.brokers import Holdfast
from bench.macro.measurement import Timing, generate
from bench.macro.rows import Row
from bench.profile.stages import Sample, stage_of

TIMING = Timing(warm_up_seconds=0.5, seconds=4.5)
SAMPLED_AFTER_SECONDS = 1.2
SAMPLED_SECONDS = 3
FREQUENCY = 400
STACK_BYTES = 8_192


@dataclass(frozen=True)
class Budget:
    """What one message (or connection) of a load costs the broker."""

    row: str
    title: str
    per_second: float
    each_us: float
    """Processor time of the whole process."""
    samples: int
    stages_us: dict[str, float]
    """Of that, by stage."""


def measure(row: Row, broker: Holdfast) -> Budget:
    """Loads a fresh broker and samples it. Raises `BrokerError`."""
    with tempfile.TemporaryDirectory(dir=machine.ROOT / "target") as name:
        directory = Path(name)
        data = directory / "samples"
        with broker.serve(row, directory) as (process, port):
            # Connections come at once; everything else is looked at when it is under way.
            after = 0.0 if row.name == "connect" else SAMPLED_AFTER_SECONDS
            sampler = threading.Thread(target=_sample, args=(process, data, after))
            sampler.start()
            raw = generate(row, process, port, TIMING)
            sampler.join()
        shares = Counter(stage_of(sample) for sample in _samples(data))
    count = raw["received"] or raw["acknowledged"] or raw.get("connections", 0) or 1
    each_us = raw["broker_processor_s"] / count * 1e6
    total = sum(shares.values()) or 1
    stages = {stage: each_us * number / total for stage, number in shares.most_common()}
    title = row.lines[0].title
    return Budget(row.name, title, count / raw["seconds"], each_us, total, stages)


def _sample(process: int, data: Path, after_seconds: float) -> None:
    time.sleep(after_seconds)
    command = [
        "perf", "record", "--freq", str(FREQUENCY), "--call-graph", f"dwarf,{STACK_BYTES}",
        "--pid", str(process), "--output", str(data), "--", "sleep", str(SAMPLED_SECONDS),
    ]  # fmt: skip
    subprocess.run(command, capture_output=True, check=True)


def _samples(data: Path) -> Iterator[Sample]:
    command = ["perf", "script", "-i", str(data), "-F", "comm,tid,ip,sym,dso"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for block in listing.split("\n\n"):
        lines = block.strip().splitlines()
        if len(lines) > 1:
            frames = [line.split(None, 1)[-1] for line in lines[1:]]
            yield Sample(lines[0].split()[0], frames)
