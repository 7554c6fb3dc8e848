"""Sessions with the Paho client: what is kept, for whom and how long."""

import threading

import pytest

from tests.interop.conftest import MakeDevice
from tests.interop.device import payloads

NEVER_ENDS = 0xFFFF_FFFF
WEEK_S = 604_800

# (version, clean start, session expiry interval or None, is it kept)
KINDS = [
    pytest.param(4, True, None, False, marks=pytest.mark.accepts("S2.23")),
    pytest.param(4, False, None, True, marks=pytest.mark.accepts("S2.24")),
    pytest.param(5, True, None, False, marks=pytest.mark.accepts("S2.25")),
    pytest.param(5, True, 0, False, marks=pytest.mark.accepts("S2.25")),
    pytest.param(5, False, 60, True, marks=pytest.mark.accepts("S2.26")),
    pytest.param(5, True, 60, True, marks=pytest.mark.accepts("S2.27", "S2.30")),
    pytest.param(5, False, 0, True, marks=pytest.mark.accepts("S2.28")),
    pytest.param(5, False, None, True, marks=pytest.mark.accepts("S2.28")),
]


def _expiry(interval_s: int | None) -> dict[str, int]:
    return {} if interval_s is None else {"SessionExpiryInterval": interval_s}


@pytest.mark.accepts("S2.20", "S2.21")
@pytest.mark.parametrize(("version", "clean", "interval_s", "kept"), KINDS)
def test_how_a_client_connects_decides_whether_its_session_is_kept(
    device: MakeDevice, prefix: str, version: int, clean: bool, interval_s: int | None, kept: bool
) -> None:
    publisher = device(f"{prefix}p", clean_start=True)
    options = {"version": version, **_expiry(interval_s)}
    subscriber = device(f"{prefix}s", clean_start=clean, **options)
    assert not subscriber.session_present
    subscriber.subscribe(f"{prefix}/a", 1)
    subscriber.disconnect()
    publisher.publish(f"{prefix}/a", b"while away")
    subscriber = device(f"{prefix}s", clean_start=False, **options)
    assert subscriber.session_present is kept
    publisher.publish(f"{prefix}/a", b"while here")
    expected = [b"while away", b"while here"] if kept else []
    assert payloads(subscriber.all_received()) == expected


@pytest.mark.accepts("S2.1", "S2.8", "S0.1")
@pytest.mark.parametrize("qos", [1, 2])
def test_messages_wait_for_a_client_that_is_away_and_come_in_order(
    device: MakeDevice, prefix: str, version: int, qos: int
) -> None:
    options = {"version": version} | ({"SessionExpiryInterval": 60} if version == 5 else {})
    subscriber = device(f"{prefix}s", **options)
    publisher = device(f"{prefix}p", version=version, clean_start=True)
    subscriber.subscribe(f"{prefix}/#", qos)
    subscriber.disconnect()
    sent = [b"%d" % number for number in range(500)]
    publisher.publish_all(f"{prefix}/a", sent, qos)
    subscriber = device(f"{prefix}s", **options)
    messages = subscriber.receive_many(len(sent))
    assert payloads(messages) == sent
    assert {message.qos for message in messages} == {qos}
    assert subscriber.all_received() == []


@pytest.mark.accepts("S2.4", "S2.5")
@pytest.mark.parametrize(
    ("published", "subscribed", "kept"),
    [(0, 2, False), (1, 0, False), (2, 0, False), (1, 1, True), (2, 1, True), (1, 2, True)],
)
def test_only_an_effective_qos_above_0_is_kept(
    device: MakeDevice, prefix: str, published: int, subscribed: int, kept: bool
) -> None:
    subscriber = device(f"{prefix}s", SessionExpiryInterval=60)
    publisher = device(f"{prefix}p", clean_start=True)
    subscriber.subscribe(f"{prefix}/a", subscribed)
    subscriber.disconnect()
    publisher.publish(f"{prefix}/a", b"x", published)
    publisher.all_received()
    subscriber = device(f"{prefix}s", SessionExpiryInterval=60)
    assert subscriber.session_present
    assert payloads(subscriber.all_received()) == ([b"x"] if kept else [])


@pytest.mark.accepts("S2.22")
def test_clean_start_discards_the_session_that_was(device: MakeDevice, prefix: str) -> None:
    publisher = device(f"{prefix}p", clean_start=True)
    subscriber = device(f"{prefix}s", SessionExpiryInterval=60)
    subscriber.subscribe(f"{prefix}/a", 1)
    subscriber.disconnect()
    publisher.publish(f"{prefix}/a", b"while away")
    subscriber = device(f"{prefix}s", clean_start=True, SessionExpiryInterval=60)
    assert not subscriber.session_present
    assert subscriber.all_received() == []
    subscriber.disconnect()
    subscriber = device(f"{prefix}s", SessionExpiryInterval=60)
    assert subscriber.session_present
    assert subscriber.all_received() == []


@pytest.mark.accepts("S2.7")
def test_a_resumed_session_has_its_subscriptions_with_their_identifiers(
    device: MakeDevice, prefix: str
) -> None:
    publisher = device(f"{prefix}p", clean_start=True)
    subscriber = device(f"{prefix}s", SessionExpiryInterval=60)
    subscriber.subscribe(f"{prefix}/a", 2, identifier=7)
    subscriber.subscribe(f"{prefix}/+", 1, identifier=268_435_455)
    subscriber.subscribe(f"{prefix}/gone", 1)
    subscriber.unsubscribe(f"{prefix}/gone")
    subscriber.disconnect()
    subscriber = device(f"{prefix}s", SessionExpiryInterval=60)
    publisher.publish(f"{prefix}/a", b"x", 2)
    publisher.publish(f"{prefix}/b", b"y", 2)
    # Paho hands on what has QoS 2 when it is released: after the other one, if that was quicker.
    came = {message.payload: message for message in subscriber.all_received()}
    assert sorted(came[b"x"].properties.SubscriptionIdentifier) == [7, 268_435_455]
    assert (came[b"x"].qos, came[b"y"].qos) == (2, 1)


