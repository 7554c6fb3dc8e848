"""Retained messages with the Paho client."""

import pytest

from tests.interop.conftest import MakeDevice
from tests.interop.device import payloads


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_newest_retained_message_greets_a_subscriber(
    device: MakeDevice, prefix: str, version: int, qos: int
) -> None:
    publisher = device(f"{prefix}p", version=version, clean_start=True)
    publisher.publish(f"{prefix}/a", b"first", qos, retain=True)
    publisher.publish(f"{prefix}/a", b"second", qos, retain=True)
    publisher.publish(f"{prefix}/a", b"not retained", qos)
    publisher.all_received()
    subscriber = device(f"{prefix}s", version=version, clean_start=True)
    subscriber.subscribe(f"{prefix}/+", 2)
    message = subscriber.receive()
    assert message.payload == b"second"
    assert message.retain
    assert message.qos == qos
    assert subscriber.all_received() == []


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_empty_payload_removes_what_is_retained(
    device: MakeDevice, prefix: str, version: int, qos: int
) -> None:
    both = device(prefix, version=version, clean_start=True)
    both.publish(f"{prefix}/a", b"first", 1, retain=True)
    both.publish(f"{prefix}/a", b"", qos, retain=True)
    both.all_received()
    both.subscribe(f"{prefix}/#")
    assert both.all_received() == []


def test_many_retained_messages_come_to_a_wildcard(device: MakeDevice, prefix: str) -> None:
    both = device(prefix, clean_start=True)
    for number in range(50):
        both.publish(f"{prefix}/{number}", b"%d" % number, retain=True)
    both.subscribe(f"{prefix}/+")
    received = {message.topic: message.payload for message in both.all_received()}
    assert received == {f"{prefix}/{number}": b"%d" % number for number in range(50)}


def test_the_retain_flag_is_cleared_for_those_already_subscribed(
    device: MakeDevice, prefix: str, version: int
) -> None:
    both = device(prefix, version=version, clean_start=True)
    both.subscribe(f"{prefix}/a")
    both.publish(f"{prefix}/a", b"x", retain=True)
    (message,) = both.all_received()
    assert not message.retain


def test_retain_as_published_keeps_the_flag(device: MakeDevice, prefix: str) -> None:
    both = device(prefix, clean_start=True)
    both.subscribe(f"{prefix}/a", retainAsPublished=True)
    both.publish(f"{prefix}/a", b"with", retain=True)
    both.publish(f"{prefix}/a", b"without")
    with_flag, without_flag = both.all_received()
    assert (with_flag.payload, with_flag.retain) == (b"with", True)
    assert (without_flag.payload, without_flag.retain) == (b"without", False)


@pytest.mark.parametrize(
    ("handling", "first_time", "again"),
    [(0, [b"x"], [b"x"]), (1, [b"x"], []), (2, [], [])],
)
def test_retain_handling_decides_when_retained_messages_come(
    device: MakeDevice, prefix: str, handling: int, first_time: list[bytes], again: list[bytes]
) -> None:
    both = device(prefix, clean_start=True)
    both.publish(f"{prefix}/a", b"x", retain=True)
    both.subscribe(f"{prefix}/a", retainHandling=handling)
    assert payloads(both.all_received()) == first_time
    both.subscribe(f"{prefix}/a", retainHandling=handling)
    assert payloads(both.all_received()) == again
