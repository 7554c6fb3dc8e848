"""The repository's own rules for its sources; STYLE.md gives the reasons."""

import ast
import re
from pathlib import Path

import pytest

from tests.tidy.repository import ROOT, files, is_rust_test, name, under, without_tests

FUNCTION_LINES_MAXIMUM = 70
FILE_LINES_MAXIMUM = 600
RUST_LINE_CHARACTERS_MAXIMUM = 120

BANNED_NAMES = {
    "utils",
    "util",
    "helpers",
    "helper",
    "common",
    "manager",
    "handler",
    "impl",
    "base",
    "service",
    "misc",
}

REAL_TIME = {"crash", "journey", "load.py", "simulation", "soak"}
"""Tests that may sleep."""

RUST_FUNCTION = re.compile(r"^(\s*)(?:pub(?:\([a-z]+\))? )?(?:const )?(?:async )?fn (\w+)")


def sources() -> list[Path]:
    return [path for path in files(".py", ".rs") if path.stat().st_size]


def python_functions(path: Path) -> list[tuple[str, int]]:
    return [
        (node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def rust_functions(path: Path) -> list[tuple[str, int]]:
    """By layout: rustfmt ends a function with a brace at the column where it began."""
    lines = path.read_text().splitlines()
    found = []
    for start, line in enumerate(lines):
        if match := RUST_FUNCTION.match(line):
            end_line = match[1] + "}"
            ends = (
                n
                for n in range(start, len(lines))
                if lines[n] == end_line or (lines[n].endswith((";", "}")) and n == start)
            )
            found.append((match[2], next(ends, start) - start + 1))
    return found


def test_functions_fit_a_screen() -> None:
    long = [
        f"{name(path)}: {function} has {lines} lines"
        for path in sources()
        for function, lines in (python_functions if path.suffix == ".py" else rust_functions)(path)
        if lines > FUNCTION_LINES_MAXIMUM
    ]
    assert not long


def test_files_fit_a_sitting() -> None:
    sizes = {
        name(path): len(
            without_tests(path.read_text())
            if path.suffix == ".rs"
            else path.read_text().splitlines()
        )
        for path in sources()
    }
    assert not {file: lines for file, lines in sizes.items() if lines > FILE_LINES_MAXIMUM}


def test_rust_lines_are_readable() -> None:
    long = [
        f"{name(path)}:{number}"
        for path in files(".rs")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > RUST_LINE_CHARACTERS_MAXIMUM
    ]
    assert not long


def test_files_are_named_for_what_they_hold() -> None:
    assert not [
        name(path) for path in sources() if BANNED_NAMES & set(path.stem.lower().split("_"))
    ]


def test_each_module_says_what_it_is() -> None:
    silent = [
        name(path)
        for path in sources()
        if (path.suffix == ".py" and not ast.get_docstring(ast.parse(path.read_text())))
        or (path.suffix == ".rs" and not is_rust_test(path) and "//!" not in path.read_text()[:200])
    ]
    assert not silent


def test_nothing_is_left_for_later() -> None:
    words = re.compile(r"\b(TODO|FIXME|XXX)\b")
    found = [
        f"{name(path)}:{number}"
        for path in files(".py", ".rs", ".md", ".toml", ".pyi")
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if words.search(line)
    ]
    assert not found


def test_no_path_of_one_machine() -> None:
    paths = re.compile(r"/(work|root)/|/home/\w")
    found = [
        f"{name(path)}:{number}"
        for path in files()
        if path.suffix not in {".png", ".lock"} and path != Path(__file__)
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if paths.search(line)
    ]
    assert not found


def test_locks_name_no_place_to_download_from() -> None:
    locks = [ROOT / "requirements.lock", ROOT / "requirements-java.lock"]
    assert not [
        name(lock) for lock in locks if re.search(r"://|index-url|find-links", lock.read_text())
    ]


def test_nothing_waits_for_real_time() -> None:
    # Crash tests drive real processes, which take real time; in a simulation sleeping takes none.
    sleeping = [
        f"{name(path)}:{number}"
        for path in under("tests", ".py")
        if not REAL_TIME & set(path.parts) and path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"\bsleep\((?!0\))", line)
    ]
    assert not sleeping


def test_each_limit_limits_something() -> None:
    module = ROOT / "src" / "holdfast" / "core" / "limits.py"
    names = re.findall(r"^([A-Z_]+): Final", module.read_text(), re.MULTILINE)
    used = "\n".join(path.read_text() for path in under("src", ".py") if path != module)
    assert not [limit for limit in names if not re.search(rf"\b{limit}\b", used)]


def test_each_setting_is_read_somewhere() -> None:
    from holdfast.core.config import SETTINGS

    used = "\n".join(path.read_text() for path in under("src", ".py"))
    rows = SETTINGS.values()
    assert not [row.name for row in rows if not re.search(rf"\.{row.attribute}\b", used)]


@pytest.mark.parametrize(
    "source", ["fn a() {\n    b\n}\n", "    fn a() -> u8 {\n        {\n        }\n    }\n"]
)
def test_rust_functions_are_measured_to_their_last_line(source: str, tmp_path: Path) -> None:
    file = tmp_path / "a.rs"
    file.write_text(source)
    assert rust_functions(file) == [("a", len(source.splitlines()))]


PARTS = {"counts", "kernel", "records", "stages", "sweep", "turn"}
"""Attributes of a server by which somebody would reach into a part of it."""


def test_who_looks_on_from_outside_reaches_into_no_part() -> None:
    outside = (*under("src/holdfast/broker/admin", ".py"), *under("src/holdfast/broker/observe"))
    reaching = [
        f"{name(path)}:{node.lineno}: {ast.unparse(node)}"
        for path in outside
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and (node.attr in ("kernel", "stages") or "server" in ast.unparse(node.value))
        and node.attr in PARTS
    ]
    assert not reaching
