"""A real broker in a process of its own, for tests that need one."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from itertools import cycle
from pathlib import Path

from holdfast import system
from holdfast.core.config import BY_ATTRIBUTE

HOST = "127.0.0.1"
START_WITHIN_S = 120.0
STOP_WITHIN_S = 120.0
ASK_EVERY_S = 0.01
STARTED = "\ndata in "
"""Of the lines that it begins with."""


PORTS = range(10_000, 32_000)
"""Below those that the system gives to outgoing connections: one of these could take a port between
our look at it and the broker's start."""
_ports = cycle(PORTS)
_ports_begun: list[int] = []


def free_port() -> int:
    """A port that nobody listens on at this moment, and that this process has not given out for
    long. Processes begin apart from one another."""
    if not _ports_begun:
        _ports_begun.append(os.getpid())
        for _ in range(os.getpid() * 997 % len(PORTS)):
            next(_ports)
    for port in _ports:
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise AssertionError("there are always more ports")


class BrokerProcess:
    """One broker on a data directory; it may be stopped or killed, and started again on the same
    port."""

    def __init__(self, directory: Path, *arguments: str, **settings: object) -> None:
        """`settings` are those of the configuration, as `Config` calls them; HTTP is off
        by default.        `arguments` are further ones of the command line."""
        self._arguments = arguments
        self.program = [str(Path(sys.executable).with_name("holdfast"))]
        self.data_directory = directory / "data"
        self.log_file = directory / "broker.log"
        self.port = free_port()
        chosen = {"host": HOST, "http_port": "off", **settings}
        self._settings = {
            BY_ATTRIBUTE[name].environment_variable: str(chosen[name]) for name in chosen
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._starts_said = 0

    def start(self) -> float:
        """Starts it; returns after how many seconds it took connections."""
        began = system.monotonic_s()
        self.launch()
        self.wait_ready()
        took_s = system.monotonic_s() - began
        self.wait_administered()
        return took_s

    def launch(self) -> None:
        """Starts it and does not wait."""
        command = [
            *self.program,
            "serve",
            *("--data-dir", str(self.data_directory)),
            *("--mqtt-port", str(self.port)),
            *self._arguments,
        ]
        with self.log_file.open("ab") as log:
            environment = {**system.environment(), **self._settings}
            self._starts_said = self._said(STARTED)
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def wait_ready(self) -> None:
        """Waits until it takes connections."""
        assert self._process is not None
        began = system.monotonic_s()
        while system.monotonic_s() - began < START_WITHIN_S:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._process.wait(ASK_EVERY_S)
                raise AssertionError(f"the broker ended with {status}:\n{self.log()}")
            with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), 1):
                return
        self.kill()
        raise AssertionError(f"the broker takes no connections:\n{self.log()}")

    def wait_administered(self) -> None:
        """Waits until it says what it listens on: HTTP and the control socket come after MQTT."""
        self.wait_logged(STARTED, self._starts_said + 1)

    def send(self, number: signal.Signals) -> None:
        """Sends it a signal, and does not wait."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait_ended(self) -> int:
        """Waits until it ends by itself; returns its exit code."""
        assert self._process is not None
        process, self._process = self._process, None
        return process.wait(STOP_WITHIN_S)

    def wait_logged(self, words: str, times: int = 1) -> None:
        """Waits until it has written this so many times."""
        began = system.monotonic_s()
        while self._said(words) < times:
            assert system.monotonic_s() - began < START_WITHIN_S, f"no {words!r} in:\n{self.log()}"
            with contextlib.suppress(subprocess.TimeoutExpired):
                assert self._process is not None
                self._process.wait(ASK_EVERY_S)
                assert self._said(words) >= times, f"it ended without {words!r}:\n{self.log()}"

    def stop(self) -> int:
        """Ends it with SIGTERM; returns its exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it with SIGKILL, as a crash would."""
        self._end(signal.SIGKILL)

    def is_running(self) -> bool:
        """True until it was ended or ended by itself."""
        return self._process is not None and self._process.poll() is None

    @property
    def process_identifier(self) -> int:
        """Its process number while it runs."""
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        """The last of what it wrote."""
        return self.log_file.read_text(errors="replace")[-4_000:]

    def _said(self, words: str) -> int:
        return self.log_file.read_text(errors="replace").count(words)

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        process, self._process = self._process, None
        process.send_signal(number)
        try:
            return process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"{number.name} did not end the broker:\n{self.log()}") from None
