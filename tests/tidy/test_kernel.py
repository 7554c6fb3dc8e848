"""The kernel keeps to its side of the language boundary (docs/adr/0001-language-boundary.md)."""

import ast
import re
import tomllib
from collections.abc import Iterator

import pytest

from tests.tidy.repository import ROOT, is_rust_test, name, under, without_tests

RUST_LINES_MAXIMUM = {"kernel/src": 20_760, "kernel-py/src": 3_400}
"""For all doors together: lines of code. A comment is never too much (ADR 0007, 0027, 0030)."""

TEST_EQUIPMENT = {"kernel/src/disk/fake.rs"}
"""Compiled in, so that the whole broker can be simulated, but part of no broker that serves."""

TWINS = {
    "mqtt": "codec",
    "pulsar": "pulsar",
    "route": "routes",
    "store": "log",
    "delivery": "cursor",
}
"""Each stage with its twin in `tests/property/twins`."""

STAGES = tuple(TWINS)

FOLDERS_WITHOUT_CIRCLES = ("delivery", "entry", "mqtt", "pulsar", "route", "store", "wire")
"""Folders of the kernel whose files can be read one after the other, from the bottom up."""

ONLY_FOR_TESTS = {
    "Cursor",
    "arrived",
    "entry_key_hash",
    "entry_of_message",
    "murmur3_32",
    "open_entry",
}
"""What only a build with the feature `testing` has."""

# "Application message" is the specification's own term for a payload and stays allowed.
PRODUCT_WORDS = re.compile(
    r"\b(applications?\b(?!\s+messages?)|devices?\b|environments?\b|tenants?\b|namespaces?\b|fleets?\b"
    r"|(retry|skip)_all\b|strateg(y|ies)\b|credentials?\b)",
    re.IGNORECASE,
)
PACKETS = re.compile(
    r"(?i:puback|pubrec|pubrel|pubcomp|connack|suback|pingre[qs]|reason_?code)|\bPUBLISH\b|\bAUTH\b"
    r"|\b(UN)?SUBSCRIBE\b|\b(DIS)?CONNECT\b|\b0x[89A-F][0-9A-F]\b"
    r"|\b(SEND|ACK|FLOW|REDELIVER|MESSAGE|PRODUCER|LOOKUP)(_[A-Z_]+)?\b"
)
NEUTRAL = ("flow.rs", "flow/", "wire/", "delivery/", "route/", "store/")
"""What passes from stage to stage, and the stages that no protocol owns."""
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


@pytest.mark.parametrize("part", NEUTRAL)
def test_what_no_protocol_owns_names_no_packet_and_no_reason_code(part: str) -> None:
    files = under(f"kernel/src/{part}", ".rs")
    assert files, f"{part} has moved; this test looks at nothing"
    found = [
        f"{name(path)}:{number}: {match[0]}"
        for path in files
        for number, line in enumerate(without_tests(path.read_text()), 1)
        if (match := PACKETS.search(line) or re.search(r"\bcrate::(mqtt|pulsar)\b", line))
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


def uses_of(folder: str) -> dict[str, set[str]]:
    """Each file of a kernel folder, with those of its siblings that it names."""
    files = {
        path.stem: "\n".join(line for line in without_tests(path.read_text()) if is_code(line))
        for path in under(f"kernel/src/{folder}", ".rs")
        if path.stem != "mod" and not is_rust_test(path)
    }
    crate = folder.replace("/", "::")
    return {
        file: set(named(rf"\b(?:super|crate::{crate})::", text)) & files.keys() - {file}
        for file, text in files.items()
    }


def named(prefix: str, source: str) -> Iterator[str]:
    """The modules that a source names behind this prefix, one by one or in braces."""
    for group, single in re.findall(prefix + r"(?:\{([^}]*)\}|(\w+))", source):
        yield single
        yield from re.findall(r"\w+", group)


def circles(uses: dict[str, set[str]]) -> list[str]:
    """What is left when files that use nothing that is left are taken away, again and again."""
    left = dict(uses)
    while free := [file for file, used in left.items() if not used & left.keys()]:
        for file in free:
            del left[file]
    return sorted(left)


@pytest.mark.parametrize("folder", FOLDERS_WITHOUT_CIRCLES)
def test_files_of_a_folder_do_not_use_one_another_in_circles(folder: str) -> None:
    uses = uses_of(folder)
    assert any(uses.values()), f"the folder {folder} has moved; this test looks at nothing"
    assert not circles(uses)


def test_a_circle_is_found_wherever_it_lies() -> None:
    uses = {"log": {"scan", "record"}, "scan": {"job"}, "job": {"log"}, "record": set[str]()}
    assert circles(uses) == ["job", "log", "scan"]
    assert not circles({**uses, "job": {"record"}})


@pytest.mark.parametrize("folder", ["route", "store", "wire"])
def test_a_type_has_its_methods_in_its_own_file(folder: str) -> None:
    found = []
    for path in under(f"kernel/src/{folder}", ".rs"):
        text = "\n".join(without_tests(path.read_text()))
        methods_of = re.findall(r"^impl(?:<[^>]*>)? (\w+)(?:<[^>]*>)? \{", text, re.MULTILINE)
        found += [
            f"{name(path)}: {owner}"
            for owner in methods_of
            if not re.search(rf"\b(?:struct|enum) {owner}\b", text)
        ]
    assert not found


@pytest.mark.parametrize("part", ["entry/", "protobuf.rs"])
def test_what_several_stages_need_uses_none_of_them(part: str) -> None:
    files = under(f"kernel/src/{part}", ".rs")
    assert files, f"{part} has moved; this test looks at nothing"
    users = re.compile(r"\bcrate::(mqtt|pulsar|wire|route|store|delivery)\b")
    assert not [name(path) for path in files if users.search(path.read_text())]


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


def test_entries_have_a_twin_that_property_tests_compare_them_with() -> None:
    test = (ROOT / "tests" / "property" / "test_entry.py").read_text()
    assert "from tests.property.twins import entry" in test


@pytest.mark.parametrize("stage", STAGES)
def test_each_stage_has_a_twin_that_property_tests_compare_it_with(stage: str) -> None:
    twin = TWINS[stage]
    assert (ROOT / "tests" / "property" / "twins" / f"{twin}.py").exists()
    import_of_twin = re.compile(
        rf"from tests\.property\.twins(\.{twin} import| import .*\b{twin}\b)"
    )
    assert [
        path
        for path in under("tests/property", ".py")
        if path.name.startswith("test_") and import_of_twin.search(path.read_text())
    ]


def test_what_ships_is_built_without_what_only_tests_need() -> None:
    features = tomllib.loads((ROOT / "kernel-py" / "Cargo.toml").read_text())["features"]
    assert features == {"testing": []}
    assert "features" not in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["maturin"]


def test_nothing_that_ships_uses_what_only_tests_need() -> None:
    found = [
        f"{name(path)}:{node.lineno}: {alias.name}"
        for path in under("src", ".py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module in {"holdfast", "holdfast.kernel"}
        for alias in node.names
        if alias.name in ONLY_FOR_TESTS | {"kernel"}
    ]
    assert not found
