"""`holdfast` on a disk that takes nothing any more once the broker stops.

The thread that waits for it is inside the operating system, as it would be in `fdatasync`, and no
code of ours runs there.

Usage: python -m tests.operating.stalled LOCKED_FILE serve ...
"""

import fcntl
import sys
from pathlib import Path

from holdfast.broker.world import CommitterThread
from holdfast.cli import main


def _stall(_committer: CommitterThread) -> None:
    with Path(sys.argv[1]).open() as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)


if __name__ == "__main__":
    CommitterThread.stop = _stall  # type: ignore[method-assign]
    sys.exit(main(sys.argv[2:]))
