"""Plain sockets: what the turn reads and writes by itself, on real sockets."""

import asyncio
import errno
import gc
import os
import resource
import select
import socket
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop

from holdfast.broker import schedule
from holdfast.broker.assemble import assemble
from holdfast.broker.server import Server
from holdfast.broker.sockets import plain
from holdfast.broker.world import RealWorld
from holdfast.core.config import Config
from holdfast.kernel import (
    Arrivals,
    Committer,
    Deliveries,
    Inbox,
    Log,
    Outboxes,
    PulsarInbox,
    PulsarOutboxes,
    SimulatedDisk,
    Sockets,
    encode_packet,
)
from tests.builders.entries import acknowledge, flow, send
from tests.process import HOST

CONNECTION = 7
HIGH_BYTES, LOW_BYTES = 100_000, 10_000
MUCH = bytes(8 << 20)
"""More than the system takes of a peer that does not read."""
WITHIN_S = 60
ITERATIONS = 10
"""Of the loop: one is enough to take a connection."""
CONNACK = 0x20
CONNECT_FIELDS = {
    "protocol_version": 5,
    "client_identifier": "reader",
    "clean_start": True,
    "keep_alive_s": 0,
    "user_name": None,
    "password": None,
    "will": None,
    "properties": {},
}
CONNECT = encode_packet("connect", CONNECT_FIELDS, protocol_version=5)


class Table:
    """The kernel's sockets with what they read into and are written from."""

    def __init__(self) -> None:
        self.sockets = Sockets()
        self.inbox = Inbox(bytearray(1))
        self.pulsar_inbox = PulsarInbox(bytearray(1), self.inbox)
        self.outboxes = Outboxes()
        self.pulsar_outboxes = PulsarOutboxes()
        self.deliveries = Deliveries()
        self.peers: list[socket.socket] = []
        self.has_committed = False

    def add(self, connection: int = CONNECTION) -> tuple[int, socket.socket]:
        """A connection, and the other end of it."""
        here, peer = socket.socketpair()
        here.setblocking(False)
        self.peers.append(peer)
        token = self.sockets.add(here.detach())
        self.sockets.set_limits(token, HIGH_BYTES, LOW_BYTES)
        self.inbox.open(connection)
        self.sockets.begin(token, connection, is_pulsar=False)
        self.outboxes.open(
            connection,
            protocol_version=5,
            maximum_packet_size_bytes=1 << 28,
            topic_alias_maximum=0,
            party=1,
        )
        return token, peer

    def receive(self, *, tells_all: bool = False) -> bool:
        is_urgent, self.has_committed = self.sockets.receive(
            self.inbox, self.pulsar_inbox, self.deliveries, 0, tells_all=tells_all
        )
        return is_urgent

    def send(self) -> tuple[list[tuple[int, bytes]], bool]:
        return self.sockets.send(self.outboxes, self.pulsar_outboxes)

    def decoded(self) -> list[str]:
        return [packet.kind for _, packet in self.inbox.decode(Arrivals())]


@pytest.fixture
def table() -> Iterator[Table]:
    table = Table()
    yield table
    for peer in table.peers:
        peer.close()


def read_all(peer: socket.socket) -> int:
    """Reads what there is; returns how many bytes that were."""
    count = 0
    peer.setblocking(False)
    while True:
        try:
            data = peer.recv(1 << 20)
        except BlockingIOError:
            return count
        if not data:
            return count
        count += len(data)


def test_what_has_come_is_in_the_inbox(table: Table) -> None:
    token, peer = table.add()
    peer.sendall(CONNECT)
    assert table.receive()
    assert table.decoded() == ["connect"]
    # Nothing of a new connection may wait before somebody knows.
    assert table.sockets.news() == ([(token, len(CONNECT))], [], [])
    assert table.sockets.totals() == (len(CONNECT), 0)


def test_a_commit_that_has_ended_is_told_until_it_is_collected(table: Table) -> None:
    log, _ = Log.open_simulated(
        SimulatedDisk(1),
        segment_bytes=1 << 20,
        cache_bytes=1 << 16,
        reserve_bytes=0,
        durability="fsync",
        seed=7,
        now_us=0,
    )
    committer = Committer(log)
    table.sockets.watch(committer)
    table.receive()
    assert not table.has_committed
    log.append_control(1, b"key", b"value", 0)
    committer.wake()
    select.select([table.sockets.fileno()], [], [], WITHIN_S)
    for _ in range(2):
        assert not table.receive()
        assert table.has_committed
    committer.collect()
    assert log.durable_position() == log.end_position()
    table.receive()
    assert not table.has_committed
    committer.stop()


