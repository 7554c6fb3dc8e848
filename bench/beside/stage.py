"""What a line is played on: a broker on a log of its own, fifty pairs and a prober beside it."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bench.beside.figures import Moment, Sample, Spread
from bench.beside.wire import ANSWER_WITHIN_S, HOST
from bench.macro import standstill
from bench.macro.brokers import processor_ticks
from bench.macro.machine import ROOT
from bench.macro.measurement import GENERATOR

PAIRS = 50
DISK_ALONE_S = 2.0
SETTLE_S = 2.0
"""Pairs and prober have begun by then."""
STOP_WITHIN_S = 60.0
FOREVER_S = 3_600


@dataclass(frozen=True)
class Flow:
    """What the pairs do together."""

    messages_per_second: int
    payload_bytes: int = 64


class Served(Protocol):
    """A broker that runs."""

    @property
    def port(self) -> int:
        """Where it takes MQTT."""

    @property
    def http_port(self) -> int:
        """Where it is administered."""

    @property
    def process(self) -> int:
        """Its number."""

    @property
    def directory(self) -> Path:
        """Everything of this run lies below it."""

    def reload(self, settings: Mapping[str, object]) -> None:
        """These settings hold from now on."""

    def kill(self) -> None:
        """Ends it as a crash would."""

    def launch(self) -> None:
        """Starts it again, and does not wait."""

    def empty(self) -> contextlib.AbstractContextManager["Served"]:
        """Another one of the same kind that holds nothing."""


class Probe:
    """A process that notes samples until it is ended."""

    def __init__(self, module: str, argument: str, directory: Path) -> None:
        """Begins it; it probes when this returns."""
        self._file = directory / f"{module}.json"
        command = [sys.executable, "-m", f"bench.beside.{module}", argument, str(self._file)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def end(self) -> dict[str, Any]:
        """Ends it; what it noted."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        found: dict[str, Any] = json.loads(self._file.read_text()) if self._file.exists() else {}
        return found


def disk_alone(directory: Path) -> list[Sample]:
    """How long the disk takes for small syncs while nobody else uses it."""
    probe = Probe("disk", str(directory), directory)
    time.sleep(DISK_ALONE_S)
    return [(at, took) for at, took in probe.end()["synced"]]


@dataclass
class _Window:
    title: str
    began_ns: int
    ended_ns: int
    own_ms: dict[str, float]


@dataclass
class Stage:
    """One line that is being played: it opens windows, and says what happened in them."""

    broker: Served
    say: Callable[[str], None]
    windows: list[_Window] = field(default_factory=list)

    @contextlib.contextmanager
    def window(self, title: str) -> Iterator[dict[str, float]]:
        """What the prober sees meanwhile is one moment; yields where to note what others waited,
        in milliseconds."""
        own: dict[str, float] = {}
        began_ns = time.monotonic_ns()
        try:
            yield own
        finally:
            self.windows.append(_Window(title, began_ns, time.monotonic_ns(), own))
        told = ", ".join(f"{name} {took:.0f}" for name, took in own.items())
        self.say(f"  {title}: {self.windows[-1].ended_ns / 1e9 - began_ns / 1e9:.1f} s; {told}")

    def rest(self, seconds: float, title: str = "nothing going on") -> None:
        """A window in which nothing is done."""
        with self.window(title):
            time.sleep(seconds)

    def get(self, path: str) -> float:
        """Asks over HTTP; how many milliseconds the whole answer took."""
        began = time.monotonic()
        self.read(path)
        return (time.monotonic() - began) * 1e3

    def read(self, path: str) -> bytes:
        """What is answered over HTTP."""
        return read_http(self.broker.http_port, path)


def read_http(port: int, path: str) -> bytes:
    """What is answered to GET. Raises `OSError` where it is not 200."""
    connection = http.client.HTTPConnection(HOST, port, timeout=ANSWER_WITHIN_S)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        content = answer.read()
    if answer.status != 200:
        raise OSError(f"{path} was answered with {answer.status}: {content[:200]!r}")
    return content


