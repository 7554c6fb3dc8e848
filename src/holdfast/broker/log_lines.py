"""Structured log lines: time, level, what happened, and fields as `name=value`.

Owns: the form of a line, and how many there may be. A line is one event; its fields come in
`extra={"fields": {...}}`.

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
from datetime import UTC, datetime
from typing import Final

FIELD_CHARACTERS_MAXIMUM: Final = 1_024
"""As long as a client identifier may be; what is longer has been refused, and is cut off."""
_PLAIN: Final = re.compile(r"[!#-<>-\[\]-~]+")
"""Printable ASCII without space, quotation mark, equals sign and backslash."""


class LogLine(logging.Formatter):
    """One event in one line, made for eyes and for `grep` alike."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        moment = datetime.fromtimestamp(record.created, UTC)
        at = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields = getattr(record, "fields", {})
        parts = [at, record.levelname.lower(), _quoted(record.getMessage())]
        if left_out := getattr(record, "left_out", 0):
            parts.append(f"{left_out=}")
        parts += [f"{name}={_quoted(value)}" for name, value in fields.items()]
        if record.exc_info:
            parts.append(f"exception={json.dumps(self.formatException(record.exc_info))}")
        return " ".join(parts)


class LineRate(logging.Filter):
    """At most so many lines of one kind of event in a second; errors are not held back."""

    def __init__(self, lines_maximum: int) -> None:
        super().__init__()
        self._lines_maximum = lines_maximum
        self._second = 0
        self._lines: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        """True if the line is written."""
        event = str(record.msg)
        if int(record.created) != self._second:
            self._second = int(record.created)
            self._lines.clear()
        self._lines[event] += 1
        if self._lines[event] > self._lines_maximum and record.levelno < logging.ERROR:
            self._left_out[event] += 1
            return False
        if event in self._left_out:
            record.left_out = self._left_out.pop(event)
        return True


def begin(level: str, lines_maximum: int) -> None:
    """Sends log lines from here on to standard error."""
    stream = logging.StreamHandler(sys.stderr)
    stream.setFormatter(LogLine())
    stream.addFilter(LineRate(lines_maximum))
    # Nobody reads these; finding them out would be half the price of a line.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.basicConfig(level=level.upper(), handlers=[stream], force=True)


def set_level(level: str) -> None:
    """Logs what is at least this severe from here on."""
    logging.getLogger().setLevel(level.upper())


def _quoted(value: object) -> str:
    text = str(value)
    if len(text) > FIELD_CHARACTERS_MAXIMUM:
        text = f"{text[:FIELD_CHARACTERS_MAXIMUM]}..."
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
