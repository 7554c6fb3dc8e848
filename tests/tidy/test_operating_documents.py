"""What the pages for operators tell to type can be typed, and the files beside them fit the
broker."""

import configparser
import re
import shlex
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from holdfast.cli import parser
from holdfast.core.config import SETTINGS, Config
from holdfast.core.errors import BrokerAbsentError
from holdfast.core.sections import TABLES
from holdfast.core.sources import Sources
from tests.builders.served import served
from tests.builders.stored import store
from tests.tidy.repository import ROOT, name

PAGES = sorted((ROOT / "docs" / "operating").glob("*.md"))
FENCE = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\S*/bin/)?holdfast (.*?)(?: +#.*)?$")


def commands() -> list[str]:
    """The words of every `holdfast` command in a block of a page."""
    return [
        found[1]
        for page in [*PAGES, ROOT / "README.md"]
        for block in FENCE.findall(page.read_text())
        for line in block.splitlines()
        if (found := COMMAND.match(line))
    ]


@pytest.mark.parametrize("words", commands())
def test_a_command_of_a_page_is_one_of_the_command_line(words: str) -> None:
    # Whoever asks for the version or for help is answered by the parser itself.
    with suppress(SystemExit) if set(words.split()) & {"--version", "--help"} else nullcontext():
        parser().parse_args(shlex.split(words))


def test_settings_that_a_page_names_exist() -> None:
    variable = re.compile(r"\bHOLDFAST_[A-Z_]+[A-Z]\b")
    known = {row.environment_variable for row in SETTINGS.values()}
    files = [*PAGES, *(ROOT / "docs" / "operating").glob("*file"), unit_file()]
    unknown = {
        f"{name(file)}: {found}"
        for file in files
        for found in variable.findall(file.read_text())
        if found not in known
    }
    assert not unknown


def test_names_of_settings_that_a_page_has_exist() -> None:
    written = re.compile(rf"`((?:{'|'.join(TABLES)})\.[a-z_]+)\b")
    pages = [*PAGES, ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    found = {(page, each) for page in pages for each in written.findall(page.read_text())}
    assert len(found) > len(SETTINGS)
    assert not {f"{name(page)}: {each}" for page, each in found if each not in SETTINGS}


def test_files_of_settings_that_a_page_shows_name_nothing_unknown() -> None:
    block = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
    files = [(str(page), found) for page in PAGES for found in block.findall(page.read_text())]
    assert files
    for file in files:
        assert Sources(SETTINGS).written(file, {}, {})


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "operating" / "README.md").read_text()
    beside = {path.name for path in (ROOT / "docs" / "operating").iterdir()} - {"README.md"}
    assert not {each for each in beside if f"]({each})" not in index}


def unit_file() -> Path:
    return ROOT / "docs" / "operating" / "holdfast.service"


def unit() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(unit_file().read_text())
    return parser["Service"]


def test_the_unit_starts_the_broker_and_leaves_it_the_time_that_it_takes() -> None:
    service = unit()
    command = COMMAND.match(service["ExecStart"])
    assert command is not None
    assert vars(parser().parse_args(shlex.split(command[1])))["config"]
    assert service["Type"] == "notify"
    assert "HUP" in service["ExecReload"]
    assert int(service["TimeoutStopSec"]) > Config().stop_timeout_s
    assert int(service["LimitNOFILE"]) > Config().connections_maximum


def test_the_container_is_built_from_what_is_there_and_runs_as_nobody_in_particular() -> None:
    lines = (ROOT / "docs" / "operating" / "Containerfile").read_text().splitlines()
    stages = [number for number, line in enumerate(lines) if line.startswith("FROM ")]
    assert len(stages) == 2
    copied = [
        word
        for line in lines
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
    ]
    assert not [word for word in copied if not (ROOT / word).exists()]
    last = lines[stages[-1] :]
    assert "USER holdfast" in last
    assert "VOLUME /var/lib/holdfast" in last
    assert any(line.startswith("HEALTHCHECK") for line in last)
    assert parser().parse_args(["serve"])
    assert 'ENTRYPOINT ["holdfast"]' in last
    assert 'CMD ["serve"]' in last


def test_the_health_check_of_the_container_asks_a_broker_by_its_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = (ROOT / "docs" / "operating" / "Containerfile").read_text()
    [program] = re.findall(r'CMD \["python", "-c", "(.*)"\]', content)
    monkeypatch.setenv("HOLDFAST_DATA_DIR", str(tmp_path))
    with pytest.raises(BrokerAbsentError):
        exec(program)
    store(tmp_path / "data", [])
    monkeypatch.setenv("HOLDFAST_DATA_DIR", str(tmp_path / "data"))
    with served(tmp_path / "data"):
        exec(program)
