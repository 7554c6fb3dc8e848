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
    """Keys whose new value is in force."""
    waiting: tuple[str, ...]
    """Keys whose new value needs a restart."""


def plan_change(in_force: Effective, wanted: Effective) -> Change:
    """Compare; raises `ConfigurationError` where what can change contradicts what cannot."""
    before, after = in_force.config, wanted.config
    different = [key for key in SETTINGS if getattr(before, key) != getattr(after, key)]
    taken = tuple(key for key in different if SETTINGS[key].reloadable)
    waiting = tuple(key for key in different if not SETTINGS[key].reloadable)
    config = replace(before, **{key: getattr(after, key) for key in taken})
    # Where the same value comes from now is true of a setting that waits for nothing.
    origins = {
        key: (in_force if key in waiting else wanted).origins.get(key, "default")
        for key in SETTINGS
    }
    check(config, origins)
    return Change(Effective(config, MappingProxyType(origins)), taken, waiting)
