"""A processor beside a broker in virtual time, for tests of what must not go wrong.

    def test_a_read_is_there_once_although_the_process_is_killed_before_it_says_so():
        async def story(stage):
            stage.kill_before("pubrec")
            await stage.publish("readings/7", b"21.5")
            await stage.start_again()
            assert stage.rows() == [{"sensor": "7", "value": 21.5}]

        rehearse(Readings(), story, topics=("readings/+",))

Owns: the broker, the link, the sink and the processors of one rehearsal. Never: takes real time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from holdfast.broker.assemble import assemble
from holdfast.client.mqtt import Client, ClientOptions, ConnectionFailedError, Publication
from holdfast.core.config import Config
from holdfast.processors.metrics import Metrics
from holdfast.processors.processor import Processor
from holdfast.processors.running import Running
from holdfast.processors.settings import ProcessorSettings
from holdfast.testing.clock import FIRST_NOW_US
from holdfast.testing.hardships import Hardships
from holdfast.testing.link import Link, Passing
from holdfast.testing.loop import VirtualLoop, simulate
from holdfast.testing.machine import Machine
from holdfast.testing.sink import MemorySink
from holdfast.testing.world import BrokerMachine

BROKER: Final = ("10.0.0.1", 1883)
LINK: Final = ("10.0.0.2", 1883)
SEGMENT_BYTES: Final = 256 * 1024
"""Small, so that a rehearsal takes little memory."""
SETTLED_WITHIN_S: Final = 3_600.0
LOOK_EVERY_S: Final = 0.05
START_S: Final = 1.0

Story = Callable[["Rehearsal"], Awaitable[None]]


class Rehearsal:
    """What a story may do."""

    def __init__(
        self,
        loop: VirtualLoop,
        broker: BrokerMachine,
        processor: Processor,
        settings: ProcessorSettings,
    ) -> None:
        self.broker = broker
        self.settings = settings
        self.seed = loop.seed
        self.link = Link(*BROKER)
        self.sink = MemorySink()
        self.published: list[bytes] = []
        """The payloads of all messages that the broker has taken."""
        self.ended_with: BaseException | None = None
        """What the last processor could not go on with."""
        self.metrics = Metrics()
        self._loop = loop
        self._processor = processor
        self._machine: Machine | None = None
        self._killed: list[Machine] = []
        self.running: Running | None = None
        self._publisher = Client("publisher", ClientOptions(session_expiry_interval_s=86_400))

    # --- the processor --------------------------------------------------------------------------

    async def start(self, **changes: Any) -> None:
        """Starts it, as a process of its own, and waits until it is subscribed, or gone again;
        `changes` are of its settings."""
        settings = replace(self.settings, **changes)
        self._machine = machine = Machine("processor")
        self._loop.create_task(self._live(settings), context=machine.context())

        def is_ready_or_gone() -> bool:
            if self._machine is not machine:
                return True
            return self.running is not None and self.running.waits_for() is None

        await self.until(is_ready_or_gone)

    async def start_again(self) -> None:
        """The process was killed, and another one goes on; waits until all is settled."""
        await self.until(lambda: self._machine is None)
        await self.start()
        await self.settle()

    def kill(self) -> None:
        """The process ends where it is."""
        if self._machine is not None:
            self._loop.power_off(self._machine)
            self._killed.append(self._machine)
        self._machine = self.running = None

    def kill_before(self, kind: str) -> None:
        """It is killed when it has sent the next packet of a kind, which does not arrive."""

        def is_next(packet: Passing) -> bool:
            if packet.kind != kind or not packet.to_broker:
                return False
            self.link.cut_if = lambda _packet: False
            self.kill()
            return True

        self.link.cut_if = is_next

    def kill_after_commit(self) -> None:
        """It is killed when the sink has committed, before it knows."""

        def committed() -> None:
            self.sink.committed = lambda: None
            self.kill()

        self.sink.committed = committed

    async def stop(self) -> None:
        """Asks it to stop, and waits until it has."""
        assert self.running is not None
        self.running.stop()
        await self.until(lambda: self.running is None)

    def calm(self) -> None:
        """Nothing fails any more unless it is asked to: the network, the sink and the link."""
        self._loop.network.calm()
        self.link.cut_if = lambda _packet: False
        self.sink.calm()

    # --- messages -------------------------------------------------------------------------------

    async def publish(self, topic: str, *payloads: bytes, qos: int = 2) -> None:
        """Publishes, and waits until the broker has all of them."""
        self._publisher.publish(*(Publication(topic, payload, qos) for payload in payloads))
        while not self._publisher.idle.is_set():
            if self._publisher.lost.is_set():
                with suppress(ConnectionFailedError):
                    await self._publisher.connect(*BROKER)
            await asyncio.sleep(LOOK_EVERY_S)
        self.published += payloads

    async def settle(self) -> None:
        """Waits until nothing is open at the processor and nothing more comes."""
        began_s = quiet_since = self._loop.time()
        passed = -1
        while self._loop.time() - quiet_since < 2 * self.settings.reconnect_delay_s:
            assert self._loop.time() - began_s < SETTLED_WITHIN_S, "something stays open"
            is_open = self.running is not None and self.running.open_count() > 0
            if is_open or passed != len(self.link.passed):
                passed, quiet_since = len(self.link.passed), self._loop.time()
            await asyncio.sleep(LOOK_EVERY_S)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Waits in virtual time; an hour at most."""
        began_s = self._loop.time()
        while not is_so():
            assert self._loop.time() - began_s < SETTLED_WITHIN_S, "it never came to be"
            await asyncio.sleep(LOOK_EVERY_S)

    def rows(self) -> list[Mapping[str, Any]]:
        """What the processor's table has."""
        return self.sink.rows(self._processor.table.name)

    def number(self, name: str) -> float:
        """A number of the metrics, such as `messages_received_total`."""
        for line in self.metrics.text().decode().splitlines():
            if line.startswith(f"holdfast_processor_{name}{{"):
                return float(line.rpartition(" ")[2])
        return 0.0

    async def bury(self) -> None:
        """What is left of processes that were killed ends, and reaches nobody."""
        self.kill()
        left = [task for machine in self._killed for task in machine.tasks if not task.done()]
        for machine in self._killed:
            machine.has_power = True
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=SETTLED_WITHIN_S)

    async def _live(self, settings: ProcessorSettings) -> None:
        self.ended_with = None
        self.running = running = Running(
            self._processor,
            settings,
            self.sink,
            self.metrics.of(settings.name, settings.environment),
            now_us=lambda: FIRST_NOW_US + self._loop.time_us,
            random=self._loop.random,
        )
        try:
            await running.live()
        except Exception as error:  # noqa: BLE001 - a story looks at it.
            self.ended_with = error
        if self.running is running:
            self.running = self._machine = None


