"""What the broker writes about itself, and how it stops."""

from dataclasses import dataclass
from typing import Literal

from holdfast.core.settings import choice, duration, integer, setting


@dataclass(frozen=True, kw_only=True)
class ObservationSection:
    """The tables `logging` and `stop`."""

    logging_level: Literal["debug", "info", "warning", "error"] = setting(
        "logging.level",
        choice("debug", "info", "warning", "error"),
        "info",
        "The least severe kind of line that is logged.",
        reloadable=True,
    )
    logging_lines_maximum: int = setting(
        "logging.lines_maximum",
        integer(1, 1_000_000),
        100,
        """Lines of one kind of event in a second; further ones are left out, and the next line of
        the kind says how many. A fleet that reconnects would make thousands of lines a second, of
        some ten microseconds each; metrics count them all.""",
        reloadable=True,
    )
    stop_timeout_s: int = setting(
        "stop.timeout_s",
        duration(1, 3_600),
        "60s",
        """How long a clean stop may take before the process ends as it is, with exit code 3: a disk
        that does not answer must not hold up a restart. Nothing acknowledged is lost.""",
        reloadable=True,
    )
