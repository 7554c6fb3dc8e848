"""Whether the machine itself stood still while something was measured.

`python -m bench.macro.standstill FILE` wants to wake at each millisecond, ahead of everybody on
the machine, until SIGTERM; then the file says how late it was for each of them, as somebody would
have been who had come at that moment. With `in-turn` behind FILE it goes ahead of nobody: then it
says how long whoever wakes waits for a processor.

A machine that is lent a part of another one's processors is stopped when that part is used up, with
all that runs on it: here for 10 ms in each 100 where a broker syncs four thousand times a second.
No broker can be quicker than that, so that a latency is shown beside it.

Owns: one process. Never: says anything where it should go ahead of others and may not, since it
would count their turns.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.macro import machine

EVERY_NS = 1_000_000
END_WITHIN_S = 10
IN_TURN = "in-turn"
Sample = tuple[int, int]
"""When it wanted to wake and how much later it did, in nanoseconds."""


@contextmanager
def noted(directory: Path, *, in_turn: bool = False) -> Iterator[list[Sample]]:
    """Fills the list when the block ends; it stays empty where nothing may go ahead of others."""
    file, samples = directory / "standstill.json", list[Sample]()
    command = [sys.executable, "-m", "bench.macro.standstill", str(file)]
    command += [IN_TURN] if in_turn else []
    process = subprocess.Popen(command, cwd=machine.ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield samples
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(END_WITHIN_S)
        process.stdout.close()
        samples += [(due, late) for due, late in json.loads(file.read_text())]


def p99_us(samples: Sequence[Sample]) -> float:
    """What it was late at a hundredth of all moments, at least, in microseconds."""
    return statistics.quantiles((late / 1_000 for _, late in samples), n=100)[98]


def main() -> int:
    """Wakes until SIGTERM."""
    ended, samples = list[bool](), list[Sample]()
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    try:
        if IN_TURN not in sys.argv[2:]:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        print("may not go ahead of others", file=sys.stderr)
        ended.append(True)
    print("wakes", flush=True)
    due_ns = time.monotonic_ns()
    while not ended:
        time.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
        woken_ns = time.monotonic_ns()
        while due_ns <= woken_ns:
            samples.append((due_ns, woken_ns - due_ns))
            due_ns += EVERY_NS
    Path(sys.argv[1]).write_text(json.dumps(samples))
    return 0


if __name__ == "__main__":
    sys.exit(main())
