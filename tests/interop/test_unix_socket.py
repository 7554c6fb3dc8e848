"""MQTT over a Unix domain socket, over IPv6, and on several addresses at once."""

import contextlib
import socket
import stat
from pathlib import Path

import pytest

from holdfast.client.http import HttpClient
from tests.interop.device import WITHIN_S, Device
from tests.interop.wire import Wire
from tests.process import HOST, BrokerProcess


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mqtt.sock"


def _over(path: Path) -> Wire:
    connected = socket.socket(socket.AF_UNIX)
    connected.settimeout(WITHIN_S)
    connected.connect(str(path))
    return Wire(over=connected)


def test_a_client_publishes_to_one_that_came_by_tcp(
    tmp_path: Path, path: Path, prefix: str
) -> None:
    broker = BrokerProcess(tmp_path, mqtt_unix_socket=path)
    broker.start()
    options = {"host": str(path), "transport": "unix", "clean_start": True}
    near = Device(1, f"{prefix}n", **options).connect()  # Paho wants a port, and does not use it.
    far = Device(broker.port, f"{prefix}f", clean_start=True).connect()
    with contextlib.closing(near), contextlib.closing(far):
        far.subscribe(f"{prefix}/a", 2)
        payload = bytes(range(256)) * 2_000
        near.publish(f"{prefix}/a", payload, 2)
        assert far.receive().payload == payload
    assert broker.stop() == 0


def test_the_file_has_its_permissions_and_goes_with_the_broker(tmp_path: Path, path: Path) -> None:
    broker = BrokerProcess(tmp_path, mqtt_unix_socket=path, mqtt_unix_socket_mode="0600")
    broker.start()
    assert stat.filemode(path.stat().st_mode) == "srw-------"
    assert broker.stop() == 0
    assert not path.exists()


def test_a_file_that_a_crash_has_left_is_replaced(tmp_path: Path, path: Path) -> None:
    broker = BrokerProcess(tmp_path, mqtt_unix_socket=path)
    broker.start()
    broker.kill()
    assert path.is_socket()
    broker.start()
    with _over(path) as wire:
        assert wire.connect("one")["reason_code"] == 0
    assert broker.stop() == 0


def test_another_process_is_left_alone(tmp_path: Path, path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(AssertionError, match="another process listens there"):
            BrokerProcess(tmp_path, mqtt_unix_socket=path).start()
        assert path.is_socket()


def test_a_file_that_is_not_a_socket_is_left_alone(tmp_path: Path, path: Path) -> None:
    path.write_text("precious")
    with pytest.raises(AssertionError, match="there is a file that is not a socket"):
        BrokerProcess(tmp_path, mqtt_unix_socket=path).start()
    assert path.read_text() == "precious"


def test_several_addresses_are_listened_on(tmp_path: Path, version: int, prefix: str) -> None:
    broker = BrokerProcess(tmp_path, host=f"{HOST},::1", http_port=0)
    broker.start()
    told = HttpClient.on(broker.data_directory).get("/v1/broker")["listeners"]
    places = [each["address"] for each in told if each["protocol"] == "mqtt"]
    assert [place.rpartition(":")[0] for place in places] == [HOST, "[::1]"]
    for place in places:
        host, _, port = place.rpartition(":")
        options = {"host": host.strip("[]"), "version": version, "clean_start": True}
        with contextlib.closing(Device(int(port), prefix, **options).connect()) as device:
            device.subscribe(f"{prefix}/a", 1)
            device.publish(f"{prefix}/a", b"x", 1)
            assert device.receive().payload == b"x"
    assert "".join(f"MQTT on {place}\n" for place in places) in broker.log()
    assert broker.stop() == 0


def test_an_address_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET6) as other:
        other.bind(("::1", 0))
        other.listen()
        broker = BrokerProcess(tmp_path, ws_port=other.getsockname()[1], host=f"{HOST},::1")
        with pytest.raises(AssertionError, match=r"cannot listen on \[::1\]:\d+: .*in use"):
            broker.start()
