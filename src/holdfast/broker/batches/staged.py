"""Parts of batches that wait beside the log until they are committed.

Owns: which parts there are, how much of them may lie here and for how long. Never: decides which of
them a batch has.

A part is a file: a line of JSON that says what it is, and the rows as the kernel takes them. Its
identifier is a digest of all that, so what is sent twice is one part.

Invariants:
1. A part that was answered for is durable.
2. Whatever lies here is bounded in bytes, in number and in age.
"""

import json
import logging
import zlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Final

from holdfast.broker.batches.refusal import BatchRefusal, BatchRefusedError
from holdfast.broker.world import Files, Workers
from holdfast.core.limits import (
    STAGED_AGE_MAXIMUM_S,
    STAGED_BYTES_MAXIMUM,
    STAGED_PARTS_MAXIMUM,
)
from holdfast.core.units import SECOND_US

log = logging.getLogger(__name__)

HEAD_BYTES_MAXIMUM: Final = 16_384
"""The line at the start of a file: the names of a producer and a part take up to six bytes a
character."""
IDENTIFIER_CHARACTERS: Final = 32
SUFFIX: Final = ".part"


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPart:
    """A part that lies beside the log."""

    identifier: str = ""
    producer: str
    batch: int
    part: str
    user_name: str | None
    rows: int
    checksum: int = 0
    """CRC-32 of the rows' bytes."""
    staged_at_us: int
    bytes: int = 0
    """Of the whole file."""

    @property
    def file(self) -> str:
        """Its name."""
        return self.identifier + SUFFIX


def write_part(files: Files, rows: bytes, new: StagedPart) -> StagedPart:
    """Writes a part with these rows, of which `new` says all but what they tell themselves; for a
    worker. Durable on return; raises `OSError`."""
    about = {"checksum": zlib.crc32(rows), "bytes": len(rows), "identifier": ""}
    told = {**asdict(new), **about}
    of = [told[name] for name in ("producer", "batch", "part", "user_name")]
    # The processor helps with this one: half as long as any other that cannot be met by chance.
    digest = sha256(json.dumps(of).encode())
    digest.update(rows)
    content = json.dumps(told).encode() + b"\n" + rows
    staged = StagedPart(
        **{**told, "identifier": digest.hexdigest()[:IDENTIFIER_CHARACTERS], "bytes": len(content)}
    )
    files.write(staged.file, content)
    return staged


def read_rows(files: Files, staged: StagedPart) -> bytes:
    """The rows of a part; for a worker. Raises `OSError`, and `ValueError` where they are not what
    was written."""
    _, _, rows = files.read(staged.file).partition(b"\n")
    if zlib.crc32(rows) != staged.checksum:
        raise ValueError(f"the staged part {staged.file} is not what was written")
    return rows


class StagedParts:
    """All parts that lie beside the log."""

    def __init__(self, files: Files, workers: Workers) -> None:
        self.files = files
        self._workers = workers
        self._parts: dict[str, StagedPart] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._parts)

    def recover(self) -> None:
        """Finds what the former life has left; what is no whole part goes."""
        for file, size in self.files.sizes().items():
            staged = self._parsed(file, size)
            if staged is None:
                self.files.remove(file)
            else:
                self.add(staged)

    def check_room(self, count: int) -> None:
        """Raises a `BatchRefusedError` where so many bytes more have no room."""
        if self.bytes + count > STAGED_BYTES_MAXIMUM or len(self) >= STAGED_PARTS_MAXIMUM:
            sentence = (
                f"{len(self)} parts with {self.bytes} bytes wait to be committed, and"
                f" {STAGED_PARTS_MAXIMUM} with {STAGED_BYTES_MAXIMUM} may; come back later"
            )
            raise BatchRefusedError(BatchRefusal.BUSY, sentence)

    def add(self, staged: StagedPart) -> None:
        """It is written."""
        before = self._parts.get(staged.identifier)
        self.bytes += staged.bytes - (0 if before is None else before.bytes)
        self._parts[staged.identifier] = staged

    def find(self, identifier: str) -> StagedPart | None:
        """The part with an identifier."""
        return self._parts.get(identifier)

    def producers(self) -> set[str]:
        """Whose parts there are."""
        return {staged.producer for staged in self._parts.values()}

    def remove_through(self, producer: str, batch: int) -> None:
        """Nobody asks for a part of these batches any more."""
        gone = [
            staged
            for staged in self._parts.values()
            if staged.producer == producer and staged.batch <= batch
        ]
        self._remove(gone)

    def remove_of(
        self, producer: str, batch: int, user_name: str | None, removed: Callable[[int], None]
    ) -> None:
        """What this user has staged of a batch goes; `removed` is told how many parts that were,
        when nothing of them is left."""
        of = (producer, batch, user_name)
        gone = [
            staged
            for staged in self._parts.values()
            if (staged.producer, staged.batch, staged.user_name) == of
        ]
        self._remove(gone, lambda: removed(len(gone)))

    def sweep(self, now_us: int, kept: Callable[[], Collection[str]]) -> None:
        """Removes what is too old, but for what is `kept`."""
        before_us = now_us - STAGED_AGE_MAXIMUM_S * SECOND_US
        old = [staged for staged in self._parts.values() if staged.staged_at_us < before_us]
        if old:
            needed = kept()
            old = [staged for staged in old if staged.identifier not in needed]
            if old:
                log.warning("staged parts too old", extra={"fields": {"parts": len(old)}})
            self._remove(old)

    def _remove(
        self, gone: Iterable[StagedPart], removed: Callable[[], None] = lambda: None
    ) -> None:
        names = []
        for staged in gone:
            del self._parts[staged.identifier]
            self.bytes -= staged.bytes
            names.append(staged.file)

        def remove() -> None:
            for name in names:
                self.files.remove(name)

        if names:
            self._workers.run(remove, lambda _nothing: removed())
        else:
            removed()

    def _parsed(self, file: str, size: int) -> StagedPart | None:
        if not file.endswith(SUFFIX):
            return None
        line, end, _ = self.files.read(file, HEAD_BYTES_MAXIMUM).partition(b"\n")
        try:
            head = json.loads(line)
            whole = len(line) + len(end) + head["bytes"]
            about = {"identifier": file.removesuffix(SUFFIX), "bytes": size}
            staged = StagedPart(**{**head, **about})
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        return staged if size == whole else None
