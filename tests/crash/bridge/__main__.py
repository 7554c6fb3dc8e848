"""`python -m tests.crash.bridge --rounds 100 [--seed S]`: exit code 0 only if all holds."""

import argparse
import asyncio
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from tests.crash.bridge import rounds


def main() -> int:
    """Runs the rounds and prints the report."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.bridge", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="how often one of both is killed")
    parser.add_argument("--seed", type=int, help="repeats the choices of a former run")
    options = parser.parse_args()
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="holdfast-bridge-"))
    report = asyncio.run(rounds.run(directory, rounds=options.rounds, seed=seed, say=_say))
    print(report.text())
    if report.holds:
        shutil.rmtree(directory)
    else:
        print(f"The brokers' files are in {directory}.")
    return 0 if report.holds else 1


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
