"""Which stage a sample belongs to: its stack read from the innermost frame outwards."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

OTHER = "other"
PREEMPTED = "others' turn of the core"
"""The process has just been given the core back: whom it woke had it meanwhile."""

SYSTEM_CALLS = (
    (("recvfrom", "recvmsg", "read"), "system: receive"),
    (("sendto", "sendmsg", "write", "writev"), "system: send"),
    (("epoll_wait", "epoll_pwait", "epoll_ctl"), "system: wait for sockets"),
    (("accept4", "accept", "close", "shutdown", "setsockopt", "getsockname"), "system: sockets"),
    (
        ("fdatasync", "fsync", "pwrite64", "pwritev", "pread64", "fallocate", "statfs"),
        "system: disk",
    ),
    (("futex", "futex_wait", "futex_wake"), "system: locks"),
)
_ENTRY = re.compile(r"\b(?:__x64_sys_|__se_sys_|__do_sys_|__sys_|ksys_|do_)(\w+)")
_STAGE = re.compile(r"_kernel::\w+::(\w+)::__pymethod_(\w+?)__")

FRAMES = (
    ("libsqlite3", "SQLite"),
    ("_PyEval_EvalFrameDefault", "Python"),
    ("uv__", "event loop"),
    ("uvloop", "event loop"),
)
"""What the outer frames say where no stage does, the first that is found."""


@dataclass(frozen=True)
class Sample:
    """One look at the process."""

    thread: str
    frames: Sequence[str]
    """Symbols with their files, innermost first."""


def stage_of(sample: Sample) -> str:
    """The stage: the system call, else the kernel's method, else what called."""
    if sample.frames and "finish_task_switch" in sample.frames[0]:
        return PREEMPTED
    call = next(filter(None, map(_system, sample.frames)), None)
    if call is not None:
        return call
    method = _method(sample.frames)
    if method is not None:
        return method
    for part, name in FRAMES:
        if any(part in frame for frame in sample.frames):
            return name
    return OTHER


def _system(frame: str) -> str | None:
    found = _ENTRY.search(frame)
    if found is None:
        return None
    return next((name for calls, name in SYSTEM_CALLS if found[1] in calls), None)


def _method(frames: Sequence[str]) -> str | None:
    for frame in frames:
        found = _STAGE.search(frame)
        if found is not None:
            return f"{found[1]}.{found[2]}"
    return None
