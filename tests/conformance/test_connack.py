"""CONNACK's properties: what the broker grants, and what it says only where it has to."""

import pytest

from tests.conformance import packets
from tests.conformance.brokers import VirtualBroker
from tests.conformance.conftest import Join
from tests.conformance.packets import CONNACK_PROPERTIES
from tests.conformance.peer import Peer

WEEK_S = 604_800
PACKET_TOO_LARGE = 0x95


@pytest.mark.proves("MQTT5-3.2.2-8", "MQTT5-2.2.2-1")
def test_connack_says_what_the_broker_grants(peer: Join, name: str) -> None:
    connack = peer().connect(name)
    said = dict(connack.properties)
    assert said["receive_maximum"] == 1_000
    assert said["maximum_packet_size"] == 2**20
    assert said["topic_alias_maximum"] == 64
    # All of these are available, which is what their absence says.
    for offered in ("maximum_qos", "retain_available", "wildcard_subscription_available"):
        assert offered not in said
    assert "subscription_identifier_available" not in said
    assert said.keys() <= CONNACK_PROPERTIES


@pytest.mark.proves("MQTT5-3.1.2-28", "MQTT5-4.12.0-6")
@pytest.mark.parametrize("asked", [None, 0, 1])
def test_connack_holds_nothing_that_was_not_asked_for(
    peer: Join, name: str, asked: int | None
) -> None:
    items = [] if asked is None else [("request_response_information", asked)]
    connack = peer().connect(name, items=items)
    absent = ["response_information", "assigned_client_identifier", "server_reference"]
    for unasked in (*absent, "authentication_method", "authentication_data", "user_property"):
        assert connack.property(unasked) is None


@pytest.mark.parametrize(
    ("asked_s", "granted_s"), [(0, None), (60, None), (WEEK_S + 1, WEEK_S), (0xFFFFFFFF, WEEK_S)]
)
def test_a_session_expiry_that_is_not_granted_is_said(
    peer: Join, name: str, asked_s: int, granted_s: int | None
) -> None:
    connack = peer().connect(name, items=[("session_expiry_interval", asked_s)])
    assert connack.property("session_expiry_interval") == granted_s


@pytest.mark.proves("MQTT5-3.1.2-21", "MQTT5-3.2.2-21", "MQTT5-3.2.2-22")
def test_the_server_keep_alive_holds_where_it_is_said_and_else_the_clients_own(name: str) -> None:
    broker = VirtualBroker(keep_alive_maximum_s=10)
    shortened, own = Peer(broker), Peer(broker)
    assert shortened.connect(name, keep_alive_s=60).property("server_keep_alive") == 10
    assert own.connect(f"{name}own", keep_alive_s=4).property("server_keep_alive") is None
    broker.pass_time(8.0)
    own.expelled(0x8D)
    shortened.quiet()
    broker.pass_time(11.0)
    shortened.quiet()
    broker.pass_time(18.0)
    shortened.expelled(0x8D)
    broker.close()


@pytest.mark.proves("MQTT5-3.1.2-24", "MQTT5-3.2.2-7")
@pytest.mark.parametrize("size", range(1, 40))
def test_no_packet_is_larger_than_the_client_takes(peer: Join, name: str, size: int) -> None:
    client = peer()
    client.send(packets.connect(name, items=[("maximum_packet_size", size)]))
    connack = client.next()
    assert connack is None or connack.size_bytes <= size
    if connack is None or connack.reason_code:
        assert connack is None or connack.reason_code == PACKET_TOO_LARGE
        assert connack is None or client.is_closed()
        return
    filters = [(f"{name}/{number}", 0) for number in range(size)]
    client.send(packets.subscribe(1, *filters))
    assert client.expelled(PACKET_TOO_LARGE).size_bytes <= size  # type: ignore[union-attr]


@pytest.mark.proves("MQTT5-3.2.2-19", "MQTT5-3.1.2-29")
@pytest.mark.parametrize("wanted", [0, 1])
def test_a_refusing_connack_without_room_has_no_reason_string(
    peer: Join, name: str, wanted: int
) -> None:
    items = [("maximum_packet_size", 5), ("request_problem_information", wanted)]
    client = peer()
    client.send(packets.connect(name, items=items))
    connack = client.expect("connack", reason_code=PACKET_TOO_LARGE)
    assert connack.size_bytes == 5
    assert client.is_closed()
