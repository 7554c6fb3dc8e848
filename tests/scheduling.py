"""What Linux has on record for a thread: how nice it is, and for how long it wants a core."""

import ctypes
import platform
import struct
import sys

SCHED_GETATTR = {"x86_64": 315, "aarch64": 275, "riscv64": 275}
SLICES_SINCE = (6, 12)


def niceness_and_slice(thread: int = 0) -> tuple[int, int]:
    """Of the thread with this number, or of the calling one; the slice is in nanoseconds."""
    found = ctypes.create_string_buffer(48)
    number = SCHED_GETATTR[platform.machine()]
    assert ctypes.CDLL(None).syscall(number, thread, found, len(found), 0) == 0
    _, _, _, niceness, _, slice_ns, _, _ = struct.unpack("=IIQiIQQQ", found.raw)
    return niceness, slice_ns


def knows_slices() -> bool:
    """True if a thread can ask for one here."""
    if sys.platform != "linux":
        return False
    major, minor, *_ = platform.release().split(".")
    return (int(major), int(minor)) >= SLICES_SINCE
