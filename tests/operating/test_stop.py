"""How a broker ends: what clients are told, what is kept, how long it may take, and how it says
so."""

import fcntl
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import system
from tests.interop.device import Device, payloads
from tests.interop.wire import Wire
from tests.operating.conftest import MakeBroker
from tests.process import HOST
from tests.supervisor import Supervisor

PEERS_WITHIN_S = 5
"""What the broker allows peers to take their last bytes (core/limits.py)."""
DISK_STALLS_S = 60
"""This much more may pass on a machine whose disk stands still now and then."""


def test_each_client_is_told_and_a_new_start_goes_on(make_broker: MakeBroker) -> None:
    broker = make_broker()
    with Wire(broker.port) as wire, Wire(broker.port, 4) as older:
        wire.connect("five")
        older.connect("three")
        assert broker.stop() == 0
        assert wire.receive("disconnect")["reason_code"] == 0x8B
        assert wire.next_packet() is None
        assert older.next_packet() is None
    broker.start()
    assert "from_checkpoint=True" in broker.log()
    with Wire(broker.port) as wire:
        assert wire.connect("five")["session_present"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_under_load_loses_nothing_that_was_acknowledged(
    make_broker: MakeBroker, number: signal.Signals
) -> None:
    broker = make_broker(queue_messages_maximum=65_535)
    away = Device(broker.port, "away", SessionExpiryInterval=3_600).connect()
    away.subscribe("load", 1)
    away.disconnect()
    publisher = Device(broker.port, "publisher", clean_start=True).connect()
    acknowledged: set[bytes] = set()
    enough, ended = threading.Event(), threading.Event()

    def press() -> None:
        sent = 0
        try:
            # The client would try for ever, and may even find another broker at the port.
            while not ended.is_set():
                batch = [b"%d" % (sent + each) for each in range(20)]
                infos = [publisher.client.publish("load", payload, 1) for payload in batch]
                sent += len(batch)
                for payload, info in zip(batch, infos, strict=True):
                    info.wait_for_publish(1.0)
                    if info.is_published():
                        acknowledged.add(payload)
                    elif not publisher.client.is_connected():
                        return
                if sent >= 2_000:
                    enough.set()
        except RuntimeError:
            return  # Paho's word for a connection that has ended.

    thread = threading.Thread(target=press)
    thread.start()
    assert enough.wait(60)
    broker.send(number)
    assert broker.wait_ended() == 0
    ended.set()
    publisher.client.loop_stop()
    thread.join(60)
    assert not thread.is_alive()
    broker.start()
    away = Device(broker.port, "away", SessionExpiryInterval=3_600).connect()
    assert acknowledged <= set(payloads(away.all_received()))
    away.close()


def test_what_has_arrived_is_answered_before_the_end(make_broker: MakeBroker) -> None:
    broker = make_broker()
    with Wire(broker.port) as wire:
        wire.connect("publisher")
        for identifier in range(1, 101):
            wire.publish("t", b"x", qos=1, identifier=identifier)
        wire.send("pingreq")
        packets = [wire.next_packet()]
        # PINGRESP waits for nothing: with it all of them have arrived, and few are answered.
        while packets[-1] is not None and packets[-1][0] != "pingresp":
            packets.append(wire.next_packet())
        assert broker.stop() == 0
        while packets[-1] is not None and packets[-1][0] != "disconnect":
            packets.append(wire.next_packet())
        answered = [p[1]["packet_identifier"] for p in packets if p and p[0] == "puback"]
        assert answered == list(range(1, 101))
        assert packets[-1] is not None


def test_a_peer_that_does_not_read_holds_up_the_end_for_seconds_only(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker()
    with Wire(broker.port) as wire:
        wire.connect("deaf")
        wire.subscribe("t", 0)
        publisher = Device(broker.port, "publisher", clean_start=True).connect()
        # More than the sockets between them take.
        publisher.publish_all("t", [bytes(1_000_000)] * 30, 0)
        publisher.publish("other", b"")
        publisher.close()
        began = system.monotonic_s()
        assert broker.stop() == 0
        assert system.monotonic_s() - began < PEERS_WITHIN_S + DISK_STALLS_S


@pytest.fixture
def stalled(tmp_path: Path) -> Iterator[list[str]]:
    """A `holdfast` whose disk stands still when it stops."""
    file = tmp_path / "held"
    file.touch()
    with file.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield [sys.executable, "-m", "tests.operating.stalled", str(file)]


def test_a_disk_that_stands_still_holds_up_the_end_for_as_long_as_is_allowed(
    make_broker: MakeBroker, stalled: list[str]
) -> None:
    broker = make_broker(program=stalled, stop_timeout_s=1)
    with Wire(broker.port) as wire:
        wire.connect("s")
        wire.publish("t", b"kept", qos=1, identifier=1)
        wire.receive("puback")
        broker.send(signal.SIGTERM)
        assert broker.wait_ended() == 3
    assert "not stopped within 1 s (stop.timeout_s)" in broker.log()
    broker.program = [str(Path(sys.executable).with_name("holdfast"))]
    broker.start()
    with Wire(broker.port) as wire:
        assert wire.connect("s")["session_present"]


def test_a_second_signal_ends_it_at_once(
    make_broker: MakeBroker, stalled: list[str], supervisor: Supervisor
) -> None:
    broker = make_broker(program=stalled, stop_timeout_s=600)
    broker.send(signal.SIGTERM)
    supervisor.wait_told("STOPPING=1")
    broker.send(signal.SIGTERM)
    assert broker.wait_ended() == -signal.SIGTERM


def test_nobody_is_accepted_while_it_stops(
    make_broker: MakeBroker, stalled: list[str], supervisor: Supervisor
) -> None:
    broker = make_broker(program=stalled, stop_timeout_s=600)
    with Wire(broker.port) as wire:
        wire.connect("s")
        broker.send(signal.SIGTERM)
        supervisor.wait_told("STOPPING=1")
        refused = 0
        while not refused:
            with socket.socket() as late:
                refused = late.connect_ex((HOST, broker.port))
    broker.send(signal.SIGTERM)
    broker.wait_ended()


@pytest.mark.parametrize(
    ("delay_s", "heard"), [(0, [b"gone"]), (3_600, [])], ids=["at once", "with a delay"]
)
def test_a_will_with_a_delay_waits_for_the_client_to_come_back(
    make_broker: MakeBroker, delay_s: int, heard: list[bytes]
) -> None:
    broker = make_broker()
    listener = Device(broker.port, "listener", SessionExpiryInterval=3_600).connect()
    listener.subscribe("will", 1)
    listener.disconnect()
    will = {"topic": "will", "payload": b"gone", "WillDelayInterval": delay_s}
    device = Device(broker.port, "device", will=will, SessionExpiryInterval=3_600).connect()
    assert broker.stop() == 0
    device.wait_ended()
    broker.start()
    back = Device(broker.port, "device", SessionExpiryInterval=3_600).connect()
    assert back.session_present
    listener = Device(broker.port, "listener", SessionExpiryInterval=3_600).connect()
    assert payloads(listener.all_received()) == heard
    back.close()
    listener.close()


def test_a_deferred_will_goes_out_when_its_delay_has_passed_after_the_start(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker()
    will = {"topic": "will", "payload": b"gone", "retain": True, "WillDelayInterval": 1}
    device = Device(broker.port, "device", will=will, SessionExpiryInterval=3_600).connect()
    assert broker.stop() == 0
    device.wait_ended()
    broker.start()
    listener = Device(broker.port, "listener", clean_start=True).connect()
    listener.subscribe("will", 1)
    assert payloads([listener.receive()]) == [b"gone"]
    listener.close()


def test_the_supervisor_is_told_of_each_step(
    make_broker: MakeBroker, supervisor: Supervisor
) -> None:
    broker = make_broker()
    assert supervisor.next_step() == "READY=1"
    broker.send(signal.SIGHUP)
    assert supervisor.next_step().startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert supervisor.next_step() == "READY=1"
    assert broker.stop() == 0
    assert supervisor.next_step() == "STOPPING=1"
