"""`python -m tests.simulation --seconds 60` tries seeds for that long; `--seed S` repeats one."""

import argparse
import sys

from holdfast import system
from holdfast.testing.loop import SimulationFailedError
from tests.simulation import whole


def main() -> int:
    """Runs seeds; exit code 0 only if all of them passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for how long seeds are tried")
    parser.add_argument("--seed", type=int, help="run this seed only")
    parser.add_argument("--entries", action="store_true", help="services that speak Pulsar, alone")
    options = parser.parse_args()
    plan = whole.ENTRIES if options.entries else None
    if options.seed is not None:
        return _run(options.seed, plan)
    began = system.monotonic_s()
    first = system.seed() % (1 << 32)
    failed = runs = 0
    while not failed and system.monotonic_s() - began < options.seconds:
        failed = _run(first + runs, plan)
        runs += 1
    print(f"{runs} seeds from {first} in {system.monotonic_s() - began:.0f} s")
    return failed


def _run(seed: int, plan: whole.Plan | None) -> int:
    try:
        outcome, trace = whole.run(seed, plan=plan)
    except SimulationFailedError as error:
        print(error)
        return 1
    print(
        f"seed {seed}: {outcome.sent} messages ({outcome.refused} refused), {outcome.lives} lives, "
        f"{outcome.virtual_s:.0f} virtual seconds, trace {trace}; {outcome.plan}; "
        f"hardships: {outcome.hardships}",
        flush=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