def test_a_frame_that_comes_in_parts_is_urgent_with_its_last(table: Table) -> None:
    token, peer = table.add()
    table.sockets.read_ahead(token, 1_000)
    peer.sendall(CONNECT[:5])
    assert not table.receive()
    peer.sendall(CONNECT[5:-1])
    assert not table.receive()
    peer.sendall(CONNECT[-1:])
    assert table.receive()
    assert table.decoded() == ["connect"]


def test_acknowledgements_that_nothing_waits_for_are_not_urgent(table: Table) -> None:
    token, peer = table.add()
    table.sockets.read_ahead(token, 1_000)
    for _ in range(3):
        peer.sendall(b"\x40\x02\x00\x01")
        assert not table.receive()
    peer.sendall(b"\x50\x02\x00\x01")
    assert table.receive()


def test_what_a_pulsar_client_wants_no_answer_to_is_not_urgent(table: Table) -> None:
    here, peer = socket.socketpair()
    table.peers.append(peer)
    token = table.sockets.add(here.detach())
    table.pulsar_inbox.open(CONNECTION)
    table.pulsar_inbox.accept(CONNECTION, frame_bytes_maximum=1_000, silence_us=0)
    table.sockets.begin(token, CONNECTION, is_pulsar=True)
    table.sockets.read_ahead(token, 1_000)
    for answers in (flow(1, 500), acknowledge(1, (2, 3)), acknowledge(1, (2, 4)) + flow(1, 1)):
        peer.sendall(answers)
        assert not table.receive()
    # What has waited for company is decoded with what has not.
    peer.sendall(acknowledge(1, (2, 5), request=7))
    assert table.receive()
    assert table.pulsar_inbox.decode(Arrivals()) == []
    entry = send(1, 0, bytes(100))
    peer.sendall(entry[:50])
    assert not table.receive()
    peer.sendall(entry[50:])
    assert table.receive()


def test_who_may_read_ahead_is_told_of_only_beyond_that_or_when_all_are(table: Table) -> None:
    token, peer = table.add()
    table.sockets.read_ahead(token, 1_000)
    peer.sendall(CONNECT)
    table.receive()
    assert table.sockets.news() == ([], [], [])
    peer.sendall(CONNECT)
    table.receive(tells_all=True)
    assert table.sockets.news() == ([(token, 2 * len(CONNECT))], [], [])


def test_what_is_in_an_outbox_is_sent_and_what_is_for_others_handed_back(table: Table) -> None:
    _, peer = table.add()
    table.outboxes.write(CONNECTION, b"to a socket")
    table.outboxes.open(
        9, protocol_version=5, maximum_packet_size_bytes=99, topic_alias_maximum=0, party=1
    )
    table.outboxes.write(9, b"through TLS")
    assert table.send() == ([(9, b"through TLS")], False)
    assert peer.recv(100) == b"to a socket"


def test_a_peer_that_does_not_read_is_full_until_it_does_and_gets_all_in_order(
    table: Table,
) -> None:
    token, peer = table.add()
    for number in range(1 << 20):
        table.outboxes.write(CONNECTION, struct.pack(">Q", number))
    assert table.send() == ([], True)
    assert table.sockets.news() == ([], [(token, False)], [])
    assert table.sockets.waiting_bytes(token) > HIGH_BYTES
    peer.setblocking(False)
    got = bytearray()
    while len(got) < 8 << 20:
        got += peer.recv(1 << 20)
        table.receive()
    assert got == b"".join(struct.pack(">Q", number) for number in range(1 << 20))
    assert table.sockets.news() == ([], [(token, True)], [])
    assert table.sockets.waiting_bytes(token) == 0


def test_a_socket_that_is_closed_sends_what_is_left_and_is_gone_then(table: Table) -> None:
    token, peer = table.add()
    table.sockets.write(token, MUCH)
    table.sockets.news()
    table.sockets.close(token)
    assert table.sockets.news() == ([], [], [])
    # Its connection's number is another one's already.
    other, other_peer = table.add()
    assert other != token
    table.outboxes.write(CONNECTION, b"hello")
    table.send()
    assert other_peer.recv(100) == b"hello"
    count = 0
    while count < len(MUCH):
        count += read_all(peer)
        table.receive()
    assert table.sockets.news()[2] == [token]
    assert peer.recv(1) == b""


def test_a_peer_that_has_closed_is_gone_when_what_it_sent_has_been_read(table: Table) -> None:
    token, peer = table.add()
    peer.sendall(CONNECT)
    peer.close()
    table.receive()
    assert table.decoded() == ["connect"]
    table.receive()
    assert table.sockets.news()[2] == [token]


def test_who_is_paused_is_neither_read_nor_gone(table: Table) -> None:
    token, peer = table.add()
    table.sockets.set_reading(token, False)
    peer.sendall(CONNECT)
    peer.close()
    # It does not wake anybody either.
    assert not table.receive()
    assert table.sockets.news() == ([], [], [])
    table.sockets.set_reading(token, True)
    assert table.receive()
    assert table.decoded() == ["connect"]
    table.receive()
    assert table.sockets.news()[2] == [token]


