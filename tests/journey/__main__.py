"""`python -m tests.journey --rounds 100 [--seed S]`: exit code 0 only if every count agrees."""

import argparse
import asyncio
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from tests.journey.rounds import run


def main() -> int:
    """Runs the rounds and prints the report."""
    parser = argparse.ArgumentParser(prog="python -m tests.journey", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="how many rounds of kills")
    parser.add_argument("--seed", type=int, help="repeats the choices of a former run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report here too")
    given = parser.parse_args()
    seed = secrets.randbelow(1 << 32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="holdfast-journey-"))
    report = asyncio.run(run(directory, rounds=given.rounds, seed=seed, say=_say))
    print(report.text())
    if given.json is not None:
        report.write(given.json)
    if report.holds:
        shutil.rmtree(directory)
    return 0 if report.holds else 1


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
