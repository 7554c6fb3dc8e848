"""All tables of one pipeline, in one directory, of one log.

Owns: where each table lies, and what belongs to none: the log's epoch and what is read of it.

Invariant: a directory belongs to one log and one selection of topics. Another is refused with what
it would mean.
"""

import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast.core.errors import OperatingError
from holdfast.pipeline.load.lock import WriterLock
from holdfast.pipeline.load.table import StoredTable

STATE = "pipeline.json"
STATE_VERSION = 1
TABLES = "tables"
CHECKPOINTS = "checkpoints"
BESIDE = ".beside"


class WarehouseError(OperatingError):
    """The directory belongs to another log, another selection or a newer version."""

    retriable = False


@dataclass(frozen=True, slots=True)
class Origin:
    """What the tables are made from."""

    epoch: str
    subscribe: str
    version: int = STATE_VERSION


class Warehouse:
    """The tables below one directory."""

    def __init__(
        self, directory: Path, origin: Origin, beside: frozenset[str] = frozenset()
    ) -> None:
        self.directory = directory
        self.origin = origin
        self._beside = beside

    @staticmethod
    def recorded(directory: Path) -> Origin | None:
        """What the directory is made from; none if nothing was made yet."""
        path = directory / STATE
        if not path.exists():
            return None
        try:
            document = json.loads(path.read_text())
            version = int(document["version"])
            if version > STATE_VERSION:
                raise WarehouseError(
                    f"{path} was written by a newer version of this program (form {version}, this"
                    f" one knows {STATE_VERSION})"
                )
            return Origin(document["epoch"], document["subscribe"], version)
        except (ValueError, KeyError, TypeError) as problem:
            raise WarehouseError(
                f"{path} is not what the pipeline left there: {problem}"
            ) from problem

    @classmethod
    def opened(cls, directory: Path, origin: Origin) -> "Warehouse":
        """The directory for this origin, made if it is new. Raises `WarehouseError`."""
        recorded = cls.recorded(directory)
        if recorded is None:
            directory.mkdir(parents=True, exist_ok=True)
            fresh = directory / f"{STATE}.new"
            fresh.write_text(json.dumps(asdict(origin), indent=2))
            fresh.replace(directory / STATE)
        elif recorded.epoch != origin.epoch:
            raise WarehouseError(
                f"the tables in {directory} are made from the log with epoch {recorded.epoch}, and"
                f" the broker has the log with epoch {origin.epoch}: its offsets mean other"
                " messages. Give the pipeline another directory, or bring the old log back"
            )
        elif _topics(recorded) != _topics(origin):
            raise WarehouseError(
                f"the tables in {directory} are made from the topics {recorded.subscribe}, and the"
                f" configuration now says {origin.subscribe}: what the new topics had before would"
                " be missing. Give the pipeline another directory, or take the old topics back"
            )
        return cls(directory, origin)

    def table(self, name: str) -> StoredTable:
        """The table with this name, whether it is there or not."""
        folder = BESIDE if name in self._beside else TABLES
        return StoredTable(self.directory / folder / name, self.origin.epoch)

    @contextmanager
    def beside(self, names: Iterable[str]) -> Iterator["Warehouse"]:
        """The same tables, but for these, which are new and empty; they go at the end."""
        folder = self.directory / BESIDE
        shutil.rmtree(folder, ignore_errors=True)
        try:
            yield Warehouse(self.directory, self.origin, frozenset(names))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def names(self) -> list[str]:
        """The tables that are there."""
        folder = self.directory / TABLES
        found = sorted(path.name for path in folder.glob("*") if path.name != ".locks")
        return [name for name in found if self.table(name).exists()]

    def checkpoint(self, name: str) -> Path:
        """Where Spark keeps how far a query has come."""
        return self.directory / CHECKPOINTS / name

    @contextmanager
    def writing(self, *names: str) -> Iterator[None]:
        """The right to write these tables, and nobody else meanwhile."""
        with ExitStack() as held:
            for name in sorted(names):
                held.enter_context(WriterLock(self.directory / TABLES, name))
            yield


def _topics(origin: Origin) -> frozenset[str]:
    """In whatever order, and however often, they are named."""
    return frozenset(topic.strip() for topic in origin.subscribe.split(","))
