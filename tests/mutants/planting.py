"""A copy of the tree in which faults are planted, one at a time.

Owns: the copy and its build, below `target/mutants`. Never: changes the tree that it was made from.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from holdfast import system
from tests.mutants.faults import Fault
from tests.tidy.repository import ROOT

PLACE = ROOT / "target" / "mutants"
TREE = PLACE / "tree"
BUILD = PLACE / "build"

NOT_COPIED = (
    *(".git", ".venv", ".hypothesis", ".pytest_cache", ".mypy_cache", ".ruff_cache"),
    *("target", "demo-output", "holdfast-data", "node_modules", "__pycache__"),
)

BUILD_SECONDS_MAXIMUM = 900
"""The first build makes all of the kernel's dependencies, on a machine that does other things."""

TEST_SECONDS_MAXIMUM = 300
"""Each test takes seconds. A fault may make one wait for ever, and that is found too."""


class FaultError(Exception):
    """A fault that cannot be planted, or tests that fail without one: nothing is proven then."""


def copy_tree() -> None:
    """A fresh copy, newer than what was built from the one before: that may have a fault in it."""
    shutil.rmtree(TREE, ignore_errors=True)
    ignored = shutil.ignore_patterns(*NOT_COPIED)
    shutil.copytree(ROOT, TREE, ignore=ignored, copy_function=shutil.copy)


def planted(fault: Fault, text: str) -> str:
    """A file's text with the fault. Raises `FaultError` where its place is not found once."""
    found = text.count(fault.sound)
    if found != 1:
        raise FaultError(f"{fault.file} has the place of this fault {found} times: {fault.name}")
    return text.replace(fault.sound, fault.faulty)


def unnoticed_by(fault: Fault) -> list[str]:
    """Plants the fault and takes it out again; returns those of its tests that pass with it."""
    path = TREE / fault.file
    text = path.read_text()
    path.write_text(planted(fault, text))
    try:
        _build(fault.tests)
        return [test for test in fault.tests if passes(test)]
    finally:
        path.write_text(text)


def check_sound(tests: list[str]) -> None:
    """Raises `FaultError` if one of the tests fails although nothing is planted."""
    _build(tests)
    if failing := [test for test in tests if not passes(test)]:
        raise FaultError("these fail without a fault: " + ", ".join(failing))


def passes(test: str) -> bool:
    """True if the test passes in the copy as it is."""
    file, name = test.split("::")
    command = [*_cargo([Path(file).stem]), "--", "--exact", name]
    if file.endswith(".py"):
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
    try:
        return _run(command, TEST_SECONDS_MAXIMUM).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _build(tests: list[str] | tuple[str, ...]) -> None:
    """A fault that does not compile would be found by every test, and prove nothing."""
    programs = sorted({Path(test.split("::")[0]).stem for test in tests if ".rs::" in test})
    if programs:
        built = _run([*_cargo(programs), "--no-run"], BUILD_SECONDS_MAXIMUM)
        if built.returncode:
            raise FaultError(f"the copy does not build:\n{built.stderr}")


def _cargo(programs: list[str]) -> list[str]:
    chosen = [argument for program in programs for argument in ("--test", program)]
    return ["cargo", "test", "--quiet", "--locked", "-p", "holdfast-kernel", *chosen]


def _run(command: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
    environment = {
        **system.environment(),
        "CARGO_TARGET_DIR": str(BUILD),
        "PYTHONPATH": str(TREE / "src"),
        "RUST_BACKTRACE": "0",
    }
    return subprocess.run(
        command,
        cwd=TREE,
        env=environment,
        timeout=seconds,
        capture_output=True,
        text=True,
        check=False,
    )
