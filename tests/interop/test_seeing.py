"""What a broker tells of itself: counters that move with what happens, log lines, `$SYS`, top."""

import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.device import Device
from tests.interop.seen import Seen
from tests.interop.test_admin import eventually
from tests.interop.wire import Wire
from tests.process import HOST

HOLDFAST = Path(sys.executable).with_name("holdfast")
WITHIN_S = 120


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    running = Seen(tmp_path_factory.mktemp("broker"), sys_interval_s=1, sessions_maximum=1_000)
    running.start()
    yield running
    assert running.stop() == 0, running.log()


def bad_client_identifier(broker: Seen) -> None:
    with Wire(broker.port, 4) as wire:
        wire.connect("", clean_start=False)


def second_connect(broker: Seen) -> None:
    with Wire(broker.port) as wire:
        wire.connect("second-connect")
        wire.send("connect", protocol_version=5, client_identifier="x", clean_start=True,
                  keep_alive_s=0, user_name=None, password=None, will=None)  # fmt: skip
        wire.receive("disconnect")


def no_mqtt(broker: Seen) -> None:
    with Wire(broker.port) as wire:
        wire.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
        assert wire.next_packet() is None


def wrong_filter(broker: Seen) -> None:
    with Wire(broker.port) as wire:
        wire.connect("wrong-filter")
        # The encoder of tests makes no such filter, so one byte of a right one is changed.
        wanted = {"topic_filter": "a/bb", "qos": 1}
        right = wire.encode("subscribe", packet_identifier=1, subscriptions=[wanted])
        wire.send_bytes(right.replace(b"a/bb", b"a/#b"))
        assert wire.receive("disconnect")["reason_code"] == 0x8F


def takeover(broker: Seen) -> None:
    with Wire(broker.port) as one, Wire(broker.port) as other:
        one.connect("taken")
        other.connect("taken")
        assert one.receive("disconnect")["reason_code"] == 0x8E


@pytest.mark.parametrize(
    ("happens", "metric"),
    [
        (bad_client_identifier,
         'holdfast_connects_refused{reason="client_identifier_not_valid"}'),
        (second_connect, 'holdfast_connections_ended_by_broker{reason="protocol_error"}'),
        (no_mqtt, "holdfast_connections_ended_before_connect"),
        (wrong_filter, 'holdfast_connections_ended_by_broker{reason="topic_filter_invalid"}'),
        (takeover, "holdfast_sessions_taken_over"),
    ],
)  # fmt: skip
def test_each_refusal_moves_its_counter(
    broker: Seen, happens: Callable[[Seen], None], metric: str
) -> None:
    before = broker.number(metric)
    happens(broker)
    eventually(lambda: broker.number(metric) == before + 1, metric)


def test_connections_beyond_the_limit_are_counted(tmp_path: Path) -> None:
    broker = Seen(tmp_path, connections_maximum=1)
    broker.start()
    eventually(lambda: broker.number("holdfast_connections") == 0, "the probe is gone")
    with Wire(broker.port) as one:
        one.connect("only")
        with Wire(broker.port) as other:
            assert other.next_packet() is None
        limit = 'holdfast_connections_turned_away{limit="connections_maximum"}'
        eventually(lambda: broker.number(limit) >= 1, limit)
    assert 'warning "connection turned away"' in broker.log()
    assert broker.stop() == 0


def test_traffic_is_counted(broker: Seen) -> None:
    names = [
        'holdfast_packets_received{kind="publish"}',
        'holdfast_packets_sent{kind="publish"}',
        "holdfast_deliveries",
        "holdfast_deliveries_completed",
        "holdfast_log_records_appended",
    ]
    accepted = 'holdfast_connections_accepted{transport="tcp",protocol_version="5.0"}'
    before = {name: broker.number(name) for name in [*names, "holdfast_received_bytes", accepted]}
    with Wire(broker.port) as wire:
        wire.connect("traffic", clean_start=True, session_expiry_interval=0)
        wire.subscribe("traffic")
        assert broker.number(accepted) == before[accepted] + 1
        for identifier in range(1, 11):
            wire.publish("traffic", b"x" * 100, qos=1, identifier=identifier)
        for _ in range(20):
            kind, fields = wire.next_packet() or ("", {})
            if kind == "publish":
                wire.acknowledge("puback", fields["packet_identifier"])
        wire.ping()
    for name in names[:4]:
        assert broker.number(name) == before[name] + 10, name
    assert broker.number("holdfast_received_bytes") > before["holdfast_received_bytes"] + 1_000
    eventually(lambda: broker.number(accepted) == before[accepted], "the connection is gone")


def test_the_log_says_who_came_and_why_he_went(broker: Seen) -> None:
    with Wire(broker.port) as wire:
        wire.connect("a\nb", clean_start=True, session_expiry_interval=0)
        wire.send("disconnect", reason_code=0)
        assert wire.next_packet() is None
    eventually(lambda: "reason=client_disconnected" in broker.log(), "the line")
    connected = [line for line in broker.log().splitlines() if '"a\\nb"' in line]
    assert len(connected) == 2
    assert "transport=tcp protocol_version=5 session_present=False" in connected[0]
    assert "client_type=DEVICE" in connected[0]
    assert "connected_s=" in connected[1]


