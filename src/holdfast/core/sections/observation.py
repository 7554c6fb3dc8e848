"""What the broker tells of itself, and how it stops."""

from dataclasses import dataclass
from typing import Literal

from holdfast.core.settings import boolean, choice, duration, integer, setting


@dataclass(frozen=True, kw_only=True)
class ObservationSection:
    """Log lines, metrics, the end."""

    log_level: Literal["debug", "info", "warning", "error"] = setting(
        choice("debug", "info", "warning", "error"),
        "info",
        "The least severe kind of line that is logged.",
        reloadable=True,
    )
    stop_timeout_s: int = setting(
        duration(1, 3_600),
        "60s",
        """How long a clean stop may take before the process ends as it is, with exit code 3: a disk
        that does not answer must not hold up a restart. Nothing acknowledged is lost.""",
        reloadable=True,
    )
    log_lines_maximum: int = setting(
        integer(1, 1_000_000),
        100,
        """Lines of one kind of event in a second; further ones are left out, and the next line of
        the kind says how many. A fleet that reconnects would make thousands of lines a second, of
        some ten microseconds each; metrics count them all.""",
        reloadable=True,
    )
    sys_interval_s: int = setting(
        duration(0, 86_400),
        "10s",
        """How often the topics under $SYS/broker are brought up to date, as in Mosquitto; 0: they
        are not there.""",
        reloadable=True,
    )
    metrics_public: bool = setting(
        boolean(),
        False,
        """Whether /metrics may be read without credentials from other machines too. It names no
        client and no topic. On loopback without credentials it is open anyway.""",
        reloadable=True,
    )
