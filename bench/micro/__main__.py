"""The command line: count, compare with what is on record, and put it on record if asked."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORD = Path(__file__).with_name("instructions.json")

STAGES = {
    "instructions": (
        "decode PUBLISH (feed, decode, settle)",
        "route to one target",
        "append to the log",
        "admit",
        "commit to memory",
        "settle what is durable",
        "allot, and the subscriber's PUBACK",
        "encode and take",
    ),
    "entry_instructions": (
        "decode SEND",
        "route an entry to its subscription",
        "append an entry to the log",
        "admit an entry",
        "commit an entry to memory",
        "settle a durable entry",
        "allot, and the consumer's ACK and FLOW",
        "encode an entry, and take",
    ),
}
"""The stages of each program: messages of MQTT at QoS 1, and entries that hold one message each."""
ENTRY_BYTES = 100
LARGE_ENTRY_BYTES = 10_100
A_BYTE_MORE = "all stages, for each further byte of a large entry"
MESSAGES_A_TURN = 1_000
TURNS = (10, 60)
"""A run of each; what they differ by is 50 turns without the start."""
MOVES_BY_VECTOR = "glibc.cpu.x86_rep_movsb_threshold=1000000000"
FILLS_BY_VECTOR = "glibc.cpu.x86_rep_stosb_threshold=1000000000"
"""A move of memory is one instruction to a processor, and one for each byte to the counter."""
GROWN_MARKED = 0.03
"""Beyond this share a stage has grown: below it lies what another compiler or hash seed does."""


def main() -> int:
    """Counts; the exit code is 1 if a stage has grown."""
    parser = argparse.ArgumentParser(prog="python -m bench.micro", description=__doc__)
    parser.add_argument("--record", action="store_true", help="put these numbers on record")
    options = parser.parse_args()
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        print("valgrind is not there: Debian and Ubuntu: apt-get install valgrind", file=sys.stderr)
        return 2
    counts: dict[str, float] = {}
    for program, stages in STAGES.items():
        built = build(program)
        counts |= count(valgrind, built, stages)
        if program == "entry_instructions":
            counts[A_BYTE_MORE] = count_bytes(valgrind, built)
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    grown = [stage for stage in counts if _has_grown(counts[stage], known.get(stage))]
    for stage, instructions in counts.items():
        before = known.get(stage)
        mark = "  has grown" if stage in grown else ""
        print(f"{stage:50} {instructions:8.1f}, on record {before or '-':>8}{mark}")
    for program, stages in STAGES.items():
        together = sum(counts[stage] for stage in stages)
        print(f"{f'all stages of {program}':50} {together:8.1f} a message")
    if options.record:
        RECORD.write_text(json.dumps(counts, indent=1) + "\n")
        print(f"Wrote {RECORD.relative_to(ROOT)}.")
        return 0
    return 1 if grown else 0


def build(name: str) -> Path:
    """A benchmark's program, built as the kernel is for use."""
    command = [
        "cargo", "build", "--release", "--locked", "--quiet", "--message-format", "json",
        "--package", "holdfast-kernel", "--bench", name,
    ]  # fmt: skip
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in answer.stdout.splitlines()]
    return next(Path(line["executable"]) for line in lines if line.get("executable"))


def count(valgrind: str, program: Path, stages: tuple[str, ...]) -> dict[str, float]:
    """Instructions of each stage for one message."""
    counts: dict[str, float] = {}
    below = 0.0
    for number, stage in enumerate(stages, 1):
        each = _each(valgrind, program, number, ENTRY_BYTES)
        counts[stage] = round(each - below, 1)
        below = each
    return counts


def count_bytes(valgrind: str, program: Path) -> float:
    """Instructions of all stages for each byte by which an entry is larger."""
    stages = len(STAGES["entry_instructions"])
    small, large = (
        _each(valgrind, program, stages, size) for size in (ENTRY_BYTES, LARGE_ENTRY_BYTES)
    )
    return round((large - small) / (LARGE_ENTRY_BYTES - ENTRY_BYTES), 3)


def _each(valgrind: str, program: Path, stages: int, size_bytes: int) -> float:
    few, many = (_instructions(valgrind, program, stages, turns, size_bytes) for turns in TURNS)
    return (many - few) / (TURNS[1] - TURNS[0]) / MESSAGES_A_TURN


def _instructions(valgrind: str, program: Path, stages: int, turns: int, size_bytes: int) -> int:
    with tempfile.TemporaryDirectory() as directory:
        command = [
            valgrind, "--tool=cachegrind", "--cache-sim=no",
            f"--cachegrind-out-file={directory}/out",
            str(program), str(stages), str(turns), str(size_bytes),
        ]  # fmt: skip
        environment = os.environ | {"GLIBC_TUNABLES": f"{MOVES_BY_VECTOR}:{FILLS_BY_VECTOR}"}
        answer = subprocess.run(
            command, capture_output=True, text=True, check=True, env=environment
        )
    found = re.search(r"I\s+refs:\s+([0-9,]+)", answer.stderr)
    if found is None:
        raise RuntimeError(f"no number of instructions in: {answer.stderr[-400:]}")
    return int(found[1].replace(",", ""))


def _has_grown(now: float, before: float | None) -> bool:
    return before is not None and now > before * (1 + GROWN_MARKED) + 1


if __name__ == "__main__":
    sys.exit(main())
