"""Logins while passwords are checked elsewhere, in virtual time: what happens meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from holdfast.broker.access.passwords import hash_password
from holdfast.broker.assemble import assemble
from holdfast.broker.server import Server
from holdfast.core.config import Config
from holdfast.core.limits import CONNECT_TIMEOUT_S
from holdfast.kernel import decode_packets, encode_packet
from holdfast.testing.hardships import Hardships
from holdfast.testing.loop import VirtualLoop, simulate
from holdfast.testing.world import BrokerMachine
from tests.simulation import whole

REPEAT = "python -m pytest tests/simulation/test_logins.py"
CHECK_S = 0.05
"""How long a check takes in these runs, on average."""
CONFIG = replace(whole.CONFIG, anonymous=False, login_delay_s=2, login_failures_maximum=100)
PASSWORD = "open sesame"


class Peer(asyncio.Protocol):
    """A client of bare packets."""

    def __init__(self) -> None:
        self.packets: list[tuple[str, dict[str, Any]]] = []
        self.ended = asyncio.Event()
        self._undecoded = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._undecoded += data
        found, used = decode_packets(self._undecoded, protocol_version=5, role="client")
        self._undecoded = self._undecoded[used:]
        self.packets += [(packet.kind, packet.fields) for packet in found]

    def connection_lost(self, _error: Exception | None) -> None:
        self.ended.set()

    def connect(self, name: str, password: str = PASSWORD) -> None:
        """Sends CONNECT as the one user there is."""
        fields = {
            "protocol_version": 5,
            "client_identifier": name,
            "clean_start": True,
            "keep_alive_s": 0,
            "user_name": "gate",
            "password": password.encode(),
            "will": None,
            "properties": {},
        }
        self.send("connect", fields)

    def send(self, kind: str, fields: dict[str, Any]) -> None:
        self._transport.write(encode_packet(kind, fields, protocol_version=5))

    def close(self) -> None:
        self._transport.close()

    def codes(self) -> list[tuple[str, int]]:
        """Kind and reason code of what has come."""
        return [(kind, fields.get("reason_code", 0)) for kind, fields in self.packets]


class Town:
    """A broker with one user, and its peers."""

    def __init__(self, loop: VirtualLoop, config: Config) -> None:
        self.loop = loop
        self.machine = BrokerMachine(loop, lambda world: assemble(config, world))

    async def begin(self) -> None:
        self.machine.start()
        await asyncio.sleep(1)
        users, _ = self.server.users()
        users.add({"name": "gate", "allow": ["#"]}, self.hashed(PASSWORD))

    def hashed(self, password: str) -> str:
        return hash_password(password.encode(), self.loop.random.randbytes)

    @property
    def server(self) -> Server:
        life = self.machine.life
        assert isinstance(life, Server)
        return life

    async def peer(self) -> Peer:
        made = Peer()
        await self.loop.create_connection(lambda: made, whole.HOST, whole.PORT)
        return made


def told(
    story: Callable[[Town], Awaitable[None]], *, seed: int = 1, check_s: float = CHECK_S
) -> None:
    async def run(loop: VirtualLoop) -> None:
        town = Town(loop, CONFIG)
        await town.begin()
        await story(town)
        await town.machine.stop()

    simulate(run, seed=seed, repeat=REPEAT, hardships=Hardships(executor_latency_s=check_s))


def test_others_are_served_while_a_password_is_checked() -> None:
    async def story(town: Town) -> None:
        first = await town.peer()
        first.connect("first")
        await asyncio.sleep(1)
        assert first.codes() == [("connack", 0)]
        slow = await town.peer()
        slow.connect("slow", "wrong")
        first.send("pingreq", {})
        await asyncio.sleep(0.01)
        assert first.codes()[-1] == ("pingresp", 0)
        assert slow.codes() == []

    told(story)


def test_what_connack_says_holds_though_the_settings_change_while_a_password_is_checked() -> None:
    async def story(town: Town) -> None:
        before = await town.peer()
        before.connect("before")
        await asyncio.sleep(0.01)
        assert before.codes() == []
        town.server.reconfigure(replace(town.server.config, receive_maximum=2))
        await asyncio.sleep(1)
        [(kind, connack)] = before.packets
        assert (kind, connack["reason_code"]) == ("connack", 0)
        granted = connack["properties"].get("receive_maximum", 65_535)
        assert granted == CONFIG.receive_maximum
        for identifier in range(1, 4):
            message = {"topic_name": "a", "payload": b"", "qos": 2}
            before.send("publish", message | {"packet_identifier": identifier})
        await asyncio.sleep(1)
        assert before.codes()[1:] == [("pubrec", 0)] * 3
        after = await town.peer()
        after.connect("after")
        await asyncio.sleep(1)
        [(_, connack)] = after.packets
        assert connack["properties"]["receive_maximum"] == 2

    told(story)


def test_a_wrong_password_is_told_after_the_delay() -> None:
    async def story(town: Town) -> None:
        peer = await town.peer()
        peer.connect("one", "wrong")
        await asyncio.sleep(CONFIG.login_delay_s - 0.1)
        assert peer.codes() == []
        await asyncio.sleep(1.5)
        assert peer.codes() == [("connack", 0x86)]
        assert peer.ended.is_set()

    told(story)


def test_what_was_sent_behind_connect_counts_even_if_the_peer_has_gone() -> None:
    async def story(town: Town) -> None:
        watcher = await town.peer()
        watcher.connect("watcher")
        wanted = {"packet_identifier": 1, "subscriptions": [{"topic_filter": "#", "qos": 0}]}
        watcher.send("subscribe", wanted)
        await asyncio.sleep(1)
        hasty = await town.peer()
        hasty.connect("hasty")
        message = {"topic_name": "a", "payload": b"bye", "qos": 0, "retain": False, "dup": False}
        hasty.send("publish", message)
        hasty.send("disconnect", {"reason_code": 0, "properties": {}})
        hasty.close()
        await asyncio.sleep(1)
        assert [kind for kind, _ in watcher.packets] == ["connack", "suback", "publish"]

    told(story)


@pytest.mark.parametrize("seed", range(5))
def test_of_two_with_one_name_the_last_to_be_let_in_stays(seed: int) -> None:
    async def story(town: Town) -> None:
        peers = [await town.peer() for _ in range(2)]
        for peer in peers:
            peer.connect("same")
        await asyncio.sleep(2)
        assert sorted(peer.codes()[-1] for peer in peers) == [("connack", 0), ("disconnect", 0x8E)]
        assert len(town.server.stages.connections) == 1

    told(story, seed=seed)


def test_a_user_that_is_removed_while_its_password_is_checked_is_not_let_in() -> None:
    async def story(town: Town) -> None:
        peer = await town.peer()
        peer.connect("one")
        await asyncio.sleep(0.000_1)
        users, _ = town.server.users()
        users.remove("gate")
        users.add({"name": "other"}, town.hashed("word"))
        await asyncio.sleep(5)
        assert [code for _, code in peer.codes()] in ([0x86], [0x87])

    told(story)


def test_who_does_not_come_through_in_time_is_ended() -> None:
    async def story(town: Town) -> None:
        peer = await town.peer()
        peer.connect("one")
        await asyncio.sleep(CONNECT_TIMEOUT_S + 2)
        assert peer.ended.is_set()
        assert peer.codes() == []
        assert len(town.server.stages.connections) == 0
        # The check ends in the end, and finds nobody.
        await asyncio.sleep(10_000)
        assert town.server.stages.sessions.count() == 0

    told(story, check_s=100)


def test_a_broker_that_stops_waits_for_no_password() -> None:
    async def story(town: Town) -> None:
        peer = await town.peer()
        peer.connect("one")
        await asyncio.sleep(0.000_1)

    told(story)


def test_rules_that_change_reach_a_crowd_in_steps() -> None:
    async def story(town: Town) -> None:
        peers = [await town.peer() for _ in range(50)]
        for number, peer in enumerate(peers):
            peer.connect(f"peer {number}")
        await asyncio.sleep(2)
        users, wait_durable = town.server.users()
        await wait_durable(users.change("gate", {"enabled": False}, None))
        await asyncio.sleep(1)
        assert {peer.codes()[-1] for peer in peers} == {("disconnect", 0x87)}
        assert town.server.stages.sessions.count() == 0

    told(story)