def rehearse(
    processor: Processor,
    story: Story,
    *,
    seed: int = 1,
    hardships: Hardships | None = None,
    broker_settings: Mapping[str, Any] | None = None,
    **settings: Any,
) -> str:
    """Runs a story beside a broker, with a processor that is started and subscribed; returns a
    digest of what happened, the same for the same seed. `settings` are of the processor,
    `broker_settings` of the broker, as `Config` calls them."""
    chosen: dict[str, Any] = {
        "name": "Rehearsed",
        "environment": "test",
        "client_identifier": "processor-test-1",
        "sink": "memory",
        **settings,
    }
    told = ProcessorSettings(broker_host=LINK[0], broker_port=LINK[1], tls=False, **chosen)

    async def main(loop: VirtualLoop) -> None:
        config = Config(
            data_dir=Path("simulated"),
            host=BROKER[0],
            mqtt_port=BROKER[1],
            http_port=None,
            pulsar_port=None,
            anonymous=True,
            segment_bytes=SEGMENT_BYTES,
            checkpoint_bytes=4 * SEGMENT_BYTES,
            reserve_bytes=4 * SEGMENT_BYTES,
            **(broker_settings or {}),
        )
        machine = BrokerMachine(loop, lambda world: assemble(config, world))
        machine.start()
        await asyncio.sleep(START_S)
        stage = Rehearsal(loop, machine, processor, told)
        await stage.link.listen(*LINK)
        await stage.start()
        await story(stage)
        await stage.bury()
        await machine.stop()

    repeat = f"rehearse(..., seed={seed})"
    return simulate(main, seed=seed, repeat=repeat, hardships=hardships or Hardships())[1]
