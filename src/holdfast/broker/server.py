"""The assembled broker: starts listening, answers for itself, and stops cleanly.

Owns: the life of the whole. Never: does a stage's work.

Invariants:
1. When `stop` has returned everything acknowledged is durable, sessions are at rest with what they
   have in flight, and the next start recovers from a checkpoint.
2. After an error of the log nothing more is acknowledged or written; the next start recovers.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from holdfast.broker.access.access import Access
from holdfast.broker.access.users import Users
from holdfast.broker.batches.batches import Batches
from holdfast.broker.bridge_commands import BridgeCommands
from holdfast.broker.commands import Commands
from holdfast.broker.counts import Counts
from holdfast.broker.cursor_commands import CursorCommands
from holdfast.broker.group_commands import GroupCommands
from holdfast.broker.mqtt.pack_timer import PackTimer
from holdfast.broker.schedule import Schedule
from holdfast.broker.sockets.listeners import Listeners
from holdfast.broker.steps import Steps
from holdfast.broker.store.control_records import ControlRecords
from holdfast.broker.sweep import Sweep
from holdfast.broker.turn import Stages, Turn
from holdfast.broker.world import World
from holdfast.core.config import Config
from holdfast.core.limits import STOP_TIMEOUT_S

log = logging.getLogger(__name__)


class Server:
    """One broker."""

    def __init__(
        self,
        config: Config,
        world: World,
        stages: Stages,
        records: ControlRecords,
        schedule: Schedule,
        counts: Counts,
    ) -> None:
        self._config = config
        self._world = world
        self._stages = stages
        self._records = records
        self._schedule = schedule
        self._counts = counts
        codecs = {"pulsar": stages.pulsar.codec}
        self.listeners = Listeners(config, world, stages.connections, counts, codecs)
        self._turn = Turn(config, world, stages, schedule)
        self._sweep = Sweep(config, world, stages, records, schedule)
        self._pack_timer = PackTimer(stages.packs, schedule, stages.steps, world)
        self.retention: dict[str, int] = {}
        """How long and how much is kept, as the read interface tells it."""
        self._tell_retention(config)
        self._began_us = world.now_us()
        self.commands = Commands(stages, world.now_us, self.ask_turn)
        """What can be done to it from outside, and the next to its cursors and bridges."""
        self.cursor_commands = CursorCommands(stages, records, world.now_us)
        self.group_commands = GroupCommands(stages, world.now_us, lambda: self._config)
        self.bridge_commands = BridgeCommands(stages, world.now_us)

    async def start(self) -> None:
        """Listens for clients. Raises `ListenError`, or `ConfigurationError` for certificates."""
        await self.listeners.start()
        self._sweep.start()
        self._pack_timer.start()

    def start_bridges(self) -> None:
        """Connects to other brokers."""
        self._stages.bridges.start(self._world.now_us())

    def request_stop(self) -> None:
        """Lets `wait_ended` return."""
        self._schedule.stop()

    async def wait_ended(self) -> None:
        """Returns when the broker was asked to stop; raises what it cannot go on after."""
        await self._schedule.ended

    def ready(self) -> bool:
        """True while it serves."""
        return not self._schedule.ended.done()

    def requires_credentials(self) -> bool:
        """True if clients have to show who they are, because credentials are set up."""
        return self._stages.access.required

    def users(self) -> tuple[Users, Callable[[int], Awaitable[None]]]:
        """Changes credentials and rules; and waits until a change is durable, and is found where
        all of them are listed."""
        stages = self._stages

        async def wait(position: int) -> None:
            await stages.promises.wait_durable(position)
            await self._records.caught_up()

        return Users(stages.access, self._world.now_us), wait

    @property
    def batches(self) -> Batches:
        """What writers stage and commit."""
        return self._stages.batches

    def durable_offset(self) -> int:
        """Everything below is durable and may be read."""
        return self._stages.kernel.log.durable_offset()

    def uptime_s(self) -> float:
        """Seconds since it was assembled."""
        return (self._world.now_us() - self._began_us) / 1_000_000

    def now_us(self) -> int:
        """The time by which it works."""
        return self._world.now_us()

    @property
    def stages(self) -> Stages:
        """What it is made of, for who looks at it and administers it."""
        return self._stages

    @property
    def records(self) -> ControlRecords:
        """The control records."""
        return self._records

    @property
    def counts(self) -> Counts:
        """What is counted of what happens at the doors."""
        return self._counts

    @property
    def turn(self) -> Turn:
        """The stages in order, and how often they have run."""
        return self._turn

    @property
    def sweep(self) -> Sweep:
        """What happens once a second."""
        return self._sweep

    def ask_turn(self) -> None:
        """There is something to do in a turn."""
        self._schedule.soon()

    @property
    def steps(self) -> Steps:
        """How long the steps of its loop take."""
        return self._stages.steps

    @property
    def credentials(self) -> Access:
        """Who may administer it, once credentials are set up."""
        return self._stages.access

    def observe(self, name: str, look: Callable[[int], None]) -> None:
        """`look` is called at the end of each sweep from now on, with the time."""
        self._sweep.observe(name, look)

    @property
    def config(self) -> Config:
        """The settings in force."""
        return self._config

    def reconfigure(self, config: Config) -> None:
        """Hands new settings to whoever can take them while it serves (`reloadable`). Raises
        `ConfigurationError` for certificates, having changed nothing."""
        self.listeners.reconfigure(config)
        stages = self._stages
        self._config = config
        stages.access.reconfigure(config)
        stages.permissions.reconfigure(config)
        stages.environments.reconfigure(config)
        stages.connections.reconfigure(config)
        stages.admission.reconfigure(config)
        stages.control_packets.reconfigure(config)
        stages.sessions.reconfigure(config)
        stages.groups.reconfigure(config)
        stages.cursors.reconfigure(config)
        stages.queues.reconfigure(config)
        stages.batches.reconfigure(config)
        stages.bridges.reconfigure(config)
        stages.packs.reconfigure(config)
        stages.queue_names.reconfigure(config)
        stages.pulsar.reconfigure(config)
        self._turn.reconfigure(config)
        self._sweep.reconfigure(config)
        self._tell_retention(config)

    async def stop(self) -> None:
        """Stops listening, answers what has arrived, tells everybody, brings sessions to rest and
        the log to the disk. Peers that do not read are waited for STOP_TIMEOUT_S; the disk is
        waited for as long as it takes (`run` puts a bound on that)."""
        self.listeners.close()
        self._sweep.stop()
        self._pack_timer.stop()
        now_us = self._world.now_us()
        # What has arrived is stored, made durable and answered, so that no publisher has to send
        # again, after the restart, what is there already.
        if (plain := self._stages.connections.plain) is not None:
            plain.receive()
        self._turn.stages_in_order(now_us)
        self._stages.commits.stop()
        self._turn.stages_in_order(now_us)
        self._stages.bridges.close(now_us)
        for connection in self._stages.connections.all():
            self._stages.endings.of(connection).shut_down(connection, now_us)
        self._rest(now_us)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._stages.connections.wait_closed()
        except TimeoutError:
            self._stages.connections.abort_closing(closed_before_us=self._world.now_us())
        self._stages.kernel.log.close()
        log.info("stopped")

    def abandon(self) -> None:
        """Ends without another word to the disk: the log cannot be trusted to take it."""
        self.listeners.close()
        self._sweep.stop()
        self._pack_timer.stop()
        self._sweep.close()
        self._stages.access.close()
        self._stages.batches.close()
        self._stages.bridges.abandon()
        for connection in self._stages.connections.all():
            connection.transport.abort()

    def _tell_retention(self, config: Config) -> None:
        self.retention |= {"age_s": config.retention_age_s, "bytes": config.retention_bytes}

    def _rest(self, now_us: int) -> None:
        stages = self._stages
        stages.access.close()
        stages.batches.close()
        stages.chores.close()
        self._sweep.close()
        self._turn.stages_in_order(now_us)
        # The Wills of those who have just gone; each round makes room for the next.
        while not stages.entrance.is_empty():
            stages.kernel.log.commit()
            self._turn.stages_in_order(now_us)
        stages.losses.write(now_us)
        stages.kernel.log.commit()
        self._records.close()
