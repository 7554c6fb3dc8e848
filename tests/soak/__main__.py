"""`python -m tests.soak --minutes 10 [--seed S]`: exit code 0 only if all was kept and flat."""

import argparse
import asyncio
import secrets
import sys
import tempfile
from pathlib import Path

from tests.soak import picture
from tests.soak.soak import soak


def main() -> int:
    """Soaks, prints the table and draws the picture."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, help="repeats the choices of a former run")
    parser.add_argument("--picture", type=Path, default=Path("target/soak.svg"), metavar="FILE")
    options = parser.parse_args()
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="holdfast-soak-") as directory:
        soaked = asyncio.run(
            soak(Path(directory), seconds=60 * options.minutes, seed=seed, say=_say)
        )
    print(soaked.text())
    options.picture.parent.mkdir(exist_ok=True)
    picture.draw(soaked.samples, options.picture)
    print(f"  picture: {options.picture}")
    return 0 if soaked.kept_its_promises and soaked.is_flat else 1


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
