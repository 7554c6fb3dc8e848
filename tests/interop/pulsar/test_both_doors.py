"""One topic, two protocols: what devices publish comes to services, and the other way."""

from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

from tests.interop.driver import Driver
from tests.interop.pulsar.conftest import MakeClient
from tests.interop.pulsar.official import Official
from tests.interop.seen import Seen
from tests.interop.test_admin import eventually
from tests.interop.wire import Wire
from tests.process import BrokerProcess


def received(wire: Wire, count: int) -> list[bytes]:
    """So many messages, acknowledged."""
    payloads = []
    for _ in range(count):
        packet = wire.receive("publish")
        payloads.append(packet["payload"])
        if packet["qos"]:
            wire.acknowledge("puback", packet["packet_identifier"])
    return payloads


def test_a_device_gets_each_message_of_a_batch(
    shared_broker: BrokerProcess, client: MakeClient, prefix: str
) -> None:
    sent = [str(number).encode() for number in range(20)]
    with Wire(shared_broker.port) as wire:
        wire.connect(prefix)
        assert wire.subscribe(f"{prefix}/+", 1) == [1]
        for compression in ("NONE", "LZ4", "ZSTD"):
            producer = client().producer(
                f"{prefix}%2Fa", batching_enabled=True, compression=compression
            )
            producer.send_many(sent)
            assert received(wire, 20) == sent


def test_a_device_at_qos_0_gets_each_message_of_a_batch(
    shared_broker: BrokerProcess, client: MakeClient, prefix: str
) -> None:
    sent = [str(number).encode() for number in range(20)]
    with Wire(shared_broker.port) as wire:
        wire.connect(prefix)
        assert wire.subscribe(f"{prefix}/+", 0) == [0]
        client().producer(f"{prefix}%2Fa", batching_enabled=True).send_many(sent)
        assert received(wire, 20) == sent


def test_a_consumer_gets_what_devices_publish(
    shared_broker: BrokerProcess, client: MakeClient, prefix: str
) -> None:
    consumer = client().consumer(f"{prefix}%2Fa", "mine")
    with Wire(shared_broker.port) as wire:
        wire.connect(prefix)
        for number in (1, 2, 3):
            wire.publish(f"{prefix}/a", str(number).encode(), qos=1, identifier=number)
        assert consumer.take(3) == [b"1", b"2", b"3"]


def test_a_subscription_keeps_what_devices_publish_at_qos_0(
    own_broker: Seen, own_client: MakeClient
) -> None:
    def waiting() -> tuple[int, int]:
        queues = own_broker.get("/v1/queues")["queues"]
        (queue,) = [row for row in queues if row["kind"] == "subscription"]
        group = own_broker.get(f"/v1/groups/{quote('$share/g/t/+', safe='')}")
        return sum(reader["waiting"] for reader in queue["readers"]), group["queued"]

    def publish(payload: bytes, qos: int = 0) -> None:
        with Wire(own_broker.port) as wire:
            wire.connect("device", session_expiry_interval=0)
            wire.publish("t/a", payload, qos=qos, identifier=qos)
            if qos:
                wire.receive("puback")
            wire.ping()

    with Wire(own_broker.port) as offline:
        offline.connect("offline")
        offline.subscribe("$share/g/t/+", 1)
    publish(b"before there was a subscription")
    consumer = own_client().consumer("t%2Fa", "mine")
    publish(b"1")
    assert consumer.take(1) == [b"1"]
    consumer.close()
    for payload, qos in ((b"2", 0), (b"3", 0), (b"4", 1)):
        publish(payload, qos)
    assert waiting() == (3, 1)
    own_broker.kill()
    own_broker.start()
    assert waiting() == (3, 1)
    again = own_client()
    consumer = again.consumer("t%2Fa", "mine")
    assert consumer.take(3) == [b"2", b"3", b"4"]
    consumer.unsubscribe()
    publish(b"after its end")
    assert again.consumer("t%2Fa", "late", position="Earliest").take(4) == [b"1", b"2", b"3", b"4"]
    with Wire(own_broker.port) as offline:
        offline.connect("offline")
        assert received(offline, 1) == [b"4"]


def test_a_subscription_is_a_queue_like_others(
    shared_broker: Seen, client: MakeClient, prefix: str
) -> None:
    pulsar = client()
    pulsar.consumer(f"{prefix}%2Fa", "my/own").close()
    pulsar.producer(f"{prefix}%2Fa").send_many([b"1", b"2", b"3"])
    queues = shared_broker.get("/v1/queues")["queues"]
    name = f"subscription/my%2Fown/{prefix}/a"
    (queue,) = [row for row in queues if row["queue_name"] == name]
    assert queue["kind"] == "subscription"
    assert [reader["waiting"] for reader in queue["readers"]] == [3]


def test_what_a_consumer_holds_waits_until_it_is_acknowledged(
    shared_broker: Seen, client: MakeClient, prefix: str
) -> None:
    def counts() -> list[tuple[int, int]]:
        queues = shared_broker.get("/v1/queues")["queues"]
        name = f"subscription/mine/{prefix}/a"
        (queue,) = [row for row in queues if row["queue_name"] == name]
        return [(reader["waiting"], reader["in_flight"]) for reader in queue["readers"]]

    pulsar = client()
    consumer = pulsar.consumer(f"{prefix}%2Fa", "mine", kind="Shared")
    pulsar.producer(f"{prefix}%2Fa").send_many([b"1", b"2", b"3"])
    held = consumer.receive_many(3)
    assert counts() == [(3, 3)]
    consumer.acknowledge(held[0])
    eventually(lambda: counts() == [(2, 2)], "one of them is acknowledged")


def test_what_leaves_for_services_is_counted(own_broker: Seen, own_client: MakeClient) -> None:
    pulsar = own_client()
    consumer = pulsar.consumer("t", "mine")
    producer = pulsar.producer(
        "t", batching_enabled=True, batching_max_messages=5, batching_max_publish_delay_ms=5_000
    )
    producer.send_many([str(number).encode() for number in range(10)])
    consumer.take(10)
    with urlopen(f"http://{own_broker.http_address}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    told = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(told['holdfast_pulsar_frames_sent_total{kind="entry"}']) == 2
    assert float(told['holdfast_pulsar_frames_sent_total{kind="receipt"}']) == 2
    assert float(told["holdfast_pulsar_messages_sent_total"]) == 10


def test_a_device_gets_what_is_in_another_namespace_only_if_it_asks_for_it(
    tmp_path: Path, library: Driver
) -> None:
    broker = Seen(tmp_path, pulsar_port=0, pulsar_namespaces="public/default,acme/billing")
    broker.start()
    pulsar = Official(library).connect(broker.ports["pulsar"])
    with Wire(broker.port) as asks, Wire(broker.port) as asks_for_all:
        for wire, topic_filter in ((asks, "$pulsar/acme/+/x"), (asks_for_all, "#")):
            wire.connect(topic_filter[-1])
            assert wire.subscribe(topic_filter, 1) == [1]
        pulsar.producer("persistent://acme/billing/x").send_many([b"1", b"2"])
        # What comes first is what comes at all: order holds for who gets both.
        pulsar.producer("x").send(b"3")
        assert received(asks, 2) == [b"1", b"2"]
        assert received(asks_for_all, 1) == [b"3"]
    pulsar.disconnect()
    assert broker.stop() == 0, broker.log()
