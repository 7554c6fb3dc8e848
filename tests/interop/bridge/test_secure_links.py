"""Links with TLS and WebSocket: what they carry, whom they believe, and what they say of whom they
do not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.certificates import Authority
from tests.interop.bridge.bridged import BridgedBroker, bridge, carries
from tests.interop.bridge.conftest import Connect, MakeRemote
from tests.process import BrokerProcess

MakeLocal = Callable[..., BridgedBroker]


@pytest.fixture
def stranger(tmp_path: Path) -> Authority:
    """An authority that nobody knows."""
    return Authority(tmp_path / "stranger", "stranger")


def both_ways(address: str, **tls: object) -> dict[str, object]:
    """A bridge that carries `up` there and `down` here."""
    told = {key: str(value) for key, value in tls.items()}
    return bridge(
        "b",
        0,
        address=address,
        tls=told,
        local_subscriptions=[carries("up/#")],
        remote_subscriptions=[carries("down/#")],
    )


def assert_carries(client: Connect, local: BrokerProcess, remote: BrokerProcess) -> None:
    here, there = client(local, "here"), client(remote, "there")
    here.subscribe("down/#", 2)
    there.subscribe("up/#", 2)
    large = bytes(range(256)) * 2_000
    local.wait_logged("bridge connected")
    for qos in (0, 1, 2):
        here.publish(f"up/{qos}", large, qos)
        there.publish(f"down/{qos}", large, qos)
    assert {(item.topic, item.qos) for item in there.receive_many(3)} == {
        (f"up/{qos}", qos) for qos in (0, 1, 2)
    }
    found = here.receive_many(3)
    assert {(item.topic, item.qos) for item in found} == {(f"down/{qos}", qos) for qos in (0, 1, 2)}
    assert all(item.payload == large for item in found)


@pytest.mark.parametrize("scheme", ["mqtts", "ws", "wss"])
def test_messages_go_both_ways_over_each_transport(
    make_remote: MakeRemote,
    local: MakeLocal,
    client: Connect,
    authority: Authority,
    scheme: str,
) -> None:
    remote = make_remote()
    tls = {} if scheme == "ws" else {"ca": authority.file}
    first = local(both_ways(remote.address(scheme), **tls))
    assert_carries(client, first, remote)
    assert first.stop() == 0, first.log()


def test_a_remote_may_ask_for_a_certificate(
    make_remote: MakeRemote, local: MakeLocal, client: Connect, authority: Authority
) -> None:
    remote = make_remote(tls_client_ca=authority.file, tls_client_certificates="required")
    own = authority.client("site7")
    tls = {"ca": authority.file, "certificate": own, "key": own}
    first = local(both_ways(remote.address("mqtts"), **tls))
    assert_carries(client, first, remote)


def test_without_the_certificate_that_a_remote_asks_for_the_bridge_says_so(
    make_remote: MakeRemote, local: MakeLocal, authority: Authority
) -> None:
    remote = make_remote(tls_client_ca=authority.file, tls_client_certificates="required")
    first = local(both_ways(remote.address("mqtts"), ca=authority.file))
    first.wait_logged("the remote refused this broker's certificate")


@pytest.mark.parametrize("scheme", ["mqtts", "wss"])
def test_a_remote_of_another_authority_is_told_nothing(
    make_remote: MakeRemote, local: MakeLocal, stranger: Authority, scheme: str
) -> None:
    remote = make_remote()
    first = local(both_ways(remote.address(scheme), ca=stranger.file))
    first.wait_logged("TLS: the remote's certificate was refused: ")
    assert "bridge connected" not in first.log()


def test_the_authorities_of_the_system_vouch_for_no_stranger(
    make_remote: MakeRemote, local: MakeLocal
) -> None:
    remote = make_remote()
    first = local(both_ways(remote.address("mqtts")))
    first.wait_logged("TLS: the remote's certificate was refused: ")


def test_a_remote_of_another_name_is_refused_unless_that_is_the_one_meant(
    make_remote: MakeRemote, local: MakeLocal, client: Connect, authority: Authority
) -> None:
    remote = make_remote()
    tls = {"ca": authority.file, "server_name": "elsewhere.example"}
    wrong = local(both_ways(remote.address("mqtts"), **tls))
    wrong.wait_logged("not valid for 'elsewhere.example'")
    tls = {"ca": authority.file, "server_name": "localhost"}
    assert_carries(client, local(both_ways(remote.address("mqtts"), **tls)), remote)


def test_certificates_are_read_at_each_attempt(
    make_remote: MakeRemote,
    local: MakeLocal,
    client: Connect,
    authority: Authority,
    stranger: Authority,
    tmp_path: Path,
) -> None:
    remote = make_remote()
    believed = tmp_path / "believed.pem"
    first = local(both_ways(remote.address("mqtts"), ca=believed))
    first.wait_logged(f"tls.ca: {believed} cannot be read: No such file")
    believed.write_bytes(stranger.file.read_bytes())
    first.wait_logged("TLS: the remote's certificate was refused: ")
    believed.write_bytes(authority.file.read_bytes())
    assert_carries(client, first, remote)


def test_what_is_no_websocket_is_said_with_its_status(
    make_remote: MakeRemote, local: MakeLocal
) -> None:
    remote = make_remote(http_port=0)
    first = local(both_ways(f"ws://{remote.http_address}/nowhere"))
    first.wait_logged("WebSocket: server rejected WebSocket connection: HTTP 404")