@pytest.mark.accepts("S2.3", "S2.45", "S2.60")
@pytest.mark.parametrize(
    ("session_lives", "message_lives"), [(True, True), (True, False), (False, True), (False, False)]
)
@pytest.mark.slow
def test_a_message_comes_only_if_its_session_and_itself_still_live(
    device: MakeDevice, prefix: str, session_lives: bool, message_lives: bool
) -> None:
    session = {"SessionExpiryInterval": 60 if session_lives else 1}
    subscriber = device(f"{prefix}s", **session)
    publisher = device(f"{prefix}p", clean_start=True)
    subscriber.subscribe(f"{prefix}/a", 1)
    subscriber.disconnect()
    lifetime = {"MessageExpiryInterval": 60 if message_lives else 1}
    publisher.publish(f"{prefix}/a", b"x", **lifetime)
    threading.Event().wait(2.1)  # Expiry counts in whole seconds of real time.
    subscriber = device(f"{prefix}s", **session)
    assert subscriber.session_present is session_lives
    expected = [b"x"] if session_lives and message_lives else []
    assert payloads(subscriber.all_received()) == expected


@pytest.mark.accepts("S2.56", "S2.57", "S0.63")
@pytest.mark.slow
def test_a_message_that_waited_has_its_remaining_lifetime(device: MakeDevice, prefix: str) -> None:
    subscriber = device(f"{prefix}s", SessionExpiryInterval=60)
    publisher = device(f"{prefix}p", clean_start=True)
    subscriber.subscribe(f"{prefix}/a", 1)
    subscriber.disconnect()
    publisher.publish(f"{prefix}/a", b"dies", MessageExpiryInterval=1)
    publisher.publish(f"{prefix}/a", b"lives", MessageExpiryInterval=100)
    publisher.publish(f"{prefix}/a", b"for ever")
    threading.Event().wait(2.1)
    subscriber = device(f"{prefix}s", SessionExpiryInterval=60)
    lives, for_ever = subscriber.all_received()
    assert lives.payload == b"lives"
    assert 90 <= lives.properties.MessageExpiryInterval <= 98
    assert not hasattr(for_ever.properties, "MessageExpiryInterval")


@pytest.mark.accepts("S2.29", "S2.42")
def test_a_session_is_kept_at_most_a_week_and_the_client_is_told(
    device: MakeDevice, prefix: str
) -> None:
    asks_too_much = device(f"{prefix}1", SessionExpiryInterval=NEVER_ENDS)
    assert asks_too_much.connack_properties["SessionExpiryInterval"] == WEEK_S
    asks_little = device(f"{prefix}2", SessionExpiryInterval=60)
    assert asks_little.connack_properties.get("SessionExpiryInterval", 60) == 60


def test_disconnect_may_end_a_session_that_would_have_been_kept(
    device: MakeDevice, prefix: str
) -> None:
    subscriber = device(prefix, SessionExpiryInterval=60)
    subscriber.subscribe(f"{prefix}/a", 1)
    subscriber.disconnect(SessionExpiryInterval=0)
    assert not device(prefix, SessionExpiryInterval=60).session_present


def test_a_second_connection_takes_the_session_over(device: MakeDevice, prefix: str) -> None:
    publisher = device(f"{prefix}p", clean_start=True)
    first = device(f"{prefix}s", SessionExpiryInterval=60)
    first.subscribe(f"{prefix}/a", 1)
    second = device(f"{prefix}s", SessionExpiryInterval=60)
    assert first.wait_ended() == 0x8E
    assert second.session_present
    publisher.publish(f"{prefix}/a", b"x")
    assert payloads(second.all_received()) == [b"x"]


def test_a_takeover_by_311_ends_the_first_connection(device: MakeDevice, prefix: str) -> None:
    first = device(prefix, version=4)
    second = device(prefix, version=4)
    first.wait_ended()
    assert second.session_present


def test_an_empty_client_identifier_is_given_one_by_mqtt_5(device: MakeDevice) -> None:
    given = device("", clean_start=True)
    assert given.connack_properties["AssignedClientIdentifier"]


@pytest.mark.accepts("S2.62")
def test_qos_0_is_not_kept_for_a_session_that_is(device: MakeDevice, prefix: str) -> None:
    subscriber = device(f"{prefix}s", SessionExpiryInterval=60)
    subscriber.subscribe(f"{prefix}/persistent", 0)
    subscriber.disconnect()
    publisher = device(f"{prefix}p", clean_start=True)
    publisher.publish_all(f"{prefix}/persistent", [b"1", b"2", b"3"], 1)
    subscriber = device(f"{prefix}s", SessionExpiryInterval=60)
    assert subscriber.all_received() == []


@pytest.mark.slow
def test_a_silent_client_is_ended_after_one_and_a_half_keep_alives(
    device: MakeDevice, prefix: str
) -> None:
    watcher = device(f"{prefix}w", clean_start=True)
    watcher.subscribe(f"{prefix}/will")
    silent = device(
        f"{prefix}s",
        clean_start=True,
        keep_alive_s=1,
        will={"topic": f"{prefix}/will", "payload": b"silent"},
    )
    silent.client.loop_stop()  # No PINGREQ any more; the socket stays open.
    assert watcher.receive().payload == b"silent"
