"""Files and commands as docs/pipeline/cluster.md has them, with what a test has in their place."""

import re
from collections.abc import Mapping
from pathlib import Path

from tests.tidy.repository import ROOT

PAGE = ROOT / "docs" / "pipeline" / "cluster.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def file(name: str) -> str:
    """The file that begins with its name."""
    (found,) = (text for _, text in _blocks() if text.startswith(f"# {name}\n"))
    return found


def commands(program: str) -> str:
    """The block of commands that starts a program."""
    (found,) = (text for kind, text in _blocks() if kind == "sh" and f"\n{program}" in f"\n{text}")
    return found


def placed(text: str, instead: Mapping[str, object]) -> str:
    """The text with what stands for something else replaced; all of it has to be there."""
    for shown, real in instead.items():
        assert shown in text, f"the page does not have {shown}"
        text = text.replace(shown, str(real))
    return text


def write(directory: Path, name: str, text: str) -> Path:
    """A file of the page, below a directory."""
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _blocks() -> list[tuple[str, str]]:
    return BLOCK.findall(PAGE.read_text())
