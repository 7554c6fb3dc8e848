"""docs/processors-first-start.md, typed as a reader would, on ports that the system gives."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.interop.installation import mosquitto_clients
from tests.interop.test_admin import eventually
from tests.ports import HeldPort
from tests.process import HOST
from tests.tidy.repository import ROOT

PAGE = ROOT / "docs" / "processors-first-start.md"
WITHIN_S = 120
READ = "fx-7|E28011602000A001|"


class Reader:
    """Somebody who types what the page says, in several terminals."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = {"8883": HeldPort(), "8443": HeldPort()}
        self._health = HeldPort()
        self._left_running: list[subprocess.Popen[bytes]] = []
        self._write_sqlite3(folder / "bin" / "sqlite3")
        programs = f"{folder / 'bin'}:{Path(sys.executable).parent}:{mosquitto_clients()}"
        self._variables = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "RFID_PASSWORD": "reads-rfid",
            "Mqtt__HealthPort": str(self._health.number),
        }

    def _write_sqlite3(self, file: Path) -> None:
        """Not every machine has the program; Python has what it does."""
        query = "sqlite3.connect(sys.argv[1]).execute(sys.argv[2])"
        each = f"for row in {query}: print(*row, sep='|')"
        file.parent.mkdir()
        file.write_text(f"#!{sys.executable}\nimport sqlite3, sys\n{each}\n")
        file.chmod(0o755)

    def blocks(self) -> list[str]:
        """What the page tells to type."""
        text = PAGE.read_text()
        for port, held in self._ports.items():
            text = re.sub(rf"\b{port}\b", str(held.number), text)
        return re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)

    def type(self, block: str) -> str:
        """What a block prints; it ends well."""
        done = subprocess.run(
            ["bash", "-e", "-c", block],
            cwd=self._folder,
            env=self._variables,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def leave_running(self, block: str) -> None:
        """A block that goes on in a terminal of its own."""
        with (self._folder / "terminal.log").open("ab") as log:
            command = ["bash", "-c", f"exec {block}"]
            started = subprocess.Popen(
                command, cwd=self._folder, env=self._variables, stdout=log, stderr=log
            )
        self._left_running.append(started)

    def listens(self) -> bool:
        """The broker takes connections, at both ports."""
        try:
            for held in self._ports.values():
                socket.create_connection((HOST, held.number), 1).close()
        except OSError:
            return False
        return True

    def is_ready(self) -> bool:
        """The processor takes messages."""
        try:
            with urlopen(f"http://{HOST}:{self._health.number}/health/ready") as answer:
                return bool(answer.status == HTTPStatus.OK)
        except OSError:
            return False

    def end(self) -> list[int]:
        """Ends what runs, the last one first; returns the exit codes."""
        codes = []
        while self._left_running:
            each = self._left_running.pop()
            each.send_signal(signal.SIGTERM)
            codes.append(each.wait(WITHIN_S))
        return codes


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    typing = Reader(tmp_path)
    yield typing
    typing.end()


@pytest.mark.accepts("S3.48", "S3.51", "S3.50", "S3.62", "S3.31", "S3.55", "S3.57", "S3.58")
def test_the_page_can_be_typed(reader: Reader) -> None:
    users, settings, serve, files, check, run, publish, look, ask = reader.blocks()
    reader.type(users)
    reader.type(settings)
    reader.leave_running(serve)
    eventually(reader.listens, "the broker listens")
    reader.type(files)
    assert "********" in reader.type(check)
    reader.leave_running(run)
    eventually(reader.is_ready, "the processor is ready")
    reader.type(publish)
    eventually(lambda: READ in reader.type(look), "the read is a row")
    clients, subscriptions = (json.loads(each)["data"] for each in _documents(reader.type(ask)))
    [client] = [each for each in clients if each["username"] == "dplx-bbu-rfid"]
    assert client["clean_start"] is False
    # The record's tools ask for it by this name.
    assert client["session_expiry_interval"] == 3600
    filters = {each["topic"] for each in subscriptions}
    group = client["clientid"].removeprefix("bbu-processor-")
    assert all(re.match(r"\$share/bbu-processors-local-[^/]+/zebra/fx/", each) for each in filters)
    assert group.startswith("local-")
    assert reader.end() == [0, 0]


def _documents(text: str) -> list[str]:
    """Documents of JSON, one behind the other."""
    decoder, found = json.JSONDecoder(), []
    while text := text.strip():
        _, end = decoder.raw_decode(text)
        found.append(text[:end])
        text = text[end:]
    return found
