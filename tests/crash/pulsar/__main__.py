"""`python -m tests.crash.pulsar --rounds 50 [--seed S]`: exit code 0 only if all holds."""

import argparse
import asyncio
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from tests.crash.pulsar import rounds


def main() -> int:
    """Runs the rounds and prints the report."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.pulsar", description=__doc__)
    parser.add_argument("--rounds", type=int, default=50, help="how often the broker is killed")
    parser.add_argument("--seed", type=int, help="repeats the choices of a former run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report here too")
    options = parser.parse_args()
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="holdfast-pulsar-"))
    report = asyncio.run(rounds.run(directory, rounds=options.rounds, seed=seed, say=_say))
    print(report.text())
    if options.json is not None:
        report.write(options.json)
    if report.holds:
        shutil.rmtree(directory)
    else:
        print(f"The broker's files are in {directory}.")
    return 0 if report.holds else 1


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
