"""Users of a broker under test, set up as an operator would: by `holdfast user`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.process import BrokerProcess

WITHIN_S = 120.0


class Users:
    """The command line on one broker's data directory."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._data_dir = broker.data_directory

    def run(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        """One command; returns its exit code and what it wrote."""
        command = [str(Path(sys.executable).with_name("holdfast")), "user", *arguments]
        done = subprocess.run(
            [*command, "--data-dir", str(self._data_dir)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        """One command that has to go well; returns what it printed."""
        code, printed, refusal = self.run(*arguments, stdin=stdin)
        assert code == 0, refusal
        return printed

    def add(self, name: str, password: str, *options: str) -> None:
        """A user with a password."""
        self("add", name, "--password-stdin", *options, stdin=f"{password}\n")

    def all(self) -> list[dict[str, Any]]:
        """Every user."""
        found: list[dict[str, Any]] = json.loads(self("list", "--json"))
        return found
