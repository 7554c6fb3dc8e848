"""Pods that run instances of a processor, and the environments that they belong to.

Owns: processes, by the client identifiers that they run under. Never: judges.
"""

import json
import subprocess
import sys
from pathlib import Path
from random import Random

from tests.interop.processors.databases import Database
from tests.process import HOST

PODS = 3
RENAMED = 0.3
"""The part of the pods that come back under another name."""
SETTINGS = {
    "name": "ZebraRfid",
    "broker_host": HOST,
    "tls": False,
    "topics": ["zebra/fx/+/reads"],
    "receive_maximum": 100,
    "batch_messages": 40,
    "batch_age_s": 0.1,
    "reconnect_delay_s": 0.1,
    # Nobody's fault but ours: a message may be open whenever a pod is killed.
    "maximum_attempts": 1_000,
}


class Pod:
    """A place where one instance runs."""

    def __init__(self, environment: "Environment", number: int) -> None:
        self._environment = environment
        self._number = number
        self._renamed = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        """What it is called now."""
        return f"pod-{self._number}-{self._renamed}"

    @property
    def is_running(self) -> bool:
        """Whether somebody is there to kill."""
        return self._process is not None

    def start(self) -> None:
        """Runs an instance."""
        self._process = self._environment.launch(self.name)

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def rename(self) -> str:
        """It is scheduled anew; returns what it was called."""
        former = self.name
        self._renamed += 1
        return former


class Environment:
    """Some pods that share what is published, and a table of their own."""

    def __init__(
        self, name: str, database: Database, broker_port: int, directory: Path, early: bool
    ) -> None:
        self.name = name
        self.database = database
        self.pods = [Pod(self, number) for number in range(PODS)]
        self.former: list[str] = []
        """Names that nobody has any more, with whatever was open under them."""
        self._told = {
            **SETTINGS,
            "broker_port": broker_port,
            "environment": name,
            "group": f"bbu-processors-{name}",
            "sink": database.url,
        }
        self._directory = directory
        self._early = early
        self._late: list[subprocess.Popen[bytes]] = []

    def launch(self, pod: str) -> subprocess.Popen[bytes]:
        """An instance under this name."""
        told = {**self._told, "client_identifier": f"bbu-processor-{self.name}-{pod}"}
        arguments = [json.dumps(told), *(["early"] if self._early else [])]
        command = [sys.executable, "-m", "tests.crash.processors.instance", *arguments]
        with (self._directory / f"{self.name}-{pod}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def start(self, random: Random | None = None) -> None:
        """Runs what does not run, some of it under another name."""
        for pod in self.pods:
            if not pod.is_running:
                if random is not None and random.random() < RENAMED:
                    self.former.append(pod.rename())
                pod.start()

    def bring_back_the_former(self) -> None:
        """What was open under a name of before is that session's: somebody has to come for it."""
        self._late = [self.launch(name) for name in self.former]

    def close(self) -> None:
        """Nobody runs any more."""
        for pod in self.pods:
            pod.kill()
        for process in self._late:
            process.kill()
            process.wait()
