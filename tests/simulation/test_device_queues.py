"""What waits for a device that is away: how much, how old, in which order, and what is told."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.broker.chores import at_once
from holdfast.broker.delivery import losses as losses_module
from holdfast.broker.observe.queue_length import QueueLengths
from holdfast.broker.state.broker import look_at
from holdfast.broker.store import questions
from holdfast.broker.store.tables import Loss, parse_loss
from tests.conformance import packets
from tests.conformance.brokers import VirtualBroker
from tests.conformance.peer import Peer

Begin = Callable[..., VirtualBroker]

AGE_S = 600
MONTH_S = 30 * 86_400


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Begins a broker with these settings."""
    begun: list[VirtualBroker] = []

    def make(**settings: Any) -> VirtualBroker:
        settings = {"session_expiry_maximum_s": MONTH_S} | settings
        begun.append(VirtualBroker(**settings))
        return begun[-1]

    yield make
    for broker in begun:
        broker.close()


class Device:
    """A client with a session that outlives the test."""

    def __init__(self, broker: VirtualBroker, client: str = "d") -> None:
        self._broker = broker
        self._client = client

    def come(self, receive_maximum: int = 65_535) -> Peer:
        """Connects."""
        peer = Peer(self._broker)
        items = [("session_expiry_interval", MONTH_S), ("receive_maximum", receive_maximum)]
        peer.connect(self._client, clean=False, items=items)
        return peer

    def subscribe(self, topic_filter: str, qos: int = 1) -> None:
        """Comes, subscribes and goes."""
        peer = self.come()
        peer.subscribe(topic_filter, qos)
        peer.disconnect()

    def length(self) -> int:
        """How many messages are shown to wait for it."""
        server = self._broker.server()
        seen = look_at(server, "absent")
        session = seen.sessions.on_record(self._client)
        assert session is not None
        subscriptions = seen.sessions.subscriptions(session)
        counting = QueueLengths(seen).at_rest(seen.log.inquire(), session, subscriptions)
        messages, _, _ = at_once(counting)
        return messages


def publisher(broker: VirtualBroker) -> Peer:
    peer = Peer(broker)
    peer.connect("p")
    return peer


def received(peer: Peer, count: int) -> list[bytes]:
    found = [peer.message().fields["payload"] for _ in range(count)]
    peer.quiet()
    return found


def losses(broker: VirtualBroker) -> list[Loss]:
    broker.settle()
    return [parse_loss(value) for _, value in broker.server().records.catch_up().losses(100)]


@pytest.mark.accepts("S2.36", "S2.48")
@pytest.mark.parametrize("end", [None, "restart", "power cut"])
def test_what_is_older_than_its_time_to_live_is_removed_and_in_the_ledger(
    begin: Begin, end: str | None
) -> None:
    broker = begin(queue_ttl_s=AGE_S)
    device = Device(broker)
    device.subscribe("a")
    first = publisher(broker)
    for number in range(3):
        first.publish("a", b"old %d" % number, qos=1)
    broker.pass_time(AGE_S / 2)
    for number in range(2):
        first.publish("a", b"new %d" % number, qos=1)
    assert device.length() == 5
    broker.pass_time(AGE_S / 2 + 1)
    assert device.length() == 2
    if end == "restart":
        broker.restart()
    elif end == "power cut":
        broker.cut_power(synced=True)
        broker.begin()
    assert received(device.come(), 2) == [b"new 0", b"new 1"]
    (loss,) = losses(broker)
    assert (loss.client_identifier, loss.reason, loss.count) == ("d", "ttl", 3)


def test_what_goes_at_qos_0_takes_no_room_of_what_waits(begin: Begin) -> None:
    broker = begin(queue_messages_maximum=2)
    device = Device(broker)
    device.subscribe("alarm")
    device.subscribe("bulk", 0)
    device.subscribe("both/#", 0)
    device.subscribe("both/+")
    source = publisher(broker)
    source.publish("alarm", b"1", qos=1)
    source.publish("both/x", b"2", qos=1)
    for _ in range(10):
        source.publish("bulk", b"", qos=1)
    assert device.length() == 2
    assert received(device.come(), 2) == [b"1", b"2"]
    assert losses(broker) == []


def test_a_time_to_live_of_0_keeps_messages_of_any_age(begin: Begin) -> None:
    broker = begin(queue_ttl_s=0)
    device = Device(broker)
    device.subscribe("a")
    publisher(broker).publish("a", b"old", qos=1)
    broker.pass_time(20 * AGE_S)
    assert received(device.come(), 1) == [b"old"]
    assert losses(broker) == []


