"""What a running broker takes over of new settings, and what has to wait for a restart.

Owns: the comparison. Never: applies anything; the broker's parts do (`reconfigure`).

Invariant: what is in force afterwards is a configuration that could have been started with.
"""

from dataclasses import dataclass, replace
from types import MappingProxyType

from holdfast.core.config import SETTINGS, Effective, check


@dataclass(frozen=True, slots=True)
class Change:
    """The outcome of a comparison."""

    settings: Effective
    """In force from now on: as it was, with the new values of what can change."""
    taken: tuple[str, ...]
    """Settings whose new value is in force, by their full names."""
    waiting: tuple[str, ...]
    """Those whose new value needs a restart; of a reload, tables `[[bridge]]` too, with names."""


def plan_change(in_force: Effective, wanted: Effective) -> Change:
    """Compare; raises `ConfigurationError` where what can change contradicts what cannot."""
    before, after = in_force.config, wanted.config
    different = [row for row in SETTINGS.values() if row.value_in(before) != row.value_in(after)]
    taken = [row for row in different if row.reloadable]
    waiting = tuple(row.name for row in different if not row.reloadable)
    config = replace(before, **{row.attribute: row.value_in(after) for row in taken})
    # Where the same value comes from now is true of a setting that waits for nothing.
    origins = {
        name: (in_force if name in waiting else wanted).origins.get(name, "default")
        for name in SETTINGS
    }
    check(config, origins)
    settings = Effective(config, MappingProxyType(origins))
    return Change(settings, tuple(row.name for row in taken), waiting)
