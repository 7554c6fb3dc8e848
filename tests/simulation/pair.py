"""Two brokers in virtual time, of which the first has a bridge to the second, and a client of each.

Owns: what a scenario does with them. Never: judges; each test looks at the wire, and at what came.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from holdfast.broker.bridge.link import Link, State
from holdfast.testing.hardships import Hardships
from holdfast.testing.loop import VirtualLoop, simulate
from tests.equipment.history import Ledger
from tests.simulation.carriage import left_over
from tests.simulation.peer import Peer
from tests.simulation.sites import Site, carries
from tests.simulation.wire import PORT, Wire


class Device(Peer):
    """A client that says at once that it has what comes."""

    def data_received(self, data: bytes) -> None:
        seen = len(self.packets)
        super().data_received(data)
        for _, kind, fields in self.packets[seen:]:
            if kind == "publish" and fields["qos"]:
                answer = "puback" if fields["qos"] == 1 else "pubrec"
                self.acknowledge(answer, fields["packet_identifier"])
            if kind in ("pubrec", "pubrel"):
                self.acknowledge(
                    "pubrel" if kind == "pubrec" else "pubcomp", fields["packet_identifier"]
                )

    def payloads(self, qos: int | None = None) -> list[bytes]:
        """Of the messages that it got, of this QoS or of any."""
        return [
            bytes(fields["payload"])
            for fields in self.of_kind("publish")
            if qos is None or fields["qos"] == qos
        ]


async def connect(site: Site, name: str, *filters: str) -> Device:
    """A client of a site, with its subscriptions."""
    loop = asyncio.get_running_loop()
    _, device = await loop.create_connection(lambda: Device(5), site.host, PORT)
    device.send(
        "connect",
        protocol_version=5,
        client_identifier=name,
        clean_start=True,
        keep_alive_s=0,
        user_name=None,
        password=None,
        will=None,
    )
    await asyncio.sleep(0.1)
    for topic_filter in filters:
        wanted = {
            "topic_filter": topic_filter,
            "qos": 2,
            "no_local": False,
            "retain_as_published": False,
            "retain_handling": 0,
        }
        device.send("subscribe", packet_identifier=1, subscriptions=[wanted])
    await asyncio.sleep(0.1)
    return device


class Pair:
    """Two sites, of which the first has a bridge to the second."""

    def __init__(
        self,
        loop: VirtualLoop,
        *,
        storage: str = "FILE_NATIVE",
        window: int = 1_000,
        settings: Mapping[str, Any] | None = None,
        far: Mapping[str, Any] | None = None,
        **bridge: object,
    ) -> None:
        """The remote takes `window` messages at once; `settings` are those of the near broker,
        `far` those of the other one."""
        self.near = Site(loop, "a", bridges_storage=storage, **(settings or {}))
        self.far = Site(loop, "b", receive_maximum=window, **(far or {}))
        terms = {"local_subscriptions": [carries("t/#")]} | bridge
        self.wire: Wire = self.near.join("b", **terms)
        self._identifier = 0

    async def start(self) -> None:
        """All is there, and the bridge is connected."""
        await self.far.start()
        await self.near.start()
        await self.until(self.near.is_drained)
        self.publisher = await connect(self.near, "publisher")
        self.collector = await connect(self.far, "collector", "#")

    async def until(self, is_so: Callable[[], bool], within_s: float = 400.0) -> None:
        """Waits for it."""
        async with asyncio.timeout(within_s):
            while not is_so():  # noqa: ASYNC110 (virtual time, and states have no events)
                await asyncio.sleep(0.05)

    async def publish(self, *payloads: str, qos: int = 1, topic: str = "t/x") -> None:
        """Publishes here, each acknowledged."""
        before = len(self.publisher.of_kind("puback", "pubcomp"))
        for payload in payloads:
            self._identifier += 1
            self.publisher.publish(
                topic, payload.encode(), qos=qos, identifier=self._identifier if qos else 0
            )
        wanted = before + (len(payloads) if qos else 0)
        await self.until(lambda: len(self.publisher.of_kind("puback", "pubcomp")) == wanted)
        await asyncio.sleep(0.1)

    async def cut_off(self) -> None:
        """There is no way to the remote, and the bridge knows."""
        self.wire.close()
        await self.until(lambda: self.link.state not in (State.CONNECTED, State.DRAINING))

    async def restart(self, *, clean: bool = False) -> None:
        """The near broker ends, and begins again."""
        if clean:
            await self.near.machine.stop()
        else:
            self.near.machine.kill()
        self.near.machine.recover()
        await self.until(lambda: self.near.is_up)
        self.publisher = await connect(self.near, "publisher")

    def lost(self) -> dict[str, int]:
        """What the near broker's ledger says that the bridge has lost, by reason."""
        found = [event for event in left_over(self.near) if isinstance(event, Ledger)]
        return {str(event.reason): event.count for event in found if event.subscriber == "b"}

    @property
    def link(self) -> Link:
        """The bridge."""
        return self.near.link("b")

    def sent(self, connection: int | None = None, qos: int | None = None) -> list[str]:
        """What has come to the wire, on all connections or one."""
        return [
            item.payload.decode()
            for item in self.wire.of_kind("publish")
            if connection in (None, item.connection) and qos in (None, item.fields["qos"])
        ]


def with_pair(body: Callable[[Pair], Awaitable[None]], **options: Any) -> None:
    """Runs `body` beside two brokers in virtual time."""

    async def main(loop: VirtualLoop) -> None:
        pair = Pair(loop, **options)
        await pair.start()
        await body(pair)

    simulate(main, seed=1, repeat="this test", hardships=Hardships())