def test_what_has_begun_at_qos_2_comes_to_its_end_however_old_it_is(begin: Begin) -> None:
    broker = begin(queue_ttl_s=AGE_S)
    device = Device(broker)
    device.subscribe("a", 2)
    there = device.come(receive_maximum=2)
    source = publisher(broker)
    for number in range(4):
        source.publish("a", b"%d" % number, qos=2)
    packets = [there.expect("publish") for _ in range(2)]
    there.acknowledge("pubrec", packets[0].packet_identifier)
    there.expect("pubrel")
    there.drop()
    broker.pass_time(2 * AGE_S)
    assert device.length() == 2
    back = device.come()
    found = [back.next(), back.next()]
    kinds = {packet.kind: packet.packet_identifier for packet in found if packet is not None}
    identifiers = [packet.packet_identifier for packet in packets]
    assert kinds == {"pubrel": identifiers[0], "publish": identifiers[1]}
    (loss,) = losses(broker)
    assert (loss.reason, loss.count) == ("ttl", 2)


def test_what_retention_takes_of_a_device_after_its_time_to_live_is_counted_once(
    begin: Begin,
) -> None:
    broker = begin(queue_ttl_s=AGE_S, retention_age_s=AGE_S)
    device = Device(broker)
    device.subscribe("a")
    source = publisher(broker)
    for _ in range(12):
        source.publish("a", bytes(200_000), qos=1)
    broker.pass_time(2 * AGE_S)
    assert broker.server().sweep.segments_removed > 0
    source.publish("a", b"new", qos=1)
    assert received(device.come(), 1) == [b"new"]
    found = losses(broker)
    assert {loss.reason for loss in found} == {"ttl"}
    assert sum(loss.count for loss in found) == 12


@pytest.mark.accepts("S2.58")
@pytest.mark.parametrize("end", [None, "restart"])
def test_the_queue_becomes_shorter_when_a_message_in_it_expires(
    begin: Begin, end: str | None
) -> None:
    broker = begin()
    device = Device(broker)
    device.subscribe("a")
    device.subscribe("b/+", 2)
    source = publisher(broker)
    for topic, expiry_s in [("a", 100), ("a", None), ("b/1", 200), ("b/2", 100), ("b/2", 3_000)]:
        items = [] if expiry_s is None else [("message_expiry_interval", expiry_s)]
        source.publish(topic, b"x", qos=2, items=items)
    assert device.length() == 5
    if end == "restart":
        broker.restart()
    broker.pass_time(99 - 5)
    assert device.length() == 5
    broker.pass_time(6)
    assert device.length() == 3
    broker.pass_time(100)
    assert device.length() == 2
    broker.pass_time(3_000)
    assert device.length() == 1
    assert received(device.come(), 1) == [b"x"]
    assert {(loss.reason, loss.count) for loss in losses(broker)} == {("expired", 4)}


def test_the_limit_counts_what_can_still_be_delivered(begin: Begin) -> None:
    broker = begin(queue_messages_maximum=3)
    device = Device(broker)
    device.subscribe("a")
    source = publisher(broker)
    for number in range(4):
        source.publish("a", b"%d" % number, qos=1)
    for _ in range(5):
        source.publish("a", b"brief", qos=1, items=[("message_expiry_interval", 10)])
    broker.pass_time(20)
    assert received(device.come(), 3) == [b"1", b"2", b"3"]
    assert {(loss.reason, loss.count) for loss in losses(broker)} == {
        ("overflow", 1),
        ("expired", 5),
    }


@pytest.mark.accepts("S2.35", "S2.47")
@pytest.mark.parametrize(
    ("keep", "left"), [("newest", [b"2", b"3", b"4"]), ("oldest", [b"0", b"1", b"2"])]
)
def test_a_full_queue_keeps_what_its_policy_says(
    begin: Begin, keep: str, left: list[bytes]
) -> None:
    broker = begin(queue_messages_maximum=3, queue_keep=keep)
    device = Device(broker)
    device.subscribe("a")
    source = publisher(broker)
    for number in range(5):
        source.publish("a", b"%d" % number, qos=1)
    assert received(device.come(), 3) == left
    (loss,) = losses(broker)
    assert (loss.client_identifier, loss.reason, loss.count) == ("d", "overflow", 2)


