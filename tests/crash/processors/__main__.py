"""`python -m tests.crash.processors --rounds 100 [--seed S]`: exit code 0 only if nothing lacks."""

import argparse
import asyncio
import secrets
import sys
import tempfile
from pathlib import Path

from tests.crash.processors import rounds


def main() -> int:
    """Runs the rounds and prints the report."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.processors", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="how often somebody is killed")
    parser.add_argument("--seed", type=int, help="repeats the choices of a former run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report here too")
    parser.add_argument(
        "--early",
        action="store_true",
        help="acknowledge before the commit: the fault that has to be found",
    )
    options = parser.parse_args()
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="holdfast-processors-"))
    found = rounds.run(directory, rounds=options.rounds, seed=seed, say=_say, early=options.early)
    report = asyncio.run(found)
    print(report.text())
    if options.json is not None:
        report.write(options.json)
    if report.holds:
        directory.rmdir()
    return 0 if report.holds else 1


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
