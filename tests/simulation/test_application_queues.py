"""What waits for an APPLICATION client that is away: all of it, within the age and the bytes that a
queue with a name keeps."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from holdfast.broker.chores import at_once
from holdfast.broker.observe.queue_views import QueueView, QueueViews
from holdfast.broker.state.broker import look_at
from holdfast.broker.store.questions import Inquiry
from holdfast.broker.store.tables import Loss, parse_loss
from holdfast.core.topic_properties import TopicProperties
from tests.conformance import packets
from tests.conformance.brokers import VirtualBroker
from tests.conformance.peer import Peer

Begin = Callable[..., VirtualBroker]

MONTH_S = 30 * 86_400
LIMIT = 5
PAYLOAD = b"x" * 1_000
POLL_S = 0.1
"""How long the reference product waits for more before it looks again."""


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Begins a broker with these settings, on which clients called app... are APPLICATIONs."""
    begun: list[VirtualBroker] = []

    def make(**settings: Any) -> VirtualBroker:
        chosen = {
            "application_client_identifiers": ("app*",),
            "session_expiry_maximum_s": MONTH_S,
            "queue_messages_maximum": LIMIT,
        }
        begun.append(VirtualBroker(**(chosen | settings)))
        return begun[-1]

    yield make
    for broker in begun:
        broker.close()


def come(broker: VirtualBroker, client: str, *filters: str) -> Peer:
    """The client connects with a session that is kept, and subscribes to these."""
    peer = Peer(broker)
    peer.connect(client, clean=False, items=[("session_expiry_interval", MONTH_S)])
    for topic_filter in filters:
        peer.subscribe(topic_filter, 1)
    return peer


def away(broker: VirtualBroker, client: str, *filters: str) -> None:
    """It has subscribed, and gone."""
    come(broker, client, *filters).disconnect()


def publish(broker: VirtualBroker, topic: str, count: int, first: int = 0) -> None:
    peer = Peer(broker)
    peer.connect("publisher")
    for number in range(first, first + count):
        peer.publish(topic, b"%06d" % number + PAYLOAD, qos=1)
    peer.disconnect()


def take(broker: VirtualBroker, client: str) -> list[int]:
    """The client comes, acknowledges all that is there for it, and goes; the numbers of that."""
    peer = come(broker, client)
    numbers: list[int] = []
    before = -1
    while len(numbers) > before:
        before = len(numbers)
        broker.settle()
        peer.send(packets.PINGREQ)
        while (packet := peer.next()) is not None and packet.kind == "publish":
            numbers.append(int(packet.fields["payload"][:6]))
            peer.acknowledge("puback", packet.packet_identifier)
        assert packet is not None, "the broker closed"
    peer.disconnect()
    return numbers


def losses(broker: VirtualBroker) -> list[Loss]:
    broker.settle()
    return [parse_loss(value) for _, value in broker.server().records.catch_up().losses(100)]


def view(broker: VirtualBroker, name: str) -> QueueView:
    seen = look_at(broker.server(), "absent")
    found = at_once(QueueViews(seen).named(name, seen.log.inquire()))
    assert found is not None
    return found


@pytest.mark.accepts("S0.1", "S2.38")
@pytest.mark.parametrize("end", [None, "restart", "power cut"])
def test_everything_comes_however_much_it_is(begin: Begin, end: str | None) -> None:
    broker = begin()
    away(broker, "app", "a/#")
    publish(broker, "a/b", 50)
    if end == "restart":
        broker.restart()
    elif end == "power cut":
        broker.cut_power(synced=True)
        broker.begin()
    assert take(broker, "app") == list(range(50))
    assert losses(broker) == []


@pytest.mark.accepts("S0.16")
def test_a_connected_client_gets_what_comes_however_long_nothing_came(begin: Begin) -> None:
    broker = begin()
    there, source = come(broker, "app", "a"), Peer(broker)
    source.connect("source")
    for number, pause_s in enumerate((0, 0.05, 1, 60, 3_600)):
        broker.pass_time(pause_s)
        source.publish("a", b"%d" % number, qos=1)
        acknowledged_at_s = broker.loop.time()
        there.message("a", b"%d" % number)
        assert broker.loop.time() - acknowledged_at_s < POLL_S


@pytest.mark.accepts("S2.34")
def test_a_device_gets_what_it_may_have(begin: Begin) -> None:
    broker = begin()
    away(broker, "device", "a")
    publish(broker, "a", 50)
    assert take(broker, "device") == list(range(45, 50))
    (loss,) = losses(broker)
    assert (loss.reason, loss.count) == ("overflow", 45)


@pytest.mark.accepts("S2.32")
def test_a_device_whose_session_is_not_kept_has_nothing_after_its_connection(begin: Begin) -> None:
    broker = begin()
    first = Peer(broker)
    first.connect("device")
    first.subscribe("a", 1)
    first.disconnect()
    publish(broker, "a", 1)
    assert take(broker, "device") == []