def publish_many(broker: VirtualBroker, count: int, payload: bytes = b"x") -> None:
    """So many messages to `a`, with as few words as it takes."""
    source = publisher(broker)
    for first in range(0, count, 1_000):
        part = range(min(1_000, count - first))
        source.send(
            b"".join(
                packets.publish("a", payload, qos=1, identifier=number + 1, version=5)
                for number in part
            )
        )
        for _ in part:
            source.expect("puback")


@pytest.mark.parametrize(("maximum", "kept"), [(0, 70_000), (2**63 - 1, 70_000), (66_000, 66_000)])
def test_a_queue_may_have_more_messages_than_there_are_packet_identifiers(
    begin: Begin, maximum: int, kept: int
) -> None:
    broker = begin(queue_messages_maximum=maximum)
    device = Device(broker)
    device.subscribe("a")
    publish_many(broker, 70_000)
    assert len(received(device.come(receive_maximum=1_000), kept)) == kept
    found = [(loss.client_identifier, loss.reason, loss.count) for loss in losses(broker)]
    assert found == ([] if kept == 70_000 else [("d", "overflow", 70_000 - kept)])


def test_a_large_queue_is_cut_to_its_number_in_one_row(begin: Begin) -> None:
    broker = begin(queue_messages_maximum=100_000)
    device = Device(broker)
    device.subscribe("a")
    publish_many(broker, 100_500)
    device.come(receive_maximum=1)
    found = [(loss.client_identifier, loss.reason, loss.count) for loss in losses(broker)]
    assert found == [("d", "overflow", 500)]
    assert device.length() == 100_000


@pytest.mark.parametrize(("maximum", "left"), [(0, 0), (3, 3), (2**63 - 1, 12)])
def test_without_a_number_a_queue_has_what_the_log_keeps(
    begin: Begin, maximum: int, left: int
) -> None:
    broker = begin(queue_messages_maximum=maximum, retention_bytes=3 * 2**20)
    device = Device(broker)
    device.subscribe("a")
    publish_many(broker, 12)
    source = publisher(broker)
    for _ in range(12):
        source.publish("b", bytes(1_000_000), qos=1)
    broker.pass_time(30)
    assert broker.server().stages.kernel.log.begin_offset() > 12
    assert len(received(device.come(), left)) == left
    found = {(loss.client_identifier, loss.reason, loss.count) for loss in losses(broker)}
    assert found == ({("d", "retention", 12 - left)} if left < 12 else set())


@pytest.mark.parametrize("keep", ["newest", "oldest"])
def test_a_crash_after_a_queue_was_cut_does_not_count_the_loss_again(
    begin: Begin, keep: str
) -> None:
    broker = begin(queue_messages_maximum=3, queue_keep=keep)
    device = Device(broker)
    device.subscribe("a")
    source = publisher(broker)
    for number in range(10):
        source.publish("a", b"%d" % number, qos=1)
    for _ in range(2):
        device.come(receive_maximum=1)
        broker.cut_power(synced=True)
        broker.begin()
    assert [(loss.reason, loss.count) for loss in losses(broker)] == [("overflow", 7)]


def test_a_cut_whose_loss_waits_for_its_row_is_not_on_record_before_it(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses_module, "ROWS_PER_SWEEP_MAXIMUM", 1)
    broker = begin(queue_messages_maximum=3)
    devices = [Device(broker, client) for client in ("d1", "d2")]
    for device in devices:
        device.subscribe("a")
    source = publisher(broker)
    for number in range(10):
        source.publish("a", b"%d" % number, qos=1)
    for device in devices:
        device.come(receive_maximum=1)
    broker.cut_power(synced=True)
    broker.begin()
    for device in devices:
        device.come(receive_maximum=1)
    found = sorted((loss.client_identifier, loss.count) for loss in losses(broker))
    assert found == [("d1", 7), ("d2", 7)]


def test_counting_in_pieces_counts_the_same(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = begin()
    device = Device(broker)
    device.subscribe("a")
    source = publisher(broker)
    for number in range(50):
        items = [("message_expiry_interval", 10)] if number % 3 else []
        source.publish("a", b"x", qos=1, items=items)
        source.publish("b", b"x", qos=1)
    broker.pass_time(20)
    for effort in (1, 70, 1_000):
        monkeypatch.setattr(questions, "PIECE_EFFORT", effort)
        assert device.length() == 17
