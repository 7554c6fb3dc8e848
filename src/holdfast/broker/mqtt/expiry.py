"""When sessions that have expired are cleared away.

Owns: the schedule, and how far the present run has come. Never: decides that a session has expired
(protocols.mqtt.session), or removes one (sessions).

Invariants:
1. A run clears away what had expired when it was due to begin, however many sweeps that takes.
2. A run that was missed, because the broker was not there, is not made up for: the next one does
   its work. Nobody can tell the difference but by looking, for who has expired does not resume.
"""

from holdfast.core.config import Config


class ExpirySchedule:
    """Says when there is something to clear away."""

    def __init__(self, config: Config, now_us: int) -> None:
        self._running_until_us: int | None = None
        self.reconfigure(config, now_us)

    def reconfigure(self, config: Config, now_us: int) -> None:
        """Holds to this schedule from now on; a run that has begun goes on."""
        self._config = config
        self._since_us = now_us
        self._due_us: int | None = None

    def expired_by_us(self, now_us: int) -> int | None:
        """What has expired by the time that is returned is to be cleared away; `None`: nothing
        is."""
        if self._due_us is None:
            self._due_us = _next_us(self._config, self._since_us)
        if self._due_us <= now_us:
            self._running_until_us = now_us
            self._due_us = _next_us(self._config, now_us)
        return self._running_until_us

    def done(self) -> None:
        """Nothing is left for the present run."""
        self._running_until_us = None


def _next_us(config: Config, after_us: int) -> int:
    # Asked for in the first sweep and then once in each run: no start waits for these to be loaded.
    from datetime import UTC, tzinfo

    from holdfast.core.cron import parse_cron

    name = config.session_expiry_zone
    zone: tzinfo = UTC
    if name != "UTC":
        from zoneinfo import ZoneInfo

        zone = ZoneInfo(name)
    return parse_cron(config.session_expiry_cron).next_us(after_us, zone)
