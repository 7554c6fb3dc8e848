"""The broker of the demo: a process of its own, so that it can be killed."""

import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

READY_TIMEOUT_S = 20
STOP_TIMEOUT_S = 10


class BrokerProcess:
    """`holdfast serve` on ports that stay the same over restarts."""

    def __init__(self, data_dir: Path, log_file: Path) -> None:
        self.mqtt_port, self.http_port = _free_port(), _free_port()
        self.http_address = f"127.0.0.1:{self.http_port}"
        self._command = [
            str(Path(sys.executable).parent / "holdfast"),
            "serve",
            *("--data-dir", str(data_dir)),
            *("--listen-host", "127.0.0.1"),
            *("--mqtt-port", str(self.mqtt_port)),
            *("--http-port", str(self.http_port)),
            *("--pulsar-port", "off"),
        ]
        self._log_file = log_file
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Returns when it is ready, with the seconds that took."""
        began = time.monotonic()
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        while not self._is_ready():
            if self._process.poll() is not None:
                raise SystemExit(f"the broker ended at its start; see {self._log_file}")
            if time.monotonic() - began > READY_TIMEOUT_S:
                raise SystemExit(f"the broker is not ready; see {self._log_file}")
            time.sleep(0.02)
        return time.monotonic() - began

    def kill(self) -> None:
        """kill -9: no chance to write anything down."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int | None:
        """Ends it in order, if it runs; returns its exit code."""
        if self._process is None:
            return None
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        return self._process.returncode

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(
                f"http://{self.http_address}/health/ready", timeout=1
            ) as it:
                return bool(it.status == 200)
        except OSError:
            return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
