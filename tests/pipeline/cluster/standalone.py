"""A standalone master with a worker, from the classes that PySpark brings."""

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pyspark

from holdfast import system
from tests.process import HOST, free_port

SPARK_HOME = Path(pyspark.__file__).parent
WITHIN_S = 120.0
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
EXECUTORS = 2
EXECUTOR_MB = 512


def environment(**more: str) -> dict[str, str]:
    """That of whoever has activated the environment which holdfast is installed in."""
    given = system.environment()
    programs = f"{Path(sys.executable).parent}:{given['PATH']}"
    own = {"PATH": programs, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": HOST}
    return {**given, **own, "PYSPARK_PYTHON": sys.executable, **more}


def settings(**more: str) -> list[str]:
    """Arguments for spark-submit: executors as they suit a small machine."""
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
    return [part for name, value in chosen.items() for part in ("--conf", f"{name}={value}")]


def run(
    command: list[str], directory: Path, surroundings: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Runs a command to its end; returns its exit code and all that it said."""
    done = subprocess.run(
        command,
        cwd=directory,
        env=dict(surroundings or environment()),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    return done.returncode, done.stdout


@contextmanager
def standalone(directory: Path) -> Iterator[str]:
    """The address of a master with one worker, which has room for two executors."""
    port, page = free_port(), free_port()
    address = f"spark://{HOST}:{port}"
    master = ["Master", "--host", HOST, "--port", str(port), "--webui-port", str(page)]
    worker = [
        *("Worker", "--host", HOST, "--webui-port", str(free_port()), "--cores", str(EXECUTORS)),
        *("--memory", f"{EXECUTORS * EXECUTOR_MB}m", "--work-dir", str(directory / "work")),
        address,
    ]
    with contextlib.ExitStack() as stack:
        for number, (name, *arguments) in enumerate((master, worker)):
            stack.enter_context(_running(name, arguments, directory))
            _wait_for_workers(page, number)
        yield address


@contextmanager
def _running(name: str, arguments: list[str], directory: Path) -> Iterator[None]:
    kind = f"org.apache.spark.deploy.{name.lower()}.{name}"
    own = environment(SPARK_DAEMON_MEMORY="256m", SPARK_DAEMON_JAVA_OPTS=QUICK)
    with (directory / f"{name}.log").open("wb") as log:
        command = [str(SPARK_HOME / "bin" / "spark-class"), kind, *arguments]
        process = subprocess.Popen(command, stdout=log, stderr=log, env=own, cwd=directory)
        try:
            yield
        finally:
            process.terminate()
            process.wait(WITHIN_S)


def _wait_for_workers(page: int, count: int) -> None:
    began = system.monotonic_s()
    while system.monotonic_s() - began < WITHIN_S:
        with contextlib.suppress(OSError), urlopen(f"http://{HOST}:{page}/json/") as answer:
            if json.load(answer)["aliveworkers"] == count:
                return
        threading.Event().wait(0.1)
    raise AssertionError(f"no master with {count} workers")
