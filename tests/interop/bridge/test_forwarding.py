"""What a bridge carries while its remote is there, while it is away, and over restarts."""

from collections.abc import Callable

import pytest

from tests.interop.bridge.bridged import BridgedBroker, bridge, carries
from tests.interop.bridge.conftest import Connect
from tests.interop.device import Device, payloads
from tests.process import BrokerProcess

MakeLocal = Callable[..., BridgedBroker]

COUNT = 10


def subscriber(client: Connect, remote: BrokerProcess) -> Device:
    """Gets everything at the remote."""
    device = client(remote, "collector", SessionExpiryInterval=600)
    device.subscribe("site7/#", 2)
    return device


@pytest.mark.accepts("S1.1", "S1.2", "S1.20", "S1.6", "S1.11", "S1.50")
@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_messages_of_each_qos_arrive_under_their_new_topic(
    remote: BrokerProcess, local: MakeLocal, client: Connect, version: str
) -> None:
    out = carries("plant/#", excludes=["plant/secret/#"], destination="site7/{#}")
    first = local(bridge("b", remote.port, local_subscriptions=[out], protocol_version=version))
    collector = subscriber(client, remote)
    publisher = client(first, "publisher")
    publisher.publish("plant/secret/x", b"no", 1)
    publisher.publish("elsewhere", b"no", 1)
    for qos in (0, 1, 2):
        publisher.publish("plant/x", b"%d" % qos, qos)
    found = {(item.topic, bytes(item.payload), item.qos) for item in collector.receive_many(3)}
    assert found == {("site7/plant/x", b"%d" % qos, qos) for qos in (0, 1, 2)}
    assert collector.all_received() == []


@pytest.mark.accepts("S1.22")
def test_a_bridge_carries_with_no_more_than_its_qos(
    remote: BrokerProcess, local: MakeLocal, client: Connect
) -> None:
    out = carries("#", destination="site7/{1}", max_qos=1)
    first = local(bridge("b", remote.port, local_subscriptions=[out]))
    collector, publisher = subscriber(client, remote), client(first, "publisher")
    for qos in (0, 1, 2):
        publisher.publish(f"{qos}/x", b"", qos)
    found = {(item.topic, item.qos) for item in collector.receive_many(3)}
    assert found == {("site7/0", 0), ("site7/1", 1), ("site7/2", 1)}


def test_messages_of_the_remote_come_in_and_do_not_go_back(
    remote: BrokerProcess, local: MakeLocal, client: Connect
) -> None:
    both = {
        "local_subscriptions": [carries("commands/#")],
        "remote_subscriptions": [
            carries("commands/#", user_properties=[{"key": "by", "value": "b"}])
        ],
    }
    first = local(bridge("b", remote.port, **both))
    device, sender = client(first, "device"), client(remote, "sender")
    device.subscribe("commands/#", 2)
    sender.subscribe("commands/#", 2)
    for qos in (1, 2):
        sender.publish("commands/go", b"%d" % qos, qos)
    got = device.receive_many(2)
    assert sorted(payloads(got)) == [b"1", b"2"]
    assert ("by", "b") in got[0].properties.UserProperty
    assert sorted(payloads(sender.all_received())) == [b"1", b"2"], "each once, and none came back"


@pytest.mark.accepts("S1.24", "S1.43", "S1.46", "S1.51", "S1.57", "S1.70")
def test_what_is_published_while_the_remote_is_away_arrives_in_order(
    remote: BrokerProcess, local: MakeLocal, client: Connect
) -> None:
    out = carries("plant/#", destination="site7/{#}")
    first = local(bridge("b", remote.port, local_subscriptions=[out]))
    collector, publisher = subscriber(client, remote), client(first, "publisher")
    publisher.publish("plant/x", b"before", 1)
    assert payloads([collector.receive()]) == [b"before"]
    collector.disconnect()
    remote.kill()
    for qos in (0, 1, 2):
        publisher.publish_all(f"plant/{qos}", [b"%d" % number for number in range(COUNT)], qos)
    remote.start()
    collector = client(remote, "collector", SessionExpiryInterval=600)
    # Whether those of QoS 0 find the collector there is not the bridge's business.
    publisher.publish("plant/last", b"last", 2)
    got = []
    while (message := collector.receive()).payload != b"last":
        got.append(message)
    for qos in (1, 2):
        mine = [item for item in got if item.topic == f"site7/plant/{qos}"]
        assert payloads(mine) == [b"%d" % number for number in range(COUNT)]


def is_on_disk(broker: BrokerProcess, words: bytes) -> bool:
    """Whether the log has them."""
    files = [path for path in (broker.data_directory / "log").rglob("*") if path.is_file()]
    return any(words in path.read_bytes() for path in files)


@pytest.mark.accepts("S1.23", "S1.25", "S1.26", "S1.27", "S1.28", "S1.29", "S1.30", "S1.31")
@pytest.mark.accepts("S1.32", "S1.35", "S1.36", "S1.37", "S1.38", "S1.39", "S1.40")
@pytest.mark.parametrize(
    ("storage", "persist", "way", "kept"),
    [
        ("IN_MEMORY", True, "stop", 0),
        ("IN_MEMORY", True, "kill", 0),
        ("IN_MEMORY", False, "kill", 0),
        ("FILE_NATIVE", True, "stop", 2 * COUNT),
        ("FILE_NATIVE", True, "kill", 2 * COUNT),
        ("FILE_NATIVE", False, "kill", 0),
    ],
)
def test_what_waits_survives_a_restart_of_this_side_as_its_storage_says(
    remote: BrokerProcess,
    local: MakeLocal,
    client: Connect,
    storage: str,
    persist: bool,
    way: str,
    kept: int,
) -> None:
    out = carries("plant/#", destination="site7/{#}", persist=persist)
    # Whoever sets nothing has IN_MEMORY.
    settings = {"bridges_storage": storage} if storage == "FILE_NATIVE" else {}
    both = [bridge(name, remote.port, local_subscriptions=[out]) for name in ("one", "two")]
    first = local(*both, **settings)
    collector, publisher = subscriber(client, remote), client(first, "publisher")
    collector.disconnect()
    remote.kill()
    for qos in (0, 1, 2):
        numbered = [b"of-qos-%d-%d" % (qos, number) for number in range(COUNT)]
        publisher.publish_all("plant/x", numbered, qos)
    if way == "stop":
        assert first.stop() == 0, first.log()
    else:
        first.kill()
    assert is_on_disk(first, b"of-qos-1-")
    assert is_on_disk(first, b"of-qos-2-")
    assert not is_on_disk(first, b"of-qos-0-")
    remote.start()
    first.start()
    collector = client(remote, "collector", SessionExpiryInterval=600)
    # At QoS 2, since Paho hands on what has less before it; unless nothing has more than 0.
    lasts = 2 if persist else 0
    publisher = client(first, "publisher")
    publisher.publish("plant/last", b"last", lasts)
    got, ended = [], 0
    while ended < len(both):
        message = collector.receive()
        if message.payload == b"last":
            ended += 1
        else:
            got.append(message)
    assert len(got) == kept * len(both), "of each bridge"
    assert all(item.qos > 0 for item in got)
