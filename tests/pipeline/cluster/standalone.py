"""A standalone master with a worker, from the classes that PySpark brings."""

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pyspark

from holdfast import system
from tests.ports import HeldPort
from tests.process import HOST
from tests.virtual_machine import QUICK

SPARK_HOME = Path(pyspark.__file__).parent
WITHIN_S = 600.0
EXECUTORS = 2
EXECUTOR_MB = 512


def environment(**more: str) -> dict[str, str]:
    """That of whoever has activated the environment which holdfast is installed in."""
    given = system.environment()
    programs = f"{Path(sys.executable).parent}:{given['PATH']}"
    own = {"PATH": programs, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": HOST}
    return {**given, **own, "PYSPARK_PYTHON": sys.executable, **more}


def configured(directory: Path, **more: str) -> dict[str, str]:
    """Surroundings in which Spark finds settings of its own: executors as they suit a small
    machine."""
    chosen = {
        "spark.driver.host": HOST,
        "spark.driver.extraJavaOptions": QUICK,
        "spark.executor.extraJavaOptions": QUICK,
        "spark.executor.memory": f"{EXECUTOR_MB}m",
        "spark.executor.cores": "1",
        "spark.cores.max": str(EXECUTORS),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **more,
    }
    folder = directory / "conf"
    folder.mkdir()
    lines = [f"{name} {value}\n" for name, value in chosen.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    return environment(SPARK_CONF_DIR=str(folder))


def run(commands: str, directory: Path, surroundings: Mapping[str, str]) -> tuple[int, str]:
    """Runs commands of a shell to their end; returns the exit code and all that they said."""
    done = subprocess.run(
        ["bash", "-euc", commands],
        cwd=directory,
        env=dict(surroundings),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    return done.returncode, done.stdout


@dataclass(frozen=True, slots=True)
class Standalone:
    """A master with one worker, which has room for two executors."""

    address: str
    work: Path
    """Where the worker keeps what executors write to their logs."""


@contextmanager
def standalone(directory: Path) -> Iterator[Standalone]:
    """A cluster that ends with the block."""
    # The page tells where the master is; where the page is, words of a log alone would tell.
    held = HeldPort()
    page = held.number
    own = environment(SPARK_DAEMON_MEMORY="256m", SPARK_DAEMON_JAVA_OPTS=QUICK)
    start = "exec spark-class org.apache.spark.deploy"
    master = f"{start}.master.Master --host {HOST} --port 0 --webui-port {page}"
    worker = (
        f"{start}.worker.Worker --host {HOST} --webui-port 0 --cores {EXECUTORS}"
        f" --memory {EXECUTORS * EXECUTOR_MB}m --work-dir '{directory}/work'"
    )
    with running(master, directory, own, "master"):
        address = _wait_for_workers(page, 0)
        with running(f"{worker} {address}", directory, own, "worker"):
            _wait_for_workers(page, 1)
            yield Standalone(address, directory / "work")


@contextmanager
def running(
    commands: str, directory: Path, surroundings: Mapping[str, str], name: str = "server"
) -> Iterator[Path]:
    """A server that ends with the block, and the file of what it says."""
    file = directory / f"{name}.log"
    with file.open("wb") as log:
        shell = ["bash", "-euc", commands]
        process = subprocess.Popen(
            shell, stdout=log, stderr=log, env=dict(surroundings), cwd=directory
        )
        try:
            yield file
        finally:
            process.terminate()
            process.wait(WITHIN_S)


def _wait_for_workers(page: int, count: int) -> str:
    """Waits until a master has so many; returns its address."""
    began = system.monotonic_s()
    while system.monotonic_s() - began < WITHIN_S:
        with contextlib.suppress(OSError), urlopen(f"http://{HOST}:{page}/json/") as answer:
            told = json.load(answer)
            if told["aliveworkers"] == count:
                return str(told["url"])
        threading.Event().wait(0.1)
    raise AssertionError(f"no master with {count} workers")
