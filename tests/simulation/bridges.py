"""`python -m tests.simulation.bridges --seeds 1000` tries so many; `--seed S` repeats one."""

import argparse
import sys

from holdfast import system
from holdfast.testing.loop import SimulationFailedError
from tests.simulation import joined


def main() -> int:
    """Runs seeds; exit code 0 only if all of them passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.bridges", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds are tried")
    parser.add_argument("--first", type=int, help="the first of them; without it any")
    parser.add_argument("--seed", type=int, help="run this seed only")
    options = parser.parse_args()
    if options.seed is not None:
        return _run(options.seed)
    began = system.monotonic_s()
    first = system.seed() % (1 << 32) if options.first is None else options.first
    failed = sum(_run(first + number) for number in range(options.seeds))
    took_s = system.monotonic_s() - began
    print(f"{options.seeds} seeds from {first} in {took_s:.0f} s, {failed} failed")
    return 1 if failed else 0


def _run(seed: int) -> int:
    try:
        outcome, trace = joined.run(seed)
    except SimulationFailedError as error:
        print(error, flush=True)
        return 1
    print(
        f"seed {seed}: {outcome.sent} sent, {outcome.received} received, {outcome.connections} "
        f"connections, {outcome.lives} lives, {outcome.virtual_s:.0f} virtual seconds, trace "
        f"{trace}; {outcome.plan}; hardships: {outcome.hardships}",
        flush=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
