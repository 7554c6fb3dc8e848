"""The brokers that lines are played on."""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.beside.stage import Served, copy_log
from bench.macro.brokers import Broker, Holdfast
from bench.macro.machine import ROOT
from bench.macro.rows import Row
from holdfast.client.http import HttpClient
from tests.process import BrokerProcess

WORK = ROOT / "target" / "beside"
"""On the disk that holds the project, not in a temporary directory that may be memory."""
RELOADED_WITHIN_S = 60.0
NOTHING = Row("beside", (), ())
RECORDS = ("tables.py", "view.py")
"""Where the form of control records is."""

Fill = Callable[[int], None]
"""Makes over MQTT, on this port, what a line finds."""


class Ours:
    """Holdfast; `program` may be that of another work tree."""

    name = "holdfast"

    def __init__(self, program: Path) -> None:
        self.program = program

    def version(self) -> str:
        """What the program says."""
        return Holdfast(self.program, "fsync").version()

    @contextmanager
    def serve(
        self, key: str, fill: Fill | None, settings: Mapping[str, object], *, fresh: bool
    ) -> Iterator[Served]:
        """A broker on a copy of the log that `fill` has made once and `key` names."""
        directory = WORK / "run"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        if fill:
            copy_log(self._prepared(key, fill, settings, fresh=fresh), directory / "data")
        # What was written before keeps no disk busy during the line.
        os.sync()
        with running(self.program, directory, settings) as served:
            yield served
        shutil.rmtree(directory)

    def _prepared(
        self, key: str, fill: Fill, settings: Mapping[str, object], *, fresh: bool
    ) -> Path:
        directory = WORK / f"{key}-{maker(self.program)}"
        whole = directory / "whole"
        if fresh or not whole.exists():
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
            # While it is filled nothing is to go.
            kept = {name: settings[name] for name in settings if name not in PLAYED}
            with running(self.program, directory, kept) as served:
                fill(served.port)
            whole.touch()
        return directory / "data"


def maker(program: Path) -> str:
    """What stands for a program and the records that it writes. A log of another one may be none of
    its own, and one whose records have another form it would write anew while it is measured."""
    told = hashlib.sha256(str(program).encode())
    for name in RECORDS:
        path = (
            program.absolute().parent.parent.parent / "src" / "holdfast" / "broker" / "store" / name
        )
        if path.exists():
            told.update(path.read_bytes())
    return told.hexdigest()[:8]


PLAYED = ("log.retention_bytes", "log.checkpoint_bytes")
"""Settings of a line that hold while it is played, and not while its log is made."""


class _Holdfast(BrokerProcess):
    """One process with its settings in a file, so that a reload finds others."""

    def __init__(self, program: Path, directory: Path, settings: Mapping[str, object]) -> None:
        self.directory = directory
        self._file = directory / "holdfast.toml"
        super().__init__(directory, "--config", str(self._file), http_port=0)
        self.program = [str(program)]
        self._given = dict(settings)
        self._write()

    @contextmanager
    def empty(self) -> Iterator[Served]:
        """Another one that holds nothing, with the same settings."""
        directory = self.directory.with_name("run-empty")
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        with running(Path(self.program[0]), directory, self._given) as other:
            yield other
        shutil.rmtree(directory)

    def _write(self) -> None:
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in self._given.items()]
        self._file.write_text("".join(lines))

    @property
    def process(self) -> int:
        """Its number."""
        return self.process_identifier

    def reload(self, settings: Mapping[str, object]) -> None:
        """These settings hold from now on."""
        self._given |= settings
        self._write()
        HttpClient.on(self.data_directory).post("/v1/configuration/reload")


@contextmanager
def running(program: Path, directory: Path, settings: Mapping[str, object]) -> Iterator[_Holdfast]:
    """A broker on this directory; it is stopped in the end."""
    broker = _Holdfast(program, directory, {"log.retention_bytes": "64GiB", **settings})
    broker.start()
    try:
        yield broker
    finally:
        if broker.is_running():
            broker.stop()


class Theirs:
    """Another broker: what a line finds is made anew for each."""

    def __init__(self, broker: Broker) -> None:
        self.name = broker.name
        self._broker = broker

    def version(self) -> str:
        """What the program says."""
        return self._broker.version()

    @contextmanager
    def serve(
        self, key: str, fill: Fill | None, settings: Mapping[str, object], *, fresh: bool
    ) -> Iterator[Served]:
        """A fresh process."""
        directory = WORK / f"run-{self.name}"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        directory.chmod(0o755)
        with self._broker.serve(NOTHING, directory) as (process, port):
            if fill:
                fill(port)
            yield _Foreign(port, process, directory)
        shutil.rmtree(directory, ignore_errors=True)


@dataclass(frozen=True)
class _Foreign:
    port: int
    process: int
    directory: Path
    http_port: int = 0

    def reload(self, settings: Mapping[str, object]) -> None:
        raise AssertionError("a line that lowers something is not for others")

    def kill(self) -> None:
        raise AssertionError("a line that kills is not for others")

    launch = kill

    def empty(self) -> AbstractContextManager[Served]:
        raise AssertionError("a line that compares with an empty one is not for others")


def stored_bytes(directory: Path) -> int:
    """What the segments of a broker's log take now."""
    total = 0
    for entry in os.scandir(directory / "data" / "log"):
        try:
            total += entry.stat().st_size
        except FileNotFoundError:
            continue
    return total


def wait_until_shrunk(directory: Path, below_bytes: int, within_s: float) -> float:
    """Waits until the log takes less, or time is up; what it takes then."""
    began = time.monotonic()
    while (size := stored_bytes(directory)) > below_bytes and time.monotonic() - began < within_s:
        time.sleep(0.1)
    return size
