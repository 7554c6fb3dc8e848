"""`python -m bench.beside.disk DIRECTORY FILE`: appends a small record and syncs it every 20 ms
until SIGTERM; then the file says how long each took, and how late each began.

Owns: one file, which is removed in the end.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

EVERY_S = 0.02
RECORD = bytes(700)


def main() -> int:
    """Appends until SIGTERM."""
    path, file = Path(sys.argv[1]) / "disk-probe", Path(sys.argv[2])
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    synced, late = [], []
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    print("probing", flush=True)
    due_s = time.monotonic()
    while not ended:
        time.sleep(max(0.0, due_s - time.monotonic()))
        began_ns = time.monotonic_ns()
        late.append((began_ns, max(0, began_ns - int(due_s * 1e9))))
        os.write(descriptor, RECORD)
        os.fdatasync(descriptor)
        synced.append((began_ns, time.monotonic_ns() - began_ns))
        due_s = max(due_s + EVERY_S, time.monotonic())
    os.close(descriptor)
    path.unlink()
    file.write_text(json.dumps({"synced": synced, "late": late}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
