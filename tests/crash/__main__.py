"""`python -m tests.crash --rounds 20 [--seed S]`: exit code 0 only if nothing was violated."""

import argparse
import asyncio
import secrets
import sys
import tempfile
from pathlib import Path

from tests.crash import damage, rounds


def main() -> int:
    """Runs the rounds and prints the report."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="how often the broker is killed")
    parser.add_argument("--seed", type=int, help="repeats the choices of a former run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report here too")
    parser.add_argument(
        "--damage", choices=damage.KINDS, help="damage the log of a killed broker instead"
    )
    options = parser.parse_args()
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="holdfast-crash-"))
    if options.damage:
        trials = asyncio.run(
            damage.run(directory, kind=options.damage, trials=options.rounds, seed=seed, say=_say)
        )
        print(trials.text())
        if not trials.failures:
            directory.rmdir()
        return 1 if trials.failures else 0
    report = asyncio.run(rounds.run(directory, rounds=options.rounds, seed=seed, say=_say))
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
