"""Structured log lines: time, level, what happened, and fields as `name=value`.

Owns: the form of a line, and how many there may be. A line is one event; its fields come in
`extra={"fields": {...}}`. What a fleet that reconnects causes by the thousand is a `FrequentEvent`:
it is asked first whether it will be written, and costs next to nothing if not.

Invariants:
1. Whatever a peer has sent (client identifiers, user names, topic filters) stays within its line
   and its field: what is not plain ASCII is written as a JSON string.
2. One kind of event has a bounded number of lines in a second; the next line of the kind tells how
   many were left out.
"""

import json
import logging
import re
import sys
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from holdfast.core.units import SECOND_US

FIELD_CHARACTERS_MAXIMUM: Final = 1_024
"""As long as a client identifier may be; what is longer has been refused, and is cut off."""
LINES_MAXIMUM_DEFAULT: Final = 100
"""Lines of one kind in a second until `begin` has said how many."""
_PLAIN: Final = re.compile(r"[!#-<>-\[\]-~]+").fullmatch
"""Printable ASCII without space, quotation mark, equals sign and backslash."""


class LogLine(logging.Formatter):
    """One event in one line, made for eyes and for `grep` alike."""

    def __init__(self) -> None:
        super().__init__()
        self._second = -1
        self._second_shown = ""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        second = int(record.created)
        if second != self._second:
            # Making this text would be a third of the price of a line.
            moment = datetime.fromtimestamp(second, UTC)
            self._second, self._second_shown = second, moment.strftime("%Y-%m-%dT%H:%M:%S")
        milliseconds = int((record.created - second) * 1_000)
        what = _quoted(record.getMessage())
        line = f"{self._second_shown}.{milliseconds:03}Z {record.levelname.lower()} {what}"
        if left_out := getattr(record, "left_out", 0):
            line += f" {left_out=}"
        fields = getattr(record, "fields", {})
        line += "".join([f" {name}={_quoted(fields[name])}" for name in fields])
        if record.exc_info:
            line += f" exception={json.dumps(self.formatException(record.exc_info))}"
        return line


class LineRate(logging.Filter):
    """At most so many lines of one kind of event in a second; errors are not held back."""

    def __init__(self, lines_maximum: int) -> None:
        super().__init__()
        self.lines_maximum = lines_maximum
        self._second = 0
        self._lines: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        """True if the line is written."""
        if hasattr(record, "left_out"):
            # A frequent event, which has been counted before it was made.
            return True
        event = str(record.msg)
        if int(record.created) != self._second:
            self._second = int(record.created)
            self._lines.clear()
        self._lines[event] += 1
        if self._lines[event] > self.lines_maximum and record.levelno < logging.ERROR:
            self._left_out[event] += 1
            return False
        if event in self._left_out:
            record.left_out = self._left_out.pop(event)
        return True


_rate: Final = LineRate(LINES_MAXIMUM_DEFAULT)


class FrequentEvent:
    """A kind of event at level INFO that one connection or another causes all the time.

    `if EVENT.is_due(now_us): EVENT.write({...})`: the fields are made only for a line that will be
    written.
    """

    __slots__ = ("_left_out", "_lines", "_log", "_second", "_words")

    def __init__(self, log: logging.Logger, words: str) -> None:
        self._log = log
        self._words = words
        self._second = -1
        self._lines = 0
        self._left_out = 0

    def is_due(self, now_us: int) -> bool:
        """True if the line is to be written; counts it else."""
        second = now_us // SECOND_US
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines > _rate.lines_maximum:
            self._left_out += 1
            return False
        return self._log.isEnabledFor(logging.INFO)

    def write(self, fields: Mapping[str, object]) -> None:
        """Writes the line."""
        # As `Logger.info` does in the end; what it asks before, half of its time, is known here.
        record = logging.LogRecord(self._log.name, logging.INFO, "", 0, self._words, (), None)
        record.fields, record.left_out = fields, self._left_out
        self._left_out = 0
        self._log.handle(record)


def begin(level: str, lines_maximum: int) -> None:
    """Sends log lines from here on to standard error."""
    stream = logging.StreamHandler(sys.stderr)
    stream.setFormatter(LogLine())
    stream.addFilter(_rate)
    # Nobody reads these; finding them out would be half the price of a line.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # As the library's own page on optimization says: no stack walk.
    logging.basicConfig(level=level.upper(), handlers=[stream], force=True)
    reconfigure(level, lines_maximum)


def reconfigure(level: str, lines_maximum: int) -> None:
    """Logs what is at least this severe from here on, and at most so many lines of a kind."""
    logging.getLogger().setLevel(level.upper())
    _rate.lines_maximum = lines_maximum


def shortened(text: str) -> str:
    """The text, or its beginning and three dots."""
    if len(text) <= FIELD_CHARACTERS_MAXIMUM:
        return text
    return f"{text[:FIELD_CHARACTERS_MAXIMUM]}..."


def _quoted(value: object) -> str:
    if type(value) is int or type(value) is bool:
        return str(value)
    text = shortened(str(value))
    return text if _PLAIN(text) else json.dumps(text)