def test_a_group_of_applications_keeps_everything(begin: Begin) -> None:
    broker = begin()
    away(broker, "app", "$share/g/a")
    away(broker, "device", "$share/h/a")
    publish(broker, "a", 50)
    assert take(broker, "app") == list(range(50))
    assert take(broker, "device") == list(range(45, 50))


def test_an_application_whose_queue_can_have_no_name_is_kept_for_as_a_device(begin: Begin) -> None:
    broker = begin(application_client_id_validation=False)
    away(broker, "app-1", "a")
    publish(broker, "a", 50)
    assert take(broker, "app-1") == list(range(45, 50))


@pytest.mark.accepts("S2.53")
@pytest.mark.parametrize("topic_filter", ["a/#", "$share/g/a/#"])
def test_beyond_its_bytes_a_queue_loses_whole_segments(begin: Begin, topic_filter: str) -> None:
    properties = TopicProperties(retention_bytes=20_000, segment_bytes=5_000)
    broker = begin(application_queue_properties=properties)
    away(broker, "app", topic_filter)
    away(broker, "appAll", "#")
    publish(broker, "a/b", 18)
    assert take(broker, "app") == list(range(18)), "it is within its limit"
    publish(broker, "a/b", 60, first=18)
    name = "tbmq.msg.app.app" if topic_filter == "a/#" else "tbmq.msg.app.shared.a.mlw"
    log = broker.server().stages.kernel.log
    before = view(broker, name)
    span = (before.subscriptions, before.party, before.begin_offset, log.durable_offset())
    shown = at_once(Inquiry(log).count(*span))
    numbers = take(broker, "app")
    assert numbers == list(range(78 - shown, 78))
    assert 20_000 <= shown * (len(PAYLOAD) + 6) < 20_000 + 5_000 + 2_000
    (loss,) = [each for each in losses(broker) if each.client_identifier in ("app", topic_filter)]
    assert (loss.reason, loss.count) == ("retention", 60 - shown)


@pytest.mark.accepts("S2.53")
def test_what_is_too_old_is_neither_shown_nor_delivered(begin: Begin) -> None:
    properties = TopicProperties(retention_ms=600_000, segment_bytes=1_024)
    broker = begin(application_queue_properties=properties, retention_age_s=MONTH_S)
    away(broker, "app", "a")
    publish(broker, "a", 10)
    broker.pass_time(500)
    publish(broker, "a", 10, first=10)
    assert view(broker, "tbmq.msg.app.app").begin_offset == 0
    broker.pass_time(200)
    begin_offset = view(broker, "tbmq.msg.app.app").begin_offset
    numbers = take(broker, "app")
    # A segment that is older only in part stays.
    assert numbers == list(range(begin_offset, 20))
    assert 9 <= begin_offset <= 10
    (loss,) = losses(broker)
    assert (loss.reason, loss.count) == ("retention", begin_offset)


def test_without_limits_of_its_own_a_queue_keeps_what_the_log_has(begin: Begin) -> None:
    properties = TopicProperties(retention_ms=-1, retention_bytes=-1, segment_bytes=1_024)
    broker = begin(application_queue_properties=properties, retention_age_s=MONTH_S)
    away(broker, "app", "a")
    publish(broker, "a", 50)
    broker.pass_time(3_600)
    assert take(broker, "app") == list(range(50))


def test_the_log_gives_nothing_up_that_a_queue_keeps(begin: Begin) -> None:
    broker = begin(retention_bytes=3 * 2**20)
    away(broker, "app", "a")
    publish(broker, "a", 50)
    other = Peer(broker)
    other.connect("other")
    for _ in range(12):
        other.publish("b", b"y" * 1_000_000, qos=1)
    broker.pass_time(30)
    assert broker.server().stages.kernel.log.begin_offset() > 50
    assert take(broker, "app") == list(range(50))
    assert losses(broker) == []


def test_what_was_kept_for_a_queue_leaves_the_disk_when_it_is_done(begin: Begin) -> None:
    broker = begin(retention_bytes=3 * 2**20)
    away(broker, "app", "a")
    publish(broker, "a", 2_000)
    other = Peer(broker)
    other.connect("other")

    def others() -> int:
        """How many of the newest large messages the log has room for."""
        for _ in range(12):
            other.publish("b", b"y" * 1_000_000, qos=1)
        # The age of what is there is looked at every ten minutes.
        broker.pass_time(1_300)
        log = broker.server().stages.kernel.log
        return log.end_offset() - log.begin_offset()

    before = others()
    assert take(broker, "app") == list(range(2_000))
    others()
    assert others() > before


@pytest.mark.parametrize("first", ["app", "device"])
def test_another_type_has_the_other_limits(begin: Begin, first: str) -> None:
    broker = begin()
    away(broker, "app", "a")
    publish(broker, "a", 50)
    rules = {"app": ("nobody",), "device": ("app",)}
    broker.server().reconfigure(_with_rules(broker, rules[first]))
    expected = list(range(45, 50)) if first == "app" else list(range(50))
    assert take(broker, "app") == expected


def _with_rules(broker: VirtualBroker, patterns: tuple[str, ...]) -> Any:
    return replace(broker.server().config, application_client_identifiers=patterns)
