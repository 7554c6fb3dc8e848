"""The Will with the Paho client."""

import time

import pytest

from tests.interop.conftest import MakeDevice
from tests.interop.device import payloads


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_cut_connection_publishes_the_will(
    device: MakeDevice, prefix: str, version: int, qos: int
) -> None:
    watcher = device(f"{prefix}w", version=version, clean_start=True)
    watcher.subscribe(f"{prefix}/will", 2)
    will = {"topic": f"{prefix}/will", "payload": b"gone", "qos": qos}
    device(f"{prefix}d", version=version, clean_start=True, will=will).cut()
    message = watcher.receive()
    assert (message.payload, message.qos) == (b"gone", qos)


def test_disconnect_deletes_the_will(device: MakeDevice, prefix: str, version: int) -> None:
    watcher = device(f"{prefix}w", version=version, clean_start=True)
    watcher.subscribe(f"{prefix}/will", 2)
    will = {"topic": f"{prefix}/will", "payload": b"gone"}
    device(f"{prefix}d", version=version, clean_start=True, will=will).disconnect()
    assert watcher.all_received() == []


def test_a_will_may_be_retained_and_carries_its_properties(device: MakeDevice, prefix: str) -> None:
    watcher = device(f"{prefix}w", clean_start=True)
    watcher.subscribe(f"{prefix}/will", 2)
    will = {
        "topic": f"{prefix}/will",
        "payload": b"gone",
        "retain": True,
        "ContentType": "text/plain",
        "UserProperty": [("b", "1"), ("a", "2")],
    }
    device(f"{prefix}d", clean_start=True, will=will).cut()
    message = watcher.receive()
    assert message.properties.ContentType == "text/plain"
    assert message.properties.UserProperty == [("b", "1"), ("a", "2")]
    late = device(f"{prefix}l", clean_start=True)
    late.subscribe(f"{prefix}/will")
    assert late.receive().retain


@pytest.mark.slow
def test_a_delayed_will_waits_and_then_comes(device: MakeDevice, prefix: str) -> None:
    watcher = device(f"{prefix}w", clean_start=True)
    watcher.subscribe(f"{prefix}/will", 2)
    will = {"topic": f"{prefix}/will", "payload": b"gone", "WillDelayInterval": 1}
    mourned = device(f"{prefix}d", clean_start=True, will=will, SessionExpiryInterval=60)
    mourned.cut()
    cut_at = time.monotonic()
    assert watcher.receive().payload == b"gone"
    assert time.monotonic() - cut_at >= 0.9


@pytest.mark.slow
def test_a_delayed_will_is_forgotten_when_the_client_comes_back(
    device: MakeDevice, prefix: str
) -> None:
    watcher = device(f"{prefix}w", clean_start=True)
    watcher.subscribe(f"{prefix}/will", 2)
    will = {"topic": f"{prefix}/will", "payload": b"gone", "WillDelayInterval": 2}
    device(f"{prefix}d", will=will, SessionExpiryInterval=60).cut()
    device(f"{prefix}d", SessionExpiryInterval=60)
    # Another client's Will of the same delay, cut later, tells when the first would have come.
    late = {"topic": f"{prefix}/will", "payload": b"later", "WillDelayInterval": 2}
    device(f"{prefix}e", will=late, SessionExpiryInterval=60).cut()
    assert watcher.receive().payload == b"later"


def test_a_delayed_will_comes_when_its_session_ends(device: MakeDevice, prefix: str) -> None:
    watcher = device(f"{prefix}w", clean_start=True)
    watcher.subscribe(f"{prefix}/will", 2)
    will = {"topic": f"{prefix}/will", "payload": b"gone", "WillDelayInterval": 3_600}
    device(f"{prefix}d", will=will, SessionExpiryInterval=60).cut()
    device(f"{prefix}d", clean_start=True, SessionExpiryInterval=60)
    assert payloads([watcher.receive()]) == [b"gone"]
