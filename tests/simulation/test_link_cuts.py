"""Exactly once and in order, wherever a connection of a bridge is cut: at each byte of the
exchanges of QoS 1 and QoS 2, in both directions."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from holdfast.broker.assemble import assemble
from holdfast.broker.server import Server
from holdfast.core.config import Config
from holdfast.testing.hardships import Hardships
from holdfast.testing.loop import VirtualLoop, simulate
from holdfast.testing.world import BrokerMachine
from tests.simulation.peer import Peer
from tests.simulation.remote import BOTH_WAYS, Bridged, with_remote
from tests.simulation.whole import CONFIG, HOST, PORT

REMOTE_HOST, RELAY_HOST = "10.0.0.2", "10.0.0.3"
QOS = (1, 2, 1, 2)
"""Of the messages that one cut meets, in each direction."""


class Relay:
    """Leads to the remote, and cuts a connection after so many bytes in one direction."""

    def __init__(self) -> None:
        self.cut_after: dict[str, int] = {}
        """For the next connection that is not cut yet."""
        self.passed = {"up": 0, "down": 0}
        """Over the newest connection."""
        self.ends: list[Half] = []

    async def listen(self) -> None:
        """Takes connections from now on."""
        loop = asyncio.get_running_loop()
        await loop.create_server(lambda: Half(self, "up"), RELAY_HOST, PORT)

    def cut(self) -> None:
        """Ends all connections, on both sides, without a word."""
        ends, self.ends = self.ends, []
        for end in ends:
            end.transport.close()

    def allowed(self, direction: str, data: bytes) -> bytes:
        """What of it passes."""
        maximum = self.cut_after.get(direction)
        if maximum is not None:
            data = data[: maximum - self.passed[direction]]
        self.passed[direction] += len(data)
        return data


class Half(asyncio.Protocol):
    """One side of a connection; what comes here goes in one direction."""

    def __init__(self, relay: Relay, direction: str, other: "Half | None" = None) -> None:
        self.relay = relay
        self.direction = direction
        self.other = other
        self._waiting = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.relay.ends.append(self)
        if self.other is None:
            self.relay.passed = {"up": 0, "down": 0}
            self._task = asyncio.get_running_loop().create_task(self._reach())

    async def _reach(self) -> None:
        loop = asyncio.get_running_loop()
        _, self.other = await loop.create_connection(
            lambda: Half(self.relay, "down", self), REMOTE_HOST, PORT
        )
        self.data_received(b"")

    def data_received(self, data: bytes) -> None:
        self._waiting += data
        if self.other is None:
            return
        waiting, self._waiting = self._waiting, b""
        passing = self.relay.allowed(self.direction, waiting)
        if passing and not self.other.transport.is_closing():
            self.other.transport.write(passing)
        if len(passing) < len(waiting):
            self.relay.cut_after = {}
            self.relay.cut()

    def connection_lost(self, _error: Exception | None) -> None:
        if self.other is not None and not self.other.transport.is_closing():
            self.other.transport.close()


class Client(Peer):
    """Publishes numbers, and knows what has come."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.number = 0

    async def publish_each(self, topic: str) -> None:
        """One message of each QoS, acknowledged to the end."""
        for qos in QOS:
            self.number += 1
            self.publish(f"{topic}/{qos}", b"%04d" % self.number, qos=qos, identifier=self.number)
        await asyncio.sleep(0.2)
        received = [fields["packet_identifier"] for fields in self.of_kind("pubrec")]
        self.acknowledge("pubrel", *received)
        self.forget()

    def came(self) -> dict[int, list[int]]:
        """The numbers that have come, by QoS."""
        found: dict[int, list[int]] = {0: [], 1: [], 2: []}
        for fields in self.of_kind("publish"):
            found[fields["qos"]].append(int(fields["payload"]))
        return found


async def client(host: str, name: str, topic_filter: str | None = None) -> Client:
    """A connected client, which may subscribe."""
    loop = asyncio.get_running_loop()
    _, peer = await loop.create_connection(lambda: Client(5), host, PORT)
    told = {"user_name": None, "password": None, "will": None, "keep_alive_s": 0}
    peer.send("connect", protocol_version=5, client_identifier=name, clean_start=True, **told)
    if topic_filter is not None:
        wanted = {
            "topic_filter": topic_filter,
            "qos": 2,
            "no_local": False,
            "retain_as_published": False,
            "retain_handling": 0,
        }
        peer.send("subscribe", packet_identifier=1, subscriptions=[wanted])
    await asyncio.sleep(1)
    return peer