def test_what_cannot_be_sent_does_not_keep_what_has_come_from_being_read(table: Table) -> None:
    token, peer = table.add()
    peer.sendall(CONNECT)
    peer.close()
    table.outboxes.write(CONNECTION, b"nobody is there")
    table.send()
    table.receive()
    assert table.decoded() == ["connect"]
    table.receive()
    assert table.sockets.news()[2] == [token]


def test_a_token_is_given_out_again_only_when_it_was_told_to_be_gone(table: Table) -> None:
    token, _ = table.add()
    table.sockets.abort(token)
    second, _ = table.add(8)
    assert second != token
    assert table.sockets.news()[2] == [token]
    third, _ = table.add(9)
    assert third == token


def test_a_token_that_is_gone_is_passed_over(table: Table) -> None:
    token, _ = table.add()
    table.sockets.abort(token)
    table.sockets.write(token, b"x")
    table.sockets.set_reading(token, True)
    table.sockets.close(token)
    table.sockets.abort(token)
    assert table.sockets.waiting_bytes(token) == 0
    assert table.sockets.here(token) is None
    assert table.sockets.news()[2] == [token]


def test_what_is_no_descriptor_is_refused(table: Table) -> None:
    with pytest.raises(ValueError, match="-1 is no descriptor"):
        table.sockets.add(-1)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_connections_that_wait_are_taken_up_to_so_many_with_where_they_come_from(
    table: Table, host: str
) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listening:
        listening.setblocking(False)
        peers = [socket.create_connection(listening.getsockname()[:2]) for _ in range(3)]
        table.peers += peers
        first, error_number = table.sockets.accept(listening.fileno(), 2)
        assert error_number == 0
        second, error_number = table.sockets.accept(listening.fileno(), 2)
        assert error_number == errno.EAGAIN
        taken = [*first, *second]
        assert [address for _, address in taken] == [peer.getsockname()[:2] for peer in peers]
        here = {table.sockets.here(token) for token, _ in taken}
        assert here == {(host, listening.getsockname()[1])}


def test_what_is_taken_is_read_once_it_has_a_connection(table: Table, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as peer:
        listening.bind(str(tmp_path / "socket"))
        listening.listen()
        peer.connect(str(tmp_path / "socket"))
        peer.sendall(CONNECT)
        listening.setblocking(False)
        [(token, address)], _ = table.sockets.accept(listening.fileno(), 10)
        assert address is None
        table.inbox.open(CONNECTION)
        table.receive()
        assert table.decoded() == []
        table.sockets.begin(token, CONNECTION, is_pulsar=False)
        table.receive()
        assert table.decoded() == ["connect"]


def test_nothing_is_taken_of_what_does_not_listen(table: Table) -> None:
    with pytest.raises(ValueError, match="-1 is no descriptor"):
        table.sockets.accept(-1, 1)
    with socket.socket() as idle:
        idle.setblocking(False)
        assert table.sockets.accept(idle.fileno(), 1) == ([], errno.EINVAL)


class Talk:
    """A client of an assembled broker that acknowledges when it is told to."""

    def __init__(self, server: Server) -> None:
        self._socket = socket.create_connection(server.listeners.addresses("mqtt")[0])
        self._socket.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self.data = b""

    async def say(self, *packets: bytes) -> None:
        await self._loop.sock_sendall(self._socket, b"".join(packets))

    async def hear(self, kind: int) -> bytes:
        """The next packet of this type, which is short."""
        while True:
            while len(self.data) < 2 or len(self.data) < 2 + self.data[1]:
                self.data += await self._loop.sock_recv(self._socket, 1_000)
            packet, self.data = self.data[: 2 + self.data[1]], self.data[2 + self.data[1] :]
            if packet[0] >> 4 == kind >> 4:
                return packet

    def close(self) -> None:
        self._socket.close()


def publish(identifier: int) -> bytes:
    return bytes([0x32, 7, 0, 1]) + b"t" + identifier.to_bytes(2, "big") + b"\x00x"


def puback(identifier: int) -> bytes:
    return bytes([0x40, 2]) + identifier.to_bytes(2, "big")


SUBSCRIBE = bytes([0x82, 7, 0, 1, 0, 0, 1]) + b"t\x01"
SUBACK, PUBLISH, PUBACK = 0x90, 0x30, 0x40


def test_an_acknowledgement_that_nobody_waits_for_is_taken_with_the_next_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "COMPANY_S", 3_600)
    config = Config(data_dir=tmp_path, mqtt_port=0, http_port=None, pulsar_port=None)

    async def run() -> None:
        server = assemble(config, RealWorld())
        await server.start()
        talk = Talk(server)
        await talk.say(CONNECT, SUBSCRIBE)
        await talk.hear(SUBACK)
        await talk.say(publish(1))
        given = await talk.hear(PUBLISH)
        identifier = int.from_bytes(given[5:7], "big")
        acknowledged = server.turn.acknowledgements
        connections = server.stages.connections
        read = connections.received_bytes + len(puback(identifier))
        await talk.say(puback(identifier))
        for _ in range(1_000):
            await asyncio.sleep(0)
            if connections.received_bytes == read:
                break
        assert connections.received_bytes == read
        # It is there, and no turn was asked for.
        await asyncio.sleep(0)
        assert server.turn.acknowledgements == acknowledged
        await talk.say(publish(2))
        await talk.hear(PUBLISH)
        assert server.turn.acknowledgements == acknowledged + 1
        talk.close()
        await server.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def test_an_acknowledgement_is_taken_at_once_where_a_message_waits_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "COMPANY_S", 3_600)
    config = Config(data_dir=tmp_path, mqtt_port=0, http_port=None, pulsar_port=None)
    fields = CONNECT_FIELDS | {"properties": {"receive_maximum": 1}}
    connect = encode_packet("connect", fields, protocol_version=5)

    async def run() -> None:
        server = assemble(config, RealWorld())
        await server.start()
        talk = Talk(server)
        await talk.say(connect, SUBSCRIBE)
        await talk.hear(SUBACK)
        await talk.say(publish(1), publish(2))
        given = await talk.hear(PUBLISH)
        await talk.say(puback(int.from_bytes(given[5:7], "big")))
        async with asyncio.timeout(10):
            await talk.hear(PUBLISH)
        talk.close()
        await server.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


