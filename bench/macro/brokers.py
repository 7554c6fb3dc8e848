"""Broker processes: started on a port of their own for one measurement, and stopped."""

import resource
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.macro.machine import ROOT
from bench.macro.rows import Row

START_SECONDS = 60
STOP_SECONDS = 15
LOG_CHARACTERS = 400


class BrokerError(Exception):
    """A broker did not start, or ended by itself; says what it last wrote."""


class Broker(ABC):
    """One of the brokers that are compared."""

    name: str

    @abstractmethod
    def version(self) -> str:
        """The version as the broker tells it."""

    @abstractmethod
    def command(self, row: Row, port: int, directory: Path) -> list[str]:
        """Write what the broker needs into its empty directory; the command to start it."""

    @contextmanager
    def serve(self, row: Row, directory: Path) -> Iterator[tuple[int, int]]:
        """A fresh process; yields its number and its port, and stops it in the end."""
        port = _free_port()
        log = directory / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                self.command(row, port, directory), stdout=output, stderr=output, cwd=ROOT
            )
        try:
            self._wait_until_it_listens(process, port, log)
            yield process.pid, port
            if process.poll() is not None:
                raise BrokerError(f"{self.name} ended: {_tail(log)}")
        finally:
            _stop(process)

    def _wait_until_it_listens(
        self, process: subprocess.Popen[bytes], port: int, log: Path
    ) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise BrokerError(f"{self.name} did not start: {_tail(log)}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.02)
        raise BrokerError(f"{self.name} did not listen within {START_SECONDS} s: {_tail(log)}")


class Holdfast(Broker):
    """This project's broker, with its defaults and fsync before each acknowledgement."""

    name = "holdfast"

    def __init__(self, program: Path, durability: str) -> None:
        self._program = program
        self._durability = durability

    def version(self) -> str:
        """What `holdfast --version` says."""
        return _first_line([str(self._program), "--version"])

    def command(self, row: Row, port: int, directory: Path) -> list[str]:
        """Settings of the row go into a file; everything else is an option."""
        settings = directory / "holdfast.toml"
        lines = [f"{name} = {value}\n" for name, value in row.holdfast_settings.items()]
        settings.write_text("".join(lines))
        return [
            str(self._program), "serve",
            "--config", str(settings),
            "--data-dir", str(directory / "data"),
            "--mqtt-port", str(port),
            "--http-port", "off",
            "--durability", self._durability,
        ]  # fmt: skip


class Mosquitto(Broker):
    """Eclipse Mosquitto without persistence and without limits on what it queues."""

    name = "mosquitto"

    CONFIGURATION = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
max_queued_messages 0
max_inflight_messages 0
set_tcp_nodelay true
sys_interval 0
log_dest stderr
log_type error
log_type warning
connection_messages false
"""

    def __init__(self, program: str) -> None:
        self._program = program

    def version(self) -> str:
        """What the help says; the program has no other way."""
        return _first_line([self._program, "-h"])

    def command(self, row: Row, port: int, directory: Path) -> list[str]:
        """Everything is in a file."""
        configuration = directory / "mosquitto.conf"
        configuration.write_text(self.CONFIGURATION.format(port=port))
        return [self._program, "-c", str(configuration)]


def allow_many_connections() -> None:
    """Let this process and its children open as many files as the system permits."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def peak_resident_kib(process: int) -> int:
    """The most memory that a process has held; 0 if it is gone."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return 0
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _first_line(command: list[str]) -> str:
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return (answer.stdout + answer.stderr).partition("\n")[0].strip()


def _tail(log: Path) -> str:
    return " / ".join(log.read_text(errors="replace")[-LOG_CHARACTERS:].split("\n")).strip(" /")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
