"""What the documents say is so: links lead somewhere, commands exist, pages are current."""

import re
from pathlib import Path

import pytest

from holdfast.broker.observe.metrics import METRICS
from holdfast.core.config import SETTINGS
from tests.tidy import (
    acceptance_coverage,
    exchanges_page,
    kafka_page,
    libraries_page,
    limits_page,
    metrics_page,
    processor_keys_page,
    pulsar_errors_page,
    settings_page,
)
from tests.tidy.repository import ROOT, files, name

LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def documents() -> list[Path]:
    return [path for path in files(".md") if path.name != "acceptance.md"]


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_links_lead_somewhere() -> None:
    broken = []
    for page in documents():
        for target in LINK.findall(FENCE.sub("", page.read_text())):
            file, _, anchor = target.partition("#")
            if "://" in target:
                continue
            reached = (page.parent / file).resolve() if file else page
            if not reached.exists() or (anchor and anchor not in anchors(reached)):
                broken.append(f"{name(page)}: {target}")
    assert not broken


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_documents_that_sources_cite_exist() -> None:
    cited = re.compile(r"docs/[\w/.-]+\.md")
    absent = [
        f"{name(path)}: {document}"
        for path in files(".py", ".pyi", ".rs", ".toml")
        for document in cited.findall(path.read_text())
        if not (ROOT / document).exists()
    ]
    assert not absent


def test_each_command_that_a_document_names_is_a_target() -> None:
    targets = make_targets()
    unknown = [
        f"{name(page)}: make {target}"
        for page in documents()
        for target in re.findall(r"(?:^|[`$(] ?)make ([a-z-]+)", page.read_text(), re.MULTILINE)
        if target not in targets
    ]
    assert not unknown


def test_tests_that_a_page_names_exist() -> None:
    absent = [
        f"{name(page)}: {file}::{test}"
        for page in documents()
        for file, test in re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", page.read_text())
        if not (ROOT / file).exists() or f"def {test}(" not in (ROOT / file).read_text()
    ]
    assert not absent


def test_the_readme_names_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme


def test_each_target_for_people_says_what_it_does() -> None:
    described = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert make_targets() - described <= {"python-test"}


def test_each_page_has_one_title() -> None:
    titles = {
        name(page): len(re.findall(r"^# ", FENCE.sub("", page.read_text()), re.MULTILINE))
        for page in documents()
    }
    assert not {page: count for page, count in titles.items() if count != 1}


def test_the_page_of_limits_says_what_the_code_says() -> None:
    assert limits_page.PAGE.read_text() == limits_page.page(), "run: make docs"


def test_the_page_of_exchanges_says_what_the_code_says() -> None:
    assert exchanges_page.PAGE.read_text() == exchanges_page.page(), "run: make docs"


def test_the_page_of_kafka_says_what_the_code_says() -> None:
    assert kafka_page.PAGE.read_text() == kafka_page.page(), "run: make docs"


def test_the_page_of_settings_says_what_the_code_says() -> None:
    assert settings_page.PAGE.read_text() == settings_page.page(), "run: make docs"


def test_the_page_of_metrics_says_what_the_code_says() -> None:
    assert metrics_page.PAGE.read_text() == metrics_page.page(), "run: make docs"


def test_the_page_of_processors_keys_says_what_the_code_says() -> None:
    assert processor_keys_page.PAGE.read_text() == processor_keys_page.page(), "run: make docs"


def test_the_page_of_pulsars_errors_says_what_the_code_says() -> None:
    assert pulsar_errors_page.PAGE.read_text() == pulsar_errors_page.page(), "run: make docs"


def test_metrics_that_a_page_names_exist() -> None:
    known = {metric.name for metric in metrics_page.METRICS}
    named = {
        found.removesuffix("_total")
        for page in (ROOT / "docs" / "operating").glob("*.md")
        for found in re.findall(r"\bholdfast_[a-z_]+", page.read_text())
    }
    assert not named - known


def test_who_lets_everybody_read_metrics_is_told_what_they_name() -> None:
    labels = {label for metric in METRICS for label in metric.labels}
    named = {"bridge", "cursor", "environment", "group", "subscription", "topic"}
    # What the broker's own words are, a version or a number; `by` is an environment, too.
    own = """
        by direction durability event kind le limit outcome protocol_version qos queues reason since
        stage state step strategy transport version what
    """
    assert labels == named | set(own.split())
    reason = SETTINGS["http.metrics_public"].reason
    assert not {each for each in named if each not in reason}


def test_the_page_of_libraries_says_what_the_tables_say() -> None:
    assert libraries_page.PAGE.read_text() == libraries_page.page(), "run: make docs"


def test_no_test_names_a_behaviour_that_is_not_listed() -> None:
    assert not set(acceptance_coverage.named()) - set(acceptance_coverage.listed())


def test_each_mark_stands_on_one_line() -> None:
    """Whoever looks for a number's tests finds them line by line."""
    torn = re.compile(r"^@pytest\.mark\.accepts\($", re.MULTILINE)
    assert not [name(path) for path in files(".py") if torn.search(path.read_text())]


def test_numbers_of_behaviours_are_unique() -> None:
    numbers = acceptance_coverage.listed()
    assert len(numbers) == len(set(numbers)) == 538


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('@pytest.mark.accepts("S0.3", "S0.4")\ndef test_it(): ...\n', ["S0.3", "S0.4"]),
        ('"""S0.3"""\n# accepts("S0.4")\nx = \'accepts("S0.5")\'\n', []),
    ],
    ids=["marker", "prose"],
)
def test_only_markers_count(source: str, expected: list[str]) -> None:
    assert acceptance_coverage._marked_in_python(source) == expected


@pytest.mark.accepts("S1.15")
def test_each_role_of_a_bridge_is_a_part_that_is_tested_alone() -> None:
    page = (ROOT / "docs/bridges.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", page.split("## The parts")[1], re.M)
    roles = {role.strip(): (_paths(parts), _paths(tests)) for role, parts, tests in rows[1:]}
    assert len(roles) == 8, roles.keys()
    taken: set[str] = set()
    for role, (parts, tests) in roles.items():
        assert parts, role
        assert tests, role
        assert all((ROOT / path).is_file() for path in parts + tests), role
        assert taken.isdisjoint(parts), f"{role} is no part of its own"
        taken |= set(parts)


def _paths(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)
