"""Groups of shared subscriptions as an operator sees them, over HTTP and with `holdfast group`; and
another strategy for a running broker."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.interop.seen import Seen
from tests.interop.wire import Wire

HOLDFAST = Path(sys.executable).with_name("holdfast")
WITHIN_S = 120.0
GROUP = "$share/orders-eu/shop/+/orders"
ONE = f"/v1/groups/{quote(GROUP, safe='')}"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    running = Seen(
        tmp_path_factory.mktemp("groups"),
        shared_strategies="orders-*=key:topic",
        application_client_identifiers="app-*",
    )
    running.start()
    yield running
    assert running.stop() == 0, running.log()


def member(broker: Seen, name: str) -> Wire:
    wire = Wire(broker.port)
    wire.connect(name, clean_start=True)
    assert wire.subscribe(GROUP, 1) == [1]
    return wire


def publish(broker: Seen, topics: int, rounds: int) -> None:
    with Wire(broker.port) as wire:
        wire.connect("shop", clean_start=True, session_expiry_interval=0)
        for number in range(topics * rounds):
            topic = f"shop/{number % topics}/orders"
            wire.publish(topic, b"%d" % number, qos=1, identifier=number + 1)
            wire.receive("puback")


def group_command(broker: Seen, *words: str) -> str:
    done = subprocess.run(
        [HOLDFAST, "group", *words, "--data-dir", str(broker.data_directory)],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_group_is_shown_with_what_each_member_got_and_which_keys_it_holds(broker: Seen) -> None:
    with member(broker, "app-1") as one, member(broker, "device-2") as two:
        publish(broker, topics=20, rounds=2)
        got = {"app-1": 0, "device-2": 0}
        for name, wire in (("app-1", one), ("device-2", two)):
            wire.send("pingreq")
            while (packet := wire.next_packet()) is not None and packet[0] == "publish":
                got[name] += 1
        found = broker.get(ONE)
        assert found["strategy"] == "key:topic"
        assert found["queue_name"] == "tbmq.msg.app.shared.shop.slw.orders"
        assert found["consumer_group"] == (
            "application-shared-msg-consumer-group-orders-eu-tbmq.msg.app.shared.shop.slw.orders"
        )
        assert sum(got.values()) == found["in_flight"]
        # A pack waits for its acknowledgements, so the APPLICATION client has not got all of its.
        assert found["in_flight"] + found["queued"] == 40
        assert min(got.values()) > 0
        shares = {row["client_identifier"]: row for row in found["shares"]}
        assert {name: row["delivered"] for name, row in shares.items()} == got
        assert {row["key_slots"] for row in shares.values()} == {32_768}
        held = found["keys_held"]
        assert held == sorted(held, key=lambda row: (row["since_us"], row["key_slot"]))
        assert sum(row["in_flight"] for row in held) == found["in_flight"]
        assert {row["client_identifier"] for row in held} == set(got)
        listed = group_command(broker, "list")
        assert GROUP in listed
        assert "key:topic" in listed
        shown = group_command(broker, "show", GROUP)
        assert "app-1" in shown
        assert "first_offset" in shown
        assert '"keys_held": [' in group_command(broker, "show", GROUP, "--json")
    assert broker.ask("GET", f"/v1/groups/{quote('$share/none/x', safe='')}")[0] == 404


def test_for_whom_a_group_waits_is_shown_with_since_when(broker: Seen) -> None:
    group = "$share/pods/pod/#"
    with Wire(broker.port) as gone:
        gone.connect("pod-1", clean_start=True, session_expiry_interval=600)
        assert gone.subscribe(group, 2) == [2]
        assert broker.get(f"/v1/groups/{quote(group, safe='')}")["awaited"] == []
        with Wire(broker.port) as shop:
            shop.connect("shop", clean_start=True, session_expiry_interval=0)
            shop.publish("pod/1", b"x", qos=2, identifier=1)
            shop.receive("pubrec")
        gone.receive("publish")
        gone.send("disconnect", reason_code=0)
        assert gone.next_packet() is None
    found = broker.get(f"/v1/groups/{quote(group, safe='')}")
    (awaited,) = found["awaited"]
    assert (awaited["client_identifier"], awaited["messages"]) == ("pod-1", 1)
    assert awaited["ends_at_us"] - awaited["since_us"] == 600_000_000
    shown = group_command(broker, "show", group)
    heading, row = shown.splitlines()[-2:]
    assert heading.split() == ["client_identifier", "messages", "first_offset", "since", "ends_at"]
    assert row.split()[:2] == ["pod-1", "1"]


def test_what_waits_for_a_key_is_shown(broker: Seen) -> None:
    with Wire(broker.port) as full:
        full.connect("device-3", clean_start=True, receive_maximum=2)
        group = "$share/orders-us/shop/#"
        full.subscribe(group, 1)
        publish(broker, topics=1, rounds=10)
        first = full.receive("publish")["packet_identifier"]
        full.receive("publish")
        found = broker.get(f"/v1/groups/{quote(group, safe='')}")
        (held,) = found["keys_held"]
        assert found["in_flight"] == held["in_flight"] == 2
        assert found["queued"] == 8
        full.acknowledge("puback", first)
        full.receive("publish")
        again = broker.get(f"/v1/groups/{quote(group, safe='')}")
        assert again["keys_held"] == [held], "since it was first held without a gap"
        assert again["shares"][0]["delivered"] == 3


@pytest.mark.parametrize(("client", "in_sight"), [("device-1", True), ("app-1", False)])
def test_only_a_queue_that_is_limited_by_number_says_when_it_will_lose_its_first_message(
    tmp_path: Path, client: str, in_sight: bool
) -> None:
    broker = Seen(
        tmp_path, application_client_identifiers="app-*", queue_messages_maximum=10, queue_ttl_s=0
    )
    broker.start()
    with Wire(broker.port) as wire:
        wire.connect(client, session_expiry_interval=600)
        assert wire.subscribe(GROUP, 1) == [1]
        wire.send("disconnect", reason_code=0)
    publish(broker, 1, 5)
    seen = broker.get(ONE)
    assert (seen["members"], seen["queued"]) == ([], 5)
    assert (seen["queue_name"] is None) is in_sight
    assert (seen["first_loss_in_s"] is not None) is in_sight
    assert broker.stop() == 0, broker.log()
