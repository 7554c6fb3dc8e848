"""`holdfast processors run` in a process of its own, as an operator starts it."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from http import HTTPStatus
from itertools import count
from pathlib import Path
from urllib.request import urlopen

from holdfast import system

WITHIN_S = 60.0
NUMBERS = count()
ASK_EVERY_S = 0.02


class ProcessorProcess:
    """One run of the command in a folder."""

    def __init__(
        self, folder: Path, *arguments: str, variables: Mapping[str, str] | None = None
    ) -> None:
        program = str(Path(sys.executable).with_name("holdfast"))
        self._log_file = folder / f"processors-{next(NUMBERS)}.log"
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [program, "processors", "run", *arguments],
                cwd=folder,
                stdout=log,
                stderr=log,
                env={**system.environment(), **(variables or {})},
            )

    def log(self) -> str:
        """What it has written."""
        return self._log_file.read_text(errors="replace")

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Waits for what it does."""
        began = system.monotonic_s()
        while not is_so():
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._process.wait(ASK_EVERY_S)
                raise AssertionError(f"it has ended with {status}:\n{self.log()}")
            assert system.monotonic_s() - began < WITHIN_S, self.log()

    def wait_ready(self, health_port: int) -> None:
        """Waits until it takes messages."""
        self.wait_until(lambda: _is_ready(health_port))

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ends it; returns its exit code."""
        self._process.send_signal(number)
        return self._process.wait(WITHIN_S)

    def wait_ended(self) -> int:
        """Waits until it ends by itself; returns its exit code."""
        return self._process.wait(WITHIN_S)

    def end(self) -> None:
        """Whatever has happened, it does not run any more."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def _is_ready(health_port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{health_port}/health/ready") as answer:
            return bool(answer.status == HTTPStatus.OK)
    except OSError:
        return False
