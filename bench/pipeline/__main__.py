"""`python -m bench.pipeline`: fill a log, measure line by line, write the figures."""

import argparse
import os
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from bench.macro import machine
from bench.macro.measurement import build_generator
from bench.pipeline import filling, result
from bench.pipeline.lines import LINES, Ground
from bench.pipeline.result import Measured, Result
from holdfast.pipeline.session import local_session
from tests.process import BrokerProcess

RETENTION_BYTES = 64 << 30
ROWS = 2_000_000
"""Two of the largest triggers: the first one pays for what starts once, and counts only where it
is alone."""


def main() -> int:
    """Measures as asked."""
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--only", choices=LINES, action="append", help="these lines, kept nowhere")
    parser.add_argument(
        "--again", action="store_true", help="put the lines into the newest result, which says so"
    )
    options = parser.parse_args()
    build_generator()
    load = os.getloadavg()[0]
    work = machine.ROOT / "target"
    work.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="bench-pipeline-", dir=work))
    try:
        lines = _measure(directory, options.rows, options.only or list(LINES))
    finally:
        shutil.rmtree(directory)
    found = Result(
        date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M"),
        commit=machine.commit(),
        machine=machine.describe(),
        rows=options.rows,
        load_average=load,
        lines=lines,
    )
    print(found.text())
    last = result.newest() if options.again else None
    if last is not None:
        found = last.with_lines_of(found)
    if options.again or not options.only:
        print(f"Wrote {found.write().relative_to(machine.ROOT)}")
    return 0


def _measure(directory: Path, rows: int, chosen: list[str]) -> list[Measured]:
    broker = BrokerProcess(directory, http_port=0, retention_bytes=RETENTION_BYTES)
    (broker.data_directory).mkdir()
    _say(f"{rows:,} tag reads are written")
    filling.fill(broker.data_directory, rows)
    broker.start()
    spark = local_session("holdfast bench")
    spark.sparkContext.setLogLevel("ERROR")
    try:
        ground = Ground(spark, directory, broker, broker.http_address, rows)
        measured = []
        for name in chosen:
            for line in LINES[name](ground):
                _say(line.row())
                measured.append(line)
        return measured
    finally:
        spark.stop()
        broker.stop()


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
