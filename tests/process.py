"""A real broker in a process of its own, for tests that need one."""

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from holdfast import system
from holdfast.client.http import HttpClient
from holdfast.core.config import BY_ATTRIBUTE, LISTENERS, SETTINGS
from holdfast.core.errors import BrokerAbsentError
from tests.ports import HeldPort

HOST = "127.0.0.1"
START_WITHIN_S = 120.0
STOP_WITHIN_S = 120.0
ASK_EVERY_S = 0.01


class BrokerProcess:
    """One broker on a data directory; it may be stopped or killed, and started again on the ports
    that it had."""

    def __init__(self, directory: Path, *arguments: str, **settings: object) -> None:
        """`settings` are those of the configuration, as `Config` calls them; a port of 0 is one
        that the system chooses, MQTT has such a one by default, and the others are off.
        `arguments` are further ones of the command line."""
        self._arguments = arguments
        self.program = [str(Path(sys.executable).with_name("holdfast"))]
        self.data_directory = directory / "data"
        self.log_file = directory / "broker.log"
        self.ports: dict[str, int] = {}
        """Where it listens, by the names of its listeners; known once it has started."""
        self._held: list[HeldPort] = []
        off = {"http_port": "off", "pulsar_port": "off"}
        chosen = {"host": HOST, "mqtt_port": 0, **off, **settings}
        self._settings = {
            BY_ATTRIBUTE[name].environment_variable: str(chosen[name]) for name in chosen
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """Where it takes MQTT."""
        return self.ports["mqtt"]

    @property
    def http_port(self) -> int:
        """Where it takes HTTP."""
        return self.ports["http"]

    @property
    def http_address(self) -> str:
        """The same with the host, as readers and writers are told it."""
        return f"{HOST}:{self.http_port}"

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
            *self._arguments,
        ]
        with self.log_file.open("ab") as log:
            environment = {**system.environment(), **self._settings}
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def wait_ready(self) -> None:
        """Waits until it takes connections. Before its first start nobody knows where, so it waits
        until it is told."""
        if self.ports:
            self._wait(self._takes_connections, "the broker takes no connections")
        else:
            self.wait_administered()

    def wait_administered(self) -> None:
        """Waits until it says what it listens on: HTTP and the control socket come after MQTT."""
        self._wait(self._has_said_where, "the broker does not say where it listens")

    def send(self, number: signal.Signals) -> None:
        """Sends it a signal, and does not wait."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait_logged(self, words: str) -> None:
        """Waits until it has written this."""
        self._wait(
            lambda: words in self.log_file.read_text(errors="replace"), f"it never said {words!r}"
        )

    def wait_ended(self) -> int:
        """Waits until it ends by itself; returns its exit code."""
        assert self._process is not None
        process, self._process = self._process, None
        status = process.wait(STOP_WITHIN_S)
        self._hold_ports()
        return status

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

    def _wait(self, is_so: Callable[[], bool], lacking: str) -> None:
        assert self._process is not None
        began = system.monotonic_s()
        while not is_so():
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._process.wait(ASK_EVERY_S)
                raise AssertionError(f"the broker ended with {status}:\n{self.log()}")
            if system.monotonic_s() - began > START_WITHIN_S:
                self.kill()
                raise AssertionError(f"{lacking}:\n{self.log()}")

    def _takes_connections(self) -> bool:
        try:
            socket.create_connection((HOST, self.port), 1).close()
        except OSError:
            return False
        return True

    def _has_said_where(self) -> bool:
        try:
            told = HttpClient.on(self.data_directory).get("/v1/broker")
        except BrokerAbsentError:
            return False
        if told["process"] != self.process_identifier:
            return False
        for listener in told["listeners"]:
            if listener["protocol"] in LISTENERS:
                port = int(listener["address"].rpartition(":")[2])
                self.ports.setdefault(listener["protocol"], port)
        for name, port in self.ports.items():
            self._settings[SETTINGS[LISTENERS[name]].environment_variable] = str(port)
        return True

    def _hold_ports(self) -> None:
        """Nobody else is given them before it is started again."""
        if not self._held:
            self._held = [HeldPort(port) for port in self.ports.values()]

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        process, self._process = self._process, None
        process.send_signal(number)
        try:
            status = process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"{number.name} did not end the broker:\n{self.log()}") from None
        self._hold_ports()
        return status
