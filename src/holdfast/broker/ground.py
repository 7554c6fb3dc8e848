"""What most parts of a broker stand on, handed to them as one value when they are built.

Never: kept by a part. Each takes out what it needs, so that one can read off what it uses, and no
part goes on with settings that a reload has changed.
"""

from dataclasses import dataclass

from holdfast.broker.counts import Counts
from holdfast.broker.environments import Environments
from holdfast.broker.schedule import Schedule
from holdfast.broker.stages import KernelStages
from holdfast.broker.world import World
from holdfast.core.config import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The settings at start, the world, the kernel, the next turn, what is counted, and which
    environments are known."""

    config: Config
    world: World
    kernel: KernelStages
    schedule: Schedule
    counts: Counts
    """What is counted of what happens at the doors."""
    environments: Environments
