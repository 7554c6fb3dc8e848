"""Structured log lines: time, level, what happened, and fields as `name=value`.

Owns: the form of a line. A line is one event; its fields come in `extra={"fields": {...}}`.
"""

import json
import logging
import sys
from datetime import UTC, datetime


class LogLine(logging.Formatter):
    """One event in one line, made for eyes and for `grep` alike."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        moment = datetime.fromtimestamp(record.created, UTC)
        at = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields = getattr(record, "fields", {})
        parts = [at, record.levelname.lower(), _quoted(record.getMessage())]
        parts += [f"{name}={_quoted(value)}" for name, value in fields.items()]
        if record.exc_info:
            parts.append(f"exception={json.dumps(self.formatException(record.exc_info))}")
        return " ".join(parts)


def begin(level: str) -> None:
    """Sends log lines from here on to standard error."""
    stream = logging.StreamHandler(sys.stderr)
    stream.setFormatter(LogLine())
    logging.basicConfig(level=level.upper(), handlers=[stream], force=True)


def set_level(level: str) -> None:
    """Logs what is at least this severe from here on."""
    logging.getLogger().setLevel(level.upper())


def _quoted(value: object) -> str:
    text = str(value)
    return text if text and not set(text) & set(' "=\n\t') else json.dumps(text)
