"""What a DEVICE client costs and gets, with a session that is kept and with one that is not."""

from collections.abc import Iterator

import pytest

from holdfast.broker.store.tables import Table
from tests.conformance.brokers import VirtualBroker
from tests.conformance.peer import Peer

MESSAGES = 200


@pytest.fixture
def broker() -> Iterator[VirtualBroker]:
    broker = VirtualBroker(slow_reader_messages_maximum=10)
    yield broker
    broker.close()


def control_records(broker: VirtualBroker) -> int:
    """How many there have been, the deltas of delivery states among them."""
    broker.settle()
    return broker.server().stages.kernel.log.next_control_number()


def rows(broker: VirtualBroker) -> dict[Table, int]:
    """What is on record."""
    view = broker.server().records.catch_up()
    tables = (Table.SESSIONS, Table.SUBSCRIPTIONS, Table.QUEUES)
    return {table: view.count(table) for table in tables}


def exchange(broker: VirtualBroker, subscriber: Peer, qos: int) -> None:
    """Messages that the subscriber acknowledges, each in its turn."""
    publisher = Peer(broker)
    publisher.connect("p")
    for _ in range(MESSAGES):
        publisher.publish("a", b"x", qos=qos)
        assert subscriber.message("a").qos == qos
    publisher.disconnect()


@pytest.mark.accepts("S2.19")
@pytest.mark.parametrize("qos", [1, 2])
def test_acknowledgements_of_a_clean_session_are_not_written_down(
    broker: VirtualBroker, qos: int
) -> None:
    before = control_records(broker)
    clean = Peer(broker)
    clean.connect("c", clean=True)
    clean.subscribe("a", qos)
    exchange(broker, clean, qos)
    clean.disconnect()
    assert control_records(broker) == before
    assert set(rows(broker).values()) == {0}
    # Those of one that is kept are.
    kept = Peer(broker)
    kept.connect("c", kept=True)
    kept.subscribe("a", qos)
    exchange(broker, kept, qos)
    assert control_records(broker) > before + 10


@pytest.mark.accepts("S2.32", "S2.16", "S2.59")
@pytest.mark.parametrize("end", [None, "restart"])
def test_a_device_whose_session_is_not_kept_begins_anew(
    broker: VirtualBroker, end: str | None
) -> None:
    publisher, device = Peer(broker), Peer(broker)
    publisher.connect("p")
    device.connect("d", clean=True)
    device.subscribe("a", 1)
    publisher.publish("a", b"while here", qos=1)
    device.expect("publish")
    device.drop()
    publisher.publish("a", b"while away", qos=1, items=[("message_expiry_interval", 3_600)])
    assert set(rows(broker).values()) == {0}
    if end is not None:
        broker.restart()
        publisher = Peer(broker)
        publisher.connect("p")
    back = Peer(broker)
    assert not back.connect("d", clean=True).session_present
    # Neither what it had not acknowledged nor what it had subscribed to is there.
    publisher.publish("a", b"unheard", qos=1)
    back.quiet()
    back.subscribe("a", 1)
    publisher.publish("a", b"heard", qos=1)
    back.message("a", b"heard")
    back.quiet()


@pytest.mark.accepts("S2.33")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_slow_device_whose_session_is_not_kept_skips_messages(
    broker: VirtualBroker, qos: int
) -> None:
    device, publisher = Peer(broker), Peer(broker)
    device.connect("d", clean=True, items=[("receive_maximum", 1)])
    device.subscribe("a", qos)
    publisher.connect("p")
    for number in range(100):
        publisher.publish("a", b"%d" % number, qos=qos)
    # One in flight, and as many as it may lag behind.
    received = [int(device.message().fields["payload"]) for _ in range(11)]
    assert received == list(range(11))
    device.quiet()
    publisher.publish("a", b"100", qos=qos)
    assert int(device.message().fields["payload"]) == 100
    assert sum(broker.server().stages.losses.by_reason.values()) == 100 - 11


@pytest.mark.accepts("S2.34")
@pytest.mark.parametrize("qos", [1, 2])
def test_messages_wait_for_a_device_whose_session_is_kept(broker: VirtualBroker, qos: int) -> None:
    device, publisher = Peer(broker), Peer(broker)
    device.connect("d", kept=True)
    device.subscribe("a", 2)
    device.drop()
    session = broker.server().stages.sessions.on_record("d")
    assert session is not None
    assert (session.client_type, session.persistent) == ("DEVICE", True)
    publisher.connect("p")
    sent = [(b"%d" % number, qos) for number in range(50)]
    for payload, _ in sent:
        publisher.publish("a", payload, qos=qos)
    back = Peer(broker)
    assert back.connect("d", kept=True).session_present
    received = [back.message() for _ in sent]
    assert [(packet.fields["payload"], packet.qos) for packet in received] == sent
    back.quiet()


@pytest.mark.parametrize(("topic_filter", "records"), [("a", 2), ("$share/g/a", 2)])
def test_who_connects_and_subscribes_costs_as_many_records_as_there_are_packets(
    broker: VirtualBroker, topic_filter: str, records: int
) -> None:
    # The first one sets party numbers aside, and its group is new.
    for client in ("first", "second"):
        before = control_records(broker)
        peer = Peer(broker)
        peer.connect(client, kept=True)
        peer.subscribe(topic_filter, 1)
        cost = control_records(broker) - before
    assert cost == records