def timed(do: Callable[[], object]) -> float:
    """How many milliseconds it takes."""
    began = time.monotonic()
    do()
    return (time.monotonic() - began) * 1e3


def play(
    broker: Served, flow: Flow, act: Callable[[Stage], None], say: Callable[[str], None]
) -> tuple[list[Moment], list[str]]:
    """Plays a line on a broker; its moments, and whose connections the broker ended or what it did
    not answer."""
    stage = Stage(broker, say)
    work = broker.directory
    ended: list[str] = []
    with _pairs(broker.port, flow, work, ended), standstill.noted(work) as stood:
        prober = Probe("prober", str(broker.port), work)
        disk = Probe("disk", str(work), work)
        try:
            time.sleep(SETTLE_S)
            act(stage)
        except OSError as error:
            # Whoever did it waited too long or lost its connection; what the prober saw counts.
            ended.append(f"not played to its end: {type(error).__name__}: {error}")
        finally:
            seen, synced = prober.end(), disk.end()
    if seen["broken"]:
        ended.append(f"{seen['broken']} connections of the prober broke")
    noted = {**seen, "synced": synced["synced"], "stood": stood}
    return [_moment(window, noted) for window in _with_the_whole(stage.windows)], ended


def _with_the_whole(windows: list[_Window]) -> list[_Window]:
    """Before its parts: a thousandth of a short one is nothing."""
    if len(windows) < 2:
        return windows
    return [_Window("the whole line", windows[0].began_ns, windows[-1].ended_ns, {}), *windows]


def play_alone(
    broker: Served, act: Callable[[Stage], None], say: Callable[[str], None]
) -> list[Moment]:
    """Plays a line without pairs and prober; its moments have no samples."""
    stage = Stage(broker, say)
    act(stage)
    nothing = dict.fromkeys(("puback", "ping", "late", "synced", "stood"), ())
    return [_moment(window, nothing) for window in stage.windows]


def _moment(window: _Window, noted: Mapping[str, Any]) -> Moment:
    def spread(samples: Sequence[Sample]) -> Spread:
        return Spread.of(samples, window.began_ns, window.ended_ns)

    return Moment(
        title=window.title,
        seconds=(window.ended_ns - window.began_ns) / 1e9,
        puback=spread(noted["puback"]),
        ping=spread(noted["ping"]),
        late_ms=spread(noted["late"]).maximum,
        disk_meanwhile_ms=spread(noted["synced"]).maximum,
        own_ms=window.own_ms,
        standstill=spread(noted["stood"]) if noted["stood"] else None,
    )


@contextlib.contextmanager
def _pairs(port: int, flow: Flow, directory: Path, ended: list[str]) -> Iterator[None]:
    command = [
        str(GENERATOR), "steady", "--port", str(port), "--qos", "1", "--pairs", str(PAIRS),
        "--rate", str(max(PAIRS, flow.messages_per_second)),
        "--payload", str(flow.payload_bytes),
        "--seconds", str(FOREVER_S), "--deadline", str(FOREVER_S),
    ]  # fmt: skip
    log = directory / "pairs.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield
        if process.poll() is not None:
            ended.append(f"the pairs ended: {log.read_text().strip()[-400:]}")
    finally:
        process.kill()
        process.wait()


def processor_s(process: int) -> float:
    """User and system time of a process so far."""
    return processor_ticks(process) / os.sysconf("SC_CLK_TCK")


def copy_log(source: Path, target: Path) -> None:
    """The data directory again, for a broker that will change it: sealed segments, which nobody
    writes to any more, are the same files under another name."""
    segments = sorted((source / "log").glob("segment-*.log"))
    for path in sorted(source.rglob("*")):
        copy = target / path.relative_to(source)
        if path.is_dir():
            copy.mkdir(parents=True, exist_ok=True)
        elif path in segments[:-1]:
            os.link(path, copy)
        elif path.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