class Pair:
    """Two brokers, the relay between them, and a client of each kind at both."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay

    async def join(self) -> None:
        """The clients connect."""
        self.here = await client(HOST, "publisher")
        self.there = await client(REMOTE_HOST, "publisher")
        self.got_here = await client(HOST, "subscriber", "down/#")
        self.got_there = await client(REMOTE_HOST, "subscriber", "up/#")

    async def exchange(self) -> None:
        """Messages both ways at one time, and time enough to connect anew for them."""
        await asyncio.gather(self.here.publish_each("up"), self.there.publish_each("down"))
        await asyncio.sleep(6)

    def judge(self) -> None:
        """Everything has come, in order, and at QoS 2 once."""
        numbers = [*range(1, self.here.number + 1)]
        for peer in (self.got_here, self.got_there):
            found = peer.came()
            for qos in (1, 2):
                wanted = [number for number in numbers if QOS[(number - 1) % len(QOS)] == qos]
                got = found[qos] if qos == 2 else list(dict.fromkeys(found[qos]))
                assert got == wanted


def with_pair(body: Callable[[Pair], Awaitable[None]], version: str) -> None:
    table = {
        "name": "b",
        "address": f"{RELAY_HOST}:{PORT}",
        "protocol_version": version,
        # The log of a simulated broker is so small that it keeps nothing for who has no limit.
        "queue_limit": 1_000,
    }

    async def main(loop: VirtualLoop) -> None:
        relay = Relay()
        await relay.listen()
        here = replace(CONFIG, bridge_tables=({**table, **BOTH_WAYS},))
        machines = [machine(loop, replace(CONFIG, host=REMOTE_HOST)), machine(loop, here)]
        await asyncio.sleep(1)
        life = machines[1].life
        assert isinstance(life, Server)
        life.start_bridges()
        pair = Pair(relay)
        await pair.join()
        await body(pair)
        for each in machines:
            await each.stop()

    simulate(main, seed=1, repeat="this test", hardships=Hardships())


def machine(loop: VirtualLoop, config: Config) -> BrokerMachine:
    """A broker that runs."""
    made = BrokerMachine(loop, lambda world: assemble(config, world))
    made.start()
    return made


@pytest.mark.accepts("S1.10", "S1.12", "S1.13", "S1.63", "S1.64", "S1.70")
@pytest.mark.parametrize("version", ["5", "3.1.1"])
@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_cut_at_each_byte_loses_and_doubles_nothing(version: str, direction: str) -> None:
    async def body(pair: Pair) -> None:
        pair.relay.cut()
        await pair.exchange()
        size = pair.relay.passed[direction]
        assert size > 90
        for position in range(size):
            pair.relay.cut()
            pair.relay.cut_after = {direction: position}
            # A new connection begins within the second, and meets what is published now.
            await pair.exchange()
            assert pair.relay.cut_after == {}, "it was cut"
        await asyncio.sleep(10)
        pair.judge()

    with_pair(body, version)


@pytest.mark.accepts("S1.12", "S1.63", "S1.68")
@pytest.mark.parametrize("is_kept", [True, False])
def test_what_the_remote_has_said_to_have_is_not_sent_again(is_kept: bool) -> None:
    async def body(bridged: Bridged) -> None:
        remote = bridged.remote
        remote.silent_about = {"pubrel"}
        await bridged.publish("up/x", b"had", qos=2)
        remote.silent_about = {"publish"}
        await bridged.publish("up/x", b"may have", qos=2)
        remote.connack = {"session_present": is_kept}
        remote.silent_about = set()
        remote.visit.transport.abort()
        await asyncio.sleep(3)
        before, after = remote.visits
        assert [fields["payload"] for fields in before.of_kind("publish")] == [b"had", b"may have"]
        (again,) = after.of_kind("publish")
        assert (again["payload"], again["dup"]) == (b"may have", is_kept)
        released = [fields["packet_identifier"] for fields in after.of_kind("pubrel")]
        assert len(released) == (2 if is_kept else 1)
        assert bridged.link.queue.in_flight() == 0
        assert bridged.link.counts.sessions_forgotten == (0 if is_kept else 1)
        assert bridged.losses() == []

    with_remote(body, queue_limit=1_000)
