"""The two stories of docs/clients.md, run as a reader would type them."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.installation import mosquitto_clients
from tests.interop.test_admin import eventually
from tests.ports import HeldPort
from tests.process import HOST
from tests.tidy.repository import ROOT

PAGE = ROOT / "docs" / "clients.md"
HOLDFAST = Path(sys.executable).with_name("holdfast")
WITHIN_S = 120


def blocks(title: str) -> list[str]:
    """The commands of one story, block by block."""
    section = PAGE.read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


class Terminal:
    """One shell, in which programs find this test's broker without being told where it is."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._data = directory / "data"
        # The page's commands name the port before the broker runs.
        self._port = HeldPort()
        port = self._port.number
        for program in ("mosquitto_pub", "mosquitto_sub"):
            self._program(program, f'exec {mosquitto_clients() / program} -h {HOST} -p {port} "$@"')
        own = f"--mqtt-port {port} --http-port off --pulsar-port off"
        self._program(
            "holdfast",
            f'if [ "$1" = serve ]; then set -- "$@" {own}; fi\n'
            f'exec {HOLDFAST} "$@" --data-dir {self._data}',
        )
        path = f"{directory / 'bin'}:{os.environ['PATH']}"
        self._shell = subprocess.Popen(
            ["bash"],
            cwd=directory,
            env={"PATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def type(self, commands: str) -> str:
        """What they print, once the shell is done with them."""
        given, printed = self._shell.stdin, self._shell.stdout
        assert given is not None
        assert printed is not None
        given.write(f"{commands}\necho; echo done with this\n")
        given.flush()
        lines: list[str] = []
        for line in printed:
            if line == "done with this\n":
                return "".join(lines)
            lines.append(line)
        raise AssertionError("the shell has ended")

    def queue(self, name: str) -> dict[str, Any] | None:
        """A queue, if it and the broker are there."""
        done = subprocess.run(
            [HOLDFAST, "queue", "show", name, "--json", "--data-dir", self._data],
            capture_output=True,
            timeout=WITHIN_S,
            check=False,
        )
        return json.loads(done.stdout) if done.returncode == 0 else None

    def close(self) -> None:
        """Ends the shell and all that was started in it."""
        os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.communicate(timeout=WITHIN_S)

    def _program(self, name: str, command: str) -> None:
        file = self.directory / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/bash\n{command}\n")
        file.chmod(0o755)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path)
    yield opened
    opened.close()


def wait(terminal: Terminal, name: str, holds: Callable[[dict[str, Any]], bool]) -> None:
    def is_so() -> bool:
        found = terminal.queue(name)
        return found is not None and holds(found)

    eventually(is_so, f"{name} as it is to be")


@pytest.mark.accepts("S0.1")
def test_a_collector_that_was_away_gets_everything_in_order(terminal: Terminal) -> None:
    serve, subscribe, publish, look, back = blocks("A story: away for an hour")
    terminal.type(serve)
    wait(terminal, "tbmq.msg.all", lambda _: True)
    terminal.type(subscribe)
    terminal.type(publish)
    shown = terminal.type(look)
    assert re.search(r"^messages +20$", shown, re.MULTILINE)
    assert re.search(r"^consumers +0$", shown, re.MULTILINE)
    tags = [f"tag {number}" for number in range(1, 21)]
    assert re.findall(r"tag \d+$", shown, re.MULTILINE) == tags
    assert terminal.type(back).split("\n")[:20] == tags


def test_what_a_dead_worker_held_goes_to_the_others(terminal: Terminal) -> None:
    name = "tbmq.msg.app.shared.jobs.mlw"
    serve, start, look, hang, die, count = blocks("A story: three workers, one dies")
    terminal.type(serve)
    wait(terminal, "tbmq.msg.all", lambda _: True)
    terminal.type(start)
    wait(terminal, name, lambda found: found["consumers"] == 3)
    assert "worker1, worker2, worker3" in terminal.type(look)
    terminal.type(hang)
    found = terminal.queue(name)
    assert found is not None
    assert found["readers"][0]["in_flight"] > 0
    terminal.type(die)
    wait(terminal, name, lambda found: found["readers"][0]["waiting"] == 0)
    wait(terminal, name, lambda found: found["readers"][0]["in_flight"] == 0)
    assert terminal.type(count).strip() == "30"
