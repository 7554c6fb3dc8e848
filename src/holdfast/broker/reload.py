"""SIGHUP: the settings are read again, and what can change does.

Owns: the words for it. Never: lets a wrong file change anything: either all that can change does,
or the old configuration stays in force as it is.
"""

import logging
from collections.abc import Callable
from dataclasses import replace

from holdfast.broker import log_lines, open_files
from holdfast.broker.bridge.bridges import configured
from holdfast.core.change import Change, plan_change
from holdfast.core.config import SETTINGS, Config, Effective
from holdfast.core.errors import ConfigurationError

log = logging.getLogger(__name__)


class Reload:
    """Reads the settings again and hands them on."""

    def __init__(
        self,
        settings: Effective,
        read: Callable[[], Effective],
        apply: Callable[[Config], None],
        open_files_limit: int,
    ) -> None:
        """`read` finds the settings as at start; `apply` hands a new configuration to the parts,
        or raises `ConfigurationError` before it has changed any."""
        self.settings = settings
        """What is in force, and where it came from."""
        self._read = read
        self._apply = apply
        self._open_files_limit = open_files_limit

    def run(self) -> Change:
        """Takes over what can change, and says what cannot, bridges of the file among it. Raises
        `ConfigurationError`, and then nothing has changed."""
        try:
            wanted = self._read()
            bridges = _different_bridges(self.settings.config, wanted.config)
            change = plan_change(self.settings, wanted)
            config = change.settings.config
            self._apply(config)
        except ConfigurationError as error:
            reason = {"reason": error}
            log.error("configuration refused, the old one stays", extra={"fields": reason})
            raise
        before, self.settings = self.settings.config, change.settings
        log_lines.reconfigure(config.logging_level, config.logging_lines_maximum)
        for name in change.taken:
            log.info("setting changed", extra={"fields": _fields(name, before, config)})
        for name in change.waiting:
            fields = {"setting": name, "in_force": _shown(name, before)}
            log.warning("setting needs a restart", extra={"fields": fields})
        for name in bridges:
            log.warning("bridge needs a restart", extra={"fields": {"bridge": name}})
        self._warn_of_files(change)
        tables = (f"[[bridge]] {name}" for name in bridges)
        change = replace(change, waiting=(*change.waiting, *tables))
        counts = {"changed": len(change.taken), "need_a_restart": len(change.waiting)}
        log.info("configuration read again", extra={"fields": counts})
        return change

    def on_signal(self) -> None:
        """As `run`, for nobody who waits for an answer."""
        try:
            self.run()
        except ConfigurationError:
            # It has been logged, and that is all that a signal can be answered with.
            return

    def _warn_of_files(self, change: Change) -> None:
        words = open_files.warning(change.settings.config, self._open_files_limit)
        if words is not None and "limits.connections_maximum" in change.taken:
            log.warning(words)


def _different_bridges(before: Config, after: Config) -> list[str]:
    """The names of those that are new in the file, gone from it or changed there."""
    if before.bridge_tables == after.bridge_tables:
        # The usual case, and a thousand bridges take a while to be made of their tables.
        return []
    was = {bridge.name: bridge for bridge in configured(before)}
    will_be = {bridge.name: bridge for bridge in configured(after)}
    names = was.keys() | will_be.keys()
    return sorted(name for name in names if was.get(name) != will_be.get(name))


def _fields(name: str, before: Config, now: Config) -> dict[str, object]:
    return {"setting": name, "was": _shown(name, before), "is": _shown(name, now)}


def _shown(name: str, config: Config) -> str:
    return SETTINGS[name].shown_in(config) or "(none)"
