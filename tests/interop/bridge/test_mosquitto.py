"""Mosquitto as the remote of a bridge, and as a neighbour that bridges to us."""

import contextlib
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import system
from tests.interop.bridge.bridged import BridgedBroker, bridge, carries
from tests.interop.device import Device
from tests.interop.installation import mosquitto
from tests.ports import HeldPort
from tests.process import ASK_EVERY_S, HOST, START_WITHIN_S, BrokerProcess

MakeLocal = Callable[..., BridgedBroker]
MakeMosquitto = Callable[..., "Mosquitto"]
COUNT = 20
LISTENING = """
listener {port} 127.0.0.1
allow_anonymous true
log_dest file {log}
log_type all
"""


class Mosquitto:
    """One, which may be stopped and started again with what it has kept."""

    def __init__(self, directory: Path, *more: str) -> None:
        directory.mkdir()
        self._held = HeldPort()
        self.port = self._held.number
        self.log_file = directory / "mosquitto.log"
        self.log_file.touch()
        told = LISTENING.format(port=self.port, log=self.log_file)
        # As root it would become a user who may not write here.
        own = f"user root\npersistence true\npersistence_location {directory}/\n"
        self._file = directory / "mosquitto.conf"
        self._file.write_text("\n".join((told, own, *more, "")))
        self._command = [str(mosquitto()), "-c", str(self._file)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it and waits until it takes connections."""
        self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)
        began = system.monotonic_s()
        while system.monotonic_s() - began < START_WITHIN_S:
            with contextlib.suppress(subprocess.TimeoutExpired):
                raise AssertionError(f"it ended with {self._process.wait(ASK_EVERY_S)}")
            with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), 1):
                return
        raise AssertionError("mosquitto takes no connections")

    def stop(self) -> None:
        """Ends it; what its sessions have is on disk then."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(START_WITHIN_S)
            self._process = None


@pytest.fixture
def make_mosquitto(tmp_path: Path) -> Iterator[MakeMosquitto]:
    made: list[Mosquitto] = []

    def make(*more: str) -> Mosquitto:
        made.append(Mosquitto(tmp_path / f"mosquitto-{len(made)}", *more))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.stop()


@pytest.fixture
def at() -> Iterator[Callable[[int, str], Device]]:
    """Connects a client to whoever listens on a port."""
    made: list[Device] = []

    def connect(port: int, name: str) -> Device:
        made.append(Device(port, name, SessionExpiryInterval=600).connect())
        return made[-1]

    yield connect
    for device in made:
        device.close()


def published(device: Device, topic: str) -> set[tuple[str, int, bytes]]:
    """Numbers at each QoS; what has to come of them."""
    numbers = [b"%d" % number for number in range(COUNT)]
    for qos in (0, 1, 2):
        device.publish_all(f"{topic}/{qos}", numbers, qos)
    return {(f"{topic}/{qos}", qos, number) for qos in (0, 1, 2) for number in numbers}


def assert_comes(device: Device, wanted: set[tuple[str, int, bytes]]) -> None:
    """Each once, and in its order."""
    got = [(item.topic, item.qos, bytes(item.payload)) for item in device.receive_many(len(wanted))]
    assert len(set(got)) == len(got)
    assert set(got) == wanted
    for qos in (0, 1, 2):
        numbers = [int(payload) for _, at_qos, payload in got if at_qos == qos]
        assert numbers == sorted(numbers)


@pytest.mark.accepts("S1.9", "S1.11", "S1.20")
@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_messages_of_each_qos_go_to_mosquitto_and_come_from_it(
    make_mosquitto: MakeMosquitto,
    local: MakeLocal,
    at: Callable[[int, str], Device],
    version: str,
) -> None:
    remote = make_mosquitto()
    both = {
        "local_subscriptions": [carries("up/#")],
        "remote_subscriptions": [carries("down/#")],
    }
    first = local(bridge("b", remote.port, protocol_version=version, **both))
    first.wait_logged("bridge connected")
    here, there = at(first.port, "here"), at(remote.port, "there")
    here.subscribe("down/#", 2)
    there.subscribe("up/#", 2)
    assert_comes(there, published(here, "up"))
    assert_comes(here, published(there, "down"))


@pytest.mark.accepts("S1.10", "S1.43", "S1.70")
def test_what_waits_for_mosquitto_arrives_when_it_is_back(
    make_mosquitto: MakeMosquitto, local: MakeLocal, at: Callable[[int, str], Device]
) -> None:
    remote = make_mosquitto()
    first = local(bridge("b", remote.port, local_subscriptions=[carries("up/#")]))
    there = at(remote.port, "there")
    there.subscribe("up/#", 2)
    there.disconnect()
    first.wait_logged("bridge connected")
    remote.stop()
    here = at(first.port, "here")
    numbers = [b"%d" % number for number in range(COUNT)]
    for qos in (1, 2):
        here.publish_all(f"up/{qos}", numbers, qos)
    remote.start()
    assert_comes(
        at(remote.port, "there"),
        {(f"up/{qos}", qos, number) for qos in (1, 2) for number in numbers},
    )


@pytest.mark.parametrize("version", ["mqttv50", "mqttv311"])
def test_mosquitto_bridges_to_us(
    make_mosquitto: MakeMosquitto,
    tmp_path: Path,
    at: Callable[[int, str], Device],
    version: str,
) -> None:
    (tmp_path / "ours").mkdir()
    ours = BrokerProcess(tmp_path / "ours")
    ours.start()
    neighbour = make_mosquitto(
        "connection to-holdfast",
        f"address {HOST}:{ours.port}",
        f"bridge_protocol_version {version}",
        "topic up/# out 2",
        "topic down/# in 2",
        # They are retained messages and a Will under $SYS, which belongs to each broker alone.
        "notifications_local_only true",
        "restart_timeout 1",
    )
    here, there = at(ours.port, "here"), at(neighbour.port, "there")
    here.subscribe("up/#", 2)
    there.subscribe("down/#", 2)
    wait_bridged(neighbour)
    assert_comes(here, published(there, "up"))
    assert_comes(there, published(here, "down"))
    assert ours.stop() == 0, ours.log()


def wait_bridged(neighbour: Mosquitto) -> None:
    """Returns when its bridge has its subscriptions."""
    began = system.monotonic_s()
    while "Received SUBACK" not in neighbour.log_file.read_text():
        assert system.monotonic_s() - began < START_WITHIN_S, neighbour.log_file.read_text()
        with contextlib.suppress(subprocess.TimeoutExpired):
            assert neighbour._process is not None
            neighbour._process.wait(ASK_EVERY_S)
