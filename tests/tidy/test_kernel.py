"""The kernel keeps to its side of the language boundary (docs/adr/0001-language-boundary.md)."""

import re

import pytest

from tests.tidy.repository import ROOT, is_rust_test, name, under, without_tests

RUST_LINES_MAXIMUM = 10_000
"""Until Pulsar is spoken: kernel and binding, blank lines and comments included."""

STAGES = ("mqtt", "route", "store", "dispatch")

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


def test_rust_stays_small() -> None:
    sizes = {
        name(path): len(without_tests(path.read_text()))
        for folder in ("kernel/src", "kernel-py/src")
        for path in under(folder, ".rs")
        if not is_rust_test(path)
    }
    assert sum(sizes.values()) <= RUST_LINES_MAXIMUM, sorted(
        sizes.items(), key=lambda item: -item[1]
    )


@pytest.mark.parametrize("stage", STAGES)
def test_each_stage_has_a_twin_that_property_tests_compare_it_with(stage: str) -> None:
    models = under("src/holdfast/testing/model", ".py")
    twins = [
        path for path in models if stage in path.relative_to(ROOT).as_posix().split("model/")[1]
    ]
    assert twins, f"no twin of {stage} in src/holdfast/testing/model"
    imported = "\n".join(path.read_text() for path in under("tests/property", ".py"))
    assert any(f"holdfast.testing.model.{twin.stem}" in imported for twin in twins)
