"""What a running broker takes over of new settings, and what has to wait for a restart.

Owns: the comparison. Never: applies anything; the broker's parts do (`reconfigure`).

Invariant: what is in force afterwards is a configuration that could have been started with.
"""

from dataclasses import dataclass, replace

from holdfast.core.config import SETTINGS, Config, check


@dataclass(frozen=True, slots=True)
class Change:
    """The outcome of a comparison."""

    config: Config
    """In force from now on: as it was, with the new values of what can change."""
    taken: tuple[str, ...]
    """Keys whose new value is in force."""
    waiting: tuple[str, ...]
    """Keys whose new value needs a restart."""


def plan_change(in_force: Config, wanted: Config) -> Change:
    """Compare; raises `ConfigurationError` where what can change contradicts what cannot."""
    different = [key for key in SETTINGS if getattr(in_force, key) != getattr(wanted, key)]
    taken = tuple(key for key in different if SETTINGS[key].reloadable)
    waiting = tuple(key for key in different if not SETTINGS[key].reloadable)
    config = replace(in_force, **{key: getattr(wanted, key) for key in taken})
    check(config)
    return Change(config, taken, waiting)
