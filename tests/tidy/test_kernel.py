"""The kernel keeps to its side of the language boundary (docs/adr/0001-language-boundary.md)."""

import re

import pytest

from tests.tidy.repository import ROOT, is_rust_test, name, under, without_tests

RUST_LINES_MAXIMUM = {"kernel/src": 16_000, "kernel-py/src": 2_800}
"""For all doors together: lines of code. A comment is never too much (ADR 0007, 0015)."""

TEST_EQUIPMENT = {"kernel/src/disk/fake.rs"}
"""Compiled in, so that the whole broker can be simulated, but part of no broker that serves."""

TWINS = {"mqtt": "codec", "route": "routes", "store": "log", "dispatch": "cursor"}
"""Each stage with its twin in `src/holdfast/testing/model`."""

STAGES = tuple(TWINS)

# "Application message" is the specification's own term for a payload and stays allowed.
PRODUCT_WORDS = re.compile(
    r"\b(applications?\b(?!\s+messages?)|devices?\b|environments?\b|tenants?\b|namespaces?\b|fleets?\b"
    r"|(retry|skip)_all\b|strateg(y|ies)\b|credentials?\b)",
    re.IGNORECASE,
)
OUTSIDE_WORLD = re.compile(
    r"\b(std::net|std::thread|std::time|std::env|std::process|SystemTime|Instant::|rand::|tokio|pyo3)\b"
)


def kernel_files() -> list[tuple[str, list[str]]]:
    return [
        (name(path), without_tests(path.read_text()))
        for path in under("kernel", ".rs")
        if not is_rust_test(path)
    ]


@pytest.mark.parametrize(
    "pattern", [PRODUCT_WORDS, OUTSIDE_WORLD], ids=["product", "outside world"]
)
def test_kernel_knows_no_word_of(pattern: re.Pattern[str]) -> None:
    found = [
        f"{file}:{number}: {match[0]}"
        for file, lines in kernel_files()
        for number, line in enumerate(lines, 1)
        if (match := pattern.search(line))
    ]
    assert not found


@pytest.mark.parametrize("stage", STAGES)
def test_stages_do_not_use_one_another(stage: str) -> None:
    others = set(STAGES) - {stage}
    files = [*under(f"kernel/src/{stage}", ".rs"), *under(f"kernel/src/{stage}.rs", ".rs")]
    assert files, f"the stage {stage} has moved; this test looks at nothing"
    found = [
        f"{name(path)}: crate::{used}"
        for path in files
        for used in re.findall(r"\bcrate::(\w+)", path.read_text())
        if used in others
    ]
    assert not found


def is_code(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("//")


@pytest.mark.parametrize("folder", RUST_LINES_MAXIMUM)
def test_rust_stays_small(folder: str) -> None:
    sizes = {
        name(path): sum(is_code(line) for line in without_tests(path.read_text()))
        for path in under(folder, ".rs")
        if not is_rust_test(path) and name(path) not in TEST_EQUIPMENT
    }
    assert sum(sizes.values()) <= RUST_LINES_MAXIMUM[folder], sorted(
        sizes.items(), key=lambda item: -item[1]
    )


@pytest.mark.parametrize("stage", STAGES)
def test_each_stage_has_a_twin_that_property_tests_compare_it_with(stage: str) -> None:
    twin = TWINS[stage]
    assert (ROOT / "src" / "holdfast" / "testing" / "model" / f"{twin}.py").exists()
    import_of_twin = re.compile(
        rf"from holdfast\.testing\.model(\.{twin} import| import .*\b{twin}\b)"
    )
    assert [
        path for path in under("tests/property", ".py") if import_of_twin.search(path.read_text())
    ]