@pytest.mark.parametrize("address", [HOST, "unix"])
def test_where_no_descriptor_is_left_connections_wait_and_are_taken_later(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    address: str,
) -> None:
    monkeypatch.setattr(plain, "ACCEPT_PAUSE_S", 0.01)
    path = tmp_path / "socket"
    config = Config(
        data_dir=tmp_path,
        mqtt_port=0,
        http_port=None,
        pulsar_port=None,
        mqtt_unix_socket=path if address == "unix" else None,
    )

    async def run() -> None:
        server = assemble(config, RealWorld())
        await server.start()
        family = socket.AF_UNIX if address == "unix" else socket.AF_INET
        client = socket.socket(family)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        next_free = os.dup(client.fileno())
        os.close(next_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_free, hard))
        try:
            client.connect(
                str(path) if address == "unix" else server.listeners.addresses("mqtt")[0]
            )
            for _ in range(ITERATIONS):
                await asyncio.sleep(0)
            assert len(server.stages.connections) == 0
            assert "no connections are taken for a while" in caplog.text
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, CONNECT)
        assert (await loop.sock_recv(client, 100))[0] == CONNACK
        client.close()
        await server.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def test_a_connection_that_a_bridge_opens_is_read_and_written_by_the_turn(tmp_path: Path) -> None:
    directories = [tmp_path / name for name in ("remote", "local")]
    for directory in directories:
        directory.mkdir()
    config = Config(data_dir=directories[0], mqtt_port=0, http_port=None, pulsar_port=None)

    async def run() -> None:
        remote = assemble(config, RealWorld())
        await remote.start()
        host, port = remote.listeners.addresses("mqtt")[0]
        table = {
            "name": "b",
            "address": f"{host}:{port}",
            "local_subscriptions": [{"filters": ["t"]}],
        }
        local = assemble(
            replace(config, data_dir=directories[1], bridge_tables=(table,)), RealWorld()
        )
        await local.start()
        local.start_bridges()
        heard, said = Talk(remote), Talk(local)
        await heard.say(CONNECT, SUBSCRIBE)
        await heard.hear(SUBACK)
        await said.say(CONNECT, publish(1))
        await heard.hear(PUBLISH)
        (link,) = local.stages.bridges.links()
        connection = local.stages.connections.get(link.handle)
        assert connection is not None
        assert isinstance(connection.transport, plain.PlainTransport)
        for talk in (heard, said):
            talk.close()
        await local.stop()
        await remote.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def descriptors() -> int:
    """How many this process has open."""
    # What earlier tests have left in circles would go at any moment.
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_connection_that_is_refused_leaves_no_descriptor(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path, mqtt_port=0, http_port=None, pulsar_port=None)

    async def run() -> None:
        server = assemble(config, RealWorld())
        await server.start()
        connections = server.stages.connections
        assert connections.plain is not None
        nobody = socket.create_server((HOST, 0))
        port = nobody.getsockname()[1]
        nobody.close()
        before = descriptors()
        with pytest.raises(ConnectionRefusedError):
            await connections.plain.connect(lambda: connections.make("tcp"), HOST, port)
        assert descriptors() == before
        await server.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
