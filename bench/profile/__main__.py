"""The command line: loads a broker, samples it, and shows where its time goes."""

import argparse
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

from bench.macro import machine
from bench.macro.brokers import BrokerError, Holdfast
from bench.macro.measurement import build_generator
from bench.macro.rows import ROWS
from bench.profile.budget import Budget, measure
from bench.profile.limits import limits
from bench.profile.page import PAGE, budget_table, limits_table, page

DEFAULT_ROWS = (
    "1-pair-qos-0", "1-pair-qos-1", "1-pair-qos-1-window-100", "50-pair-qos-0", "50-pair-qos-1",
    "fan-in", "shared", "latency-1000", "connect", "pulsar-batches", "pulsar-1-pair",
)  # fmt: skip


def main() -> int:
    """Profiles the rows that are asked for; the exit code is 2 where perf is not there."""
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="rows of the benchmark by name")
    parser.add_argument("--durability", choices=("fsync", "os", "memory"), default="fsync")
    parser.add_argument(
        "--holdfast", type=Path, default=machine.ROOT / ".venv" / "bin" / "holdfast"
    )
    parser.add_argument("--write", action="store_true", help=f"put it into {PAGE.name}")
    options = parser.parse_args()
    if shutil.which("perf") is None:
        print("perf is not there: Debian and Ubuntu: apt-get install linux-perf", file=sys.stderr)
        return 2
    rows = {row.name: row for row in ROWS}
    names = options.rows or DEFAULT_ROWS
    unknown = [name for name in names if name not in rows]
    if unknown:
        print(f"no row is called {unknown[0]}; there are: {', '.join(rows)}", file=sys.stderr)
        return 2
    build_generator()
    bounds = list(limits(machine.ROOT / "target"))
    print(limits_table(bounds))
    budgets: list[Budget] = []
    broker = Holdfast(options.holdfast, options.durability)
    for name in names:
        try:
            budgets.append(measure(rows[name], broker))
        except BrokerError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
        print(budget_table(budgets[-1:]))
    if options.write:
        now = datetime.now(UTC)
        PAGE.write_text(page(bounds, budgets, now, machine.describe(), machine.commit()))
        print(f"Wrote {PAGE.relative_to(machine.ROOT)}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
