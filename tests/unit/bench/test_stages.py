"""Samples of a profile are told by their stacks."""

import pytest

from bench.profile.stages import Sample, stage_of

PYTHON = "_PyEval_EvalFrameDefault (/lib/libpython3.11.so)"
METHOD = "_kernel::delivery::Deliveries::__pymethod_allot__ (/x/_kernel.abi3.so)"


@pytest.mark.parametrize(
    ("frames", "stage"),
    [
        (["crc32c::crc (x.so)", METHOD, PYTHON], "Deliveries.allot"),
        (
            ["tcp_sendmsg ([k])", "ksys_write ([k])", "uv__try_write (uvloop)", PYTHON],
            "system: send",
        ),
        (
            ["ext4_sync ([k])", "__x64_sys_fdatasync ([k])", "_kernel::committer (x.so)"],
            "system: disk",
        ),
        (
            ["finish_task_switch.isra.0 ([k])", "ksys_write ([k])", PYTHON],
            "others' turn of the core",
        ),
        (["uv__io_poll (uvloop/loop.so)", PYTHON], "Python"),
        (["uv__io_poll (uvloop/loop.so)", "uv_run (uvloop/loop.so)"], "event loop"),
        (["main (x)"], "other"),
    ],
)
def test_the_innermost_stage_gets_the_sample(frames: list[str], stage: str) -> None:
    assert stage_of(Sample("holdfast", frames)) == stage