def test_sys_is_there_for_who_asks_and_in_no_log(broker: Seen) -> None:
    end = broker.get("/v1/log")["shards"][0]["end"]
    device = Device(broker.port, "sys-reader", clean_start=True).connect()
    try:
        everything = Device(broker.port, "hash-reader", clean_start=True).connect()
        everything.subscribe("#")
        device.subscribe("$SYS/#")
        first: dict[str, Any] = {}
        live = False
        while len(first) < 45 or not live:
            message = device.receive()
            assert message.qos == 0
            live |= not message.retain
            first.setdefault(message.topic, message.payload)
        assert first["$SYS/broker/durability"] == b"fsync"
        assert first["$SYS/broker/version"].startswith(b"holdfast version ")
        assert first["$SYS/broker/uptime"].endswith(b" seconds")
        assert int(first["$SYS/broker/clients/connected"]) >= 0
        assert float(first["$SYS/broker/load/messages/received/1min"]) >= 0
        assert broker.get("/v1/log")["shards"][0]["end"] == end
        assert everything.all_received() == []
        everything.close()
    finally:
        device.close()
    assert broker.number("holdfast_retained_messages") == 0


def test_sys_as_mosquitto_sub_sees_it(broker: Seen) -> None:
    # Not everywhere installed; Paho has shown the same above.
    command = ["mosquitto_sub", "-h", HOST, "-p", str(broker.port), "-t", "$SYS/broker/version"]
    try:
        said = subprocess.run(
            [*command, "-C", "1", "-W", "60"], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return
    assert said.stdout.startswith("holdfast version ")


def holdfast(*arguments: str) -> str:
    ended = subprocess.run(
        [HOLDFAST, *arguments], capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_top_shows_a_frame(broker: Seen) -> None:
    with Wire(broker.port) as wire:
        wire.connect("\x1b[31mred")
        wire.subscribe("slow/#")
        wire.send("pingreq")
        for identifier in range(1, 4):
            wire.publish("slow/1", b"x", qos=1, identifier=identifier)
        eventually(lambda: bool(broker.get("/v1/backlog/longest")["queues"]), "a queue")
        for options in (
            ("--broker", f"http://{HOST}:{broker.http_port}"),
            ("--data-dir", str(broker.data_directory)),
        ):
            shown = holdfast("top", "--once", *options)
            assert "durability fsync" in shown
            assert "published" in shown
            assert "\x1b" not in shown
            assert "\\x1b[31mred" in shown


def test_commands_look_at_a_running_broker_and_act_on_it(broker: Seen) -> None:
    here = ("--data-dir", str(broker.data_directory))
    with Wire(broker.port) as wire:
        wire.connect("commanded")
        wire.subscribe("commanded/#")
        assert "commanded" in holdfast("session", "list", "--search", "commanded", *here)
        assert "commanded/#  QoS 1" in holdfast("session", "show", "commanded", *here)
        holdfast("session", "disconnect", "commanded", *here)
        assert wire.receive("disconnect")["reason_code"] == 0x98
    holdfast("session", "remove", "commanded", *here)
    assert "commanded" not in holdfast("session", "list", *here)
    broker.ask("POST", "/v1/publish", {"topic_name": "kept", "payload": "x", "retain": True})
    assert "kept" in holdfast("retained", "list", *here)
    holdfast("retained", "remove", "kept", *here)
    assert "kept" not in holdfast("retained", "list", *here)
    assert "reason" in holdfast("losses", *here)


def test_without_a_broker_a_command_says_so_in_a_sentence(tmp_path: Path) -> None:
    for command in (("top", "--once"), ("session", "list"), ("retained", "list"), ("losses",)):
        ended = subprocess.run(
            [HOLDFAST, *command, "--data-dir", str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert ended.returncode == 1
        assert ended.stderr == f"holdfast: no broker runs on the data directory {tmp_path}\n"


def test_scraping_while_clients_come_and_go_holds_nobody_up(broker: Seen) -> None:
    asked = [threading.Thread(target=broker.number, args=["holdfast_turns"]) for _ in range(8)]
    for thread in asked:
        thread.start()
    with Wire(broker.port) as wire:
        wire.connect("beside")
        wire.ping()
    for thread in asked:
        thread.join(WITHIN_S)
        assert not thread.is_alive()


def test_a_fleet_that_comes_back_does_not_fill_the_log(tmp_path: Path) -> None:
    broker = Seen(tmp_path, logging_lines_maximum=3)
    broker.start()

    def come_and_go(name: str) -> None:
        with Wire(broker.port) as wire:
            wire.connect(name, clean_start=True, session_expiry_interval=0)

    for number in range(60):
        come_and_go(f"fleet-{number}")
    # In a second of its own, so that its line is written and tells of those before it.
    threading.Event().wait(1.1)
    come_and_go("last")
    assert broker.stop() == 0
    lines = broker.log_file.read_text().splitlines()
    connected = [line for line in lines if '"client connected"' in line]
    assert max(Counter(line.partition(".")[0] for line in connected).values()) <= 3
    assert "client_identifier=last" in connected[-1]
    left_out = sum(map(int, re.findall(r"left_out=([0-9]+)", "\n".join(connected))))
    assert len(connected) + left_out == 61
