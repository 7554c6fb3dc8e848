"""`python -m tests.mutants` plants small faults one by one and says which of them no test finds.

Exit code 0 only if each is found by every test that is named for it.
"""

import argparse
import sys
from collections.abc import Callable

from holdfast import system
from tests.mutants import judges
from tests.mutants.faults import FAULTS, Fault
from tests.mutants.planting import FaultError, check_sound, copy_tree, unnoticed_by


def main() -> int:
    """Plants all faults, or those that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", help="faults whose sentence contains this")
    only = parser.parse_args().only
    chosen = [fault for fault in FAULTS if only in fault.name]
    checked = [(name, is_found) for name, is_found in judges.faults() if only in name]
    try:
        if chosen:
            _prepare(chosen)
        alive = [fault.name for fault in chosen if not _is_found(fault)]
    except FaultError as error:
        print(error, file=sys.stderr)
        return 1
    alive += [name for name, is_found in checked if not _is_judged(name, is_found)]
    planted = len(chosen) + len(checked)
    print(f"{planted - len(alive)} of {planted} faults are found")
    for name in alive:
        print(f"lives: {name}")
    return 1 if alive or not planted else 0


def _prepare(chosen: list[Fault]) -> None:
    print("without a fault every test passes ...", end=" ", flush=True)
    began = system.monotonic_s()
    copy_tree()
    check_sound(sorted({test for fault in chosen for test in fault.tests}))
    print(f"{system.monotonic_s() - began:.0f} s", flush=True)


def _is_found(fault: Fault) -> bool:
    return _row(fault.name, lambda: unnoticed_by(fault))


def _is_judged(name: str, is_found: Callable[[], bool]) -> bool:
    return _row(name, lambda: [] if is_found() else ["its checker"])


def _row(name: str, plant: Callable[[], list[str]]) -> bool:
    """One row of the table: found, or by whom not."""
    began = system.monotonic_s()
    unnoticed = plant()
    state = "LIVES" if unnoticed else "found"
    print(f"{state}  {system.monotonic_s() - began:5.1f} s  {name}", flush=True)
    for test in unnoticed:
        print(f"         not by {test}", flush=True)
    return not unnoticed


if __name__ == "__main__":
    sys.exit(main())
