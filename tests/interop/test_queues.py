"""Queues with names, as an operator sees them over HTTP and with `holdfast queue`: who has one, how
it is called, what it shows, who reads it."""

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.interop.seen import Seen
from tests.interop.test_admin import eventually, state
from tests.interop.wire import Wire

HOLDFAST = Path(sys.executable).with_name("holdfast")
WITHIN_S = 120.0
POD = "bbu-processor-azure-prod-pod-1"
POD_QUEUE = "tbmq.msg.app.063b70394f7dcf6d8c54e52382af8f2591aea14040c384e8f71bdce9d3fcedbd"
SHARED = "tbmq.msg.app.shared."


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    running = Seen(tmp_path_factory.mktemp("queues"), application_user_names="app")
    running.start()
    yield running
    assert running.stop() == 0, running.log()


def application(broker: Seen, name: str, *filters: str, **options: Any) -> Wire:
    """An APPLICATION client that is connected and subscribes to these."""
    wire = Wire(broker.port)
    wire.connect(name, user_name="app", **options)
    for topic_filter in filters:
        assert wire.subscribe(topic_filter) == [1]
    return wire


def publish(broker: Seen, *topics: str) -> None:
    """One message to each, its number its payload."""
    with Wire(broker.port) as wire:
        wire.connect("publisher", clean_start=True, session_expiry_interval=0)
        for number, topic in enumerate(topics, start=1):
            wire.publish(topic, str(number).encode(), qos=1, identifier=number)
            wire.receive("puback")


def take(wire: Wire, count: int) -> list[bytes]:
    """So many messages, acknowledged."""
    payloads = []
    for _ in range(count):
        packet = wire.receive("publish")
        payloads.append(packet["payload"])
        wire.acknowledge("puback", packet["packet_identifier"])
    return payloads


def queue(broker: Seen, name: str) -> dict[str, Any]:
    return broker.get(f"/v1/queues/{name}")


def names(broker: Seen) -> list[str]:
    return [row["queue_name"] for row in broker.get("/v1/queues", limit=1000)["queues"]]


def read(broker: Seen, name: str, limit: int = 100) -> list[tuple[int | None, str, bytes]]:
    """Number, topic and payload of all that a queue shows, page by page."""
    found: list[tuple[int | None, str, bytes]] = []
    offset: int | None = 0
    while offset is not None:
        query = {"from": offset, "limit": limit}
        page = broker.get(f"/v1/queues/{name}/messages", **query)
        for row in page["messages"]:
            payload = base64.b64decode(row["payload_base64"])
            found.append((row["number"], row["topic_name"], payload))
        offset = page["next_offset"]
    return found


@pytest.mark.accepts("S0.6", "S0.10", "S0.14")
def test_the_first_connection_makes_a_queue_with_the_identifier_in_its_name(broker: Seen) -> None:
    assert "tbmq.msg.app.first1" not in names(broker)
    with application(broker, "first1"):
        assert "tbmq.msg.app.first1" in names(broker)
        found = queue(broker, "tbmq.msg.app.first1")
        assert (found["kind"], found["client_identifier"]) == ("application", "first1")
        assert (found["partitions"], found["messages"], found["oldest_at_us"]) == (1, 0, None)


@pytest.mark.accepts("S0.11", "S0.12")
def test_other_characters_lead_to_the_hash(broker: Seen) -> None:
    with application(broker, POD):
        assert queue(broker, POD_QUEUE)["client_identifier"] == POD
    for name in ("a_b", "a.b", "a b", "ü"):
        with application(broker, name):
            hashed = f"tbmq.msg.app.{sha256(name.encode()).hexdigest()}"
            assert queue(broker, hashed)["client_identifier"] == name


@pytest.mark.accepts("S0.7")
def test_a_client_that_comes_back_has_the_queue_that_it_left(broker: Seen) -> None:
    with application(broker, "back", "back/#") as wire:
        publish(broker, *["back/a"] * 3)
        take(wire, 3)
        wire.ping()
        before = queue(broker, "tbmq.msg.app.back")
    eventually(lambda: state(broker, "back") == "at_rest", "it is away")
    publish(broker, "back/b")
    away = queue(broker, "tbmq.msg.app.back")
    with application(broker, "back") as wire:
        after = queue(broker, "tbmq.msg.app.back")
        assert take(wire, 1) == [b"1"]
    for found in (away, after):
        assert found["created_at_offset"] == before["created_at_offset"]
        assert found["readers"][0]["committed_offset"] == before["readers"][0]["committed_offset"]
        assert found["readers"][0]["waiting"] == 1
    assert before["messages"] == 3
    assert after["messages"] == 4
    assert after["first_offset"] == before["first_offset"] >= before["created_at_offset"]
    assert after["oldest_at_us"] == before["oldest_at_us"] > 0


@pytest.mark.accepts("S0.8", "S0.87")
def test_neither_a_device_nor_a_session_that_is_not_kept_has_a_queue_of_its_own(
    broker: Seen,
) -> None:
    with Wire(broker.port) as device:
        device.connect("device1")
        with application(broker, "unkept1", clean_start=True, session_expiry_interval=0):
            assert {"tbmq.msg.app.device1", "tbmq.msg.app.unkept1"}.isdisjoint(names(broker))
            assert broker.ask("GET", "/v1/queues/tbmq.msg.app.unkept1")[0] == 404


@pytest.mark.accepts("S0.2", "S0.4", "S0.5")
def test_a_message_can_be_read_at_each_stage(broker: Seen) -> None:
    with application(broker, "stage1", "stage/+/x"), application(broker, "stage2", "stage/a/#"):
        publish(broker, "stage/a/x", "stage/b/x", "stage/a/y", "elsewhere")
        assert read(broker, "tbmq.msg.app.stage1") == [
            (0, "stage/a/x", b"1"),
            (1, "stage/b/x", b"2"),
        ]
        assert read(broker, "tbmq.msg.app.stage2") == [
            (0, "stage/a/x", b"1"),
            (1, "stage/a/y", b"3"),
        ]
        everything = broker.get("/v1/queues/tbmq.msg.all/messages", limit=1000)["messages"]
        by_offset = {row["offset"]: row for row in everything}
        for name in ("stage1", "stage2"):
            for row in broker.get(f"/v1/queues/tbmq.msg.app.{name}/messages")["messages"]:
                common = by_offset[row["offset"]]
                assert {**common, "number": 0} == {**row, "number": 0}


def test_a_queue_is_read_in_pages_of_any_size(broker: Seen) -> None:
    with application(broker, "pages", "pages/#") as wire:
        for _ in range(3):
            publish(broker, "pages/a", "between", "pages/b")
        take(wire, 6)
        whole = read(broker, "tbmq.msg.app.pages")
        assert [number for number, _, _ in whole] == list(range(6))
        for limit in (1, 2, 5):
            assert read(broker, "tbmq.msg.app.pages", limit) == whole


def test_queues_are_listed_in_pages_of_any_size(broker: Seen) -> None:
    with application(broker, "listed1"), application(broker, "listed2"):
        whole = names(broker)
        assert {"tbmq.msg.all", "tbmq.msg.persisted", "tbmq.msg.app.listed1"} <= set(whole)
        assert whole == sorted(whole)
        for limit in (1, 2, 3):
            found: list[str] = []
            after: dict[str, str] = {}
            while True:
                page = broker.get("/v1/queues", limit=limit, **after)
                found += [row["queue_name"] for row in page["queues"]]
                if page["next"] is None:
                    break
                after = {"after": page["next"]}
            assert found == whole


@pytest.mark.accepts("S0.9")
def test_persistent_devices_have_one_queue_together(tmp_path: Path) -> None:
    broker = Seen(tmp_path, application_user_names="app")
    broker.start()
    assert queue(broker, "tbmq.msg.persisted")["messages"] == 0
    with Wire(broker.port) as one, Wire(broker.port) as other, application(broker, "app", "c"):
        one.connect("device1")
        one.subscribe("a/#")
        other.connect("device2")
        other.subscribe("b")
        other.subscribe("c", qos=0)
        publish(broker, "a/1", "b", "c", "d")
        eventually(lambda: queue(broker, "tbmq.msg.persisted")["messages"] == 2, "two messages")
        assert queue(broker, "tbmq.msg.persisted")["consumers"] == 2
        shown = [(topic, payload) for _, topic, payload in read(broker, "tbmq.msg.persisted")]
        assert shown == [("a/1", b"1"), ("b", b"2")]
        assert names(broker) == ["tbmq.msg.all", "tbmq.msg.app.app", "tbmq.msg.persisted"]
    assert broker.stop() == 0


@pytest.mark.accepts("S0.13")
def test_without_hashing_a_client_has_no_queue_and_is_told_of(tmp_path: Path) -> None:
    broker = Seen(
        tmp_path,
        application_user_names="app",
        application_client_id_validation="false",
    )
    broker.start()
    with application(broker, "pod-1", "t"), application(broker, "pod2"):
        found = broker.get("/v1/sessions/pod-1")
        assert found["queue_name"] is None
        assert "without a queue of its own" in found["warning"]
        assert broker.get("/v1/sessions/pod2")["warning"] is None
        assert names(broker) == ["tbmq.msg.all", "tbmq.msg.app.pod2", "tbmq.msg.persisted"]
    assert broker.number("holdfast_applications_without_queue") == 1
    words = 'warning "APPLICATION client without a queue of its own" client_identifier=pod-1'
    assert words in broker.log_file.read_text()
    eventually(lambda: state(broker, "pod-1") == "at_rest", "it is away")
    publish(broker, "t")
    with application(broker, "pod-1") as wire:
        assert take(wire, 1) == [b"1"]
    assert broker.stop() == 0


@pytest.mark.accepts("S0.15")
def test_a_consumer_is_there_while_the_client_is_connected(broker: Seen) -> None:
    with application(broker, "comes", "comes/#"):
        assert queue(broker, "tbmq.msg.app.comes")["readers"][0]["consumers"] == ["comes"]
    eventually(lambda: queue(broker, "tbmq.msg.app.comes")["consumers"] == 0, "it has stopped")
    with application(broker, "comes"):
        assert queue(broker, "tbmq.msg.app.comes")["consumers"] == 1


@pytest.mark.accepts("S0.88")
def test_a_client_s_page_shows_its_queue_and_its_pack_as_it_is_acknowledged(broker: Seen) -> None:
    with application(broker, "paged", "paged"):
        pass
    eventually(lambda: state(broker, "paged") == "at_rest", "it is away")
    publish(broker, *["paged"] * 3)
    with application(broker, "paged") as wire:
        first, second, third = (wire.receive("publish") for _ in range(3))
        wire.acknowledge("puback", second["packet_identifier"])
        wire.ping()
        found = broker.get("/v1/sessions/paged")
        [consumer] = found["consumers"]
        assert consumer["queue_name"] == found["queue_name"] == "tbmq.msg.app.paged"
        assert (consumer["pack_messages"], consumer["pack_unacknowledged"]) == (3, 2)
        assert (found["strategy"], found["unsent_bytes"]) == ("RETRY_ALL", 0)
        # Single acknowledgements are kept; what is shown as done waits for the pack.
        wire.acknowledge("puback", first["packet_identifier"])
        wire.ping()
        reader = queue(broker, "tbmq.msg.app.paged")["readers"][0]
        assert reader["committed_offset"] == consumer["pack_first_offset"]
        wire.acknowledge("puback", third["packet_identifier"])
        wire.ping()
        reader = queue(broker, "tbmq.msg.app.paged")["readers"][0]
        assert reader["committed_offset"] > consumer["pack_first_offset"]


@pytest.mark.accepts("S0.73", "S0.80")
def test_a_client_reads_its_own_queue_and_one_for_each_shared_subscription(broker: Seen) -> None:
    filters = ("own/#", "$share/w/k/one", "$share/w/k/two", "$share/v/k/two")
    with application(broker, "reads4", *filters):
        found = broker.get("/v1/sessions/reads4")
        group = "application-shared-msg-consumer-group-"
        assert [(row["queue_name"], row["consumer_group"]) for row in found["consumers"]] == [
            ("tbmq.msg.app.reads4", None),
            (f"{SHARED}k.one", f"{group}w-{SHARED}k.one"),
            (f"{SHARED}k.two", f"{group}w-{SHARED}k.two"),
            (f"{SHARED}k.two", f"{group}v-{SHARED}k.two"),
        ]
        assert found["queue_name"] == "tbmq.msg.app.reads4"
    eventually(lambda: not broker.get("/v1/sessions/reads4")["consumers"], "all have stopped")


@pytest.mark.accepts("S0.74", "S0.75", "S0.76", "S0.77", "S0.78", "S0.79")
@pytest.mark.parametrize(
    ("topic_filter", "name"),
    [
        ("test/topic", "test.topic"),
        ("test/#", "test.mlw"),
        ("test/+", "test.slw"),
        ("two/+/three/#", "two.slw.three.mlw"),
        ("zebra/fx/+/reads", "zebra.fx.slw.reads"),
        ("my-topic/#", "4f235e7d7e205def40795388af41e4f89b294ea6b7f8f003de2bb98d6fe58c01"),
    ],
)
def test_a_shared_filter_has_a_queue_of_its_name(
    broker: Seen, topic_filter: str, name: str
) -> None:
    with application(broker, "sharer", f"$share/g/{topic_filter}"):
        found = queue(broker, SHARED + name)
        assert (found["kind"], found["topic_filter"]) == ("shared", topic_filter)
    assert broker.ask("DELETE", "/v1/sessions/sharer")[0] == 200
    assert SHARED + name not in names(broker)


@pytest.mark.accepts("S0.81")
def test_two_share_names_read_one_queue_and_each_gets_all_of_it(broker: Seen) -> None:
    with (
        application(broker, "left", "$share/l/both/#") as left,
        application(broker, "right", "$share/r/both/#") as right,
    ):
        publish(broker, "both/1", "both/2")
        assert take(left, 2) == take(right, 2) == [b"1", b"2"]
        found = queue(broker, f"{SHARED}both.mlw")
        assert [reader["consumers"] for reader in found["readers"]] == [["left"], ["right"]]
        assert found["messages"] == 2


def test_what_a_member_holds_waits_until_it_is_acknowledged(broker: Seen) -> None:
    def reader() -> dict[str, Any]:
        (found,) = queue(broker, f"{SHARED}held.mlw")["readers"]
        assert isinstance(found, dict)
        return found

    with application(broker, "holder", "$share/h/held/#") as wire:
        publish(broker, "held/1", "held/2", "held/3")
        held = wire.receive("publish")
        assert (reader()["waiting"], reader()["in_flight"] > 0) == (3, True)
        wire.acknowledge("puback", held["packet_identifier"])
        eventually(lambda: reader()["waiting"] == 2, "one of them is acknowledged")


def test_the_second_filter_of_one_name_is_named_by_its_hash(broker: Seen) -> None:
    hashed = SHARED + sha256(b"clash/#").hexdigest()
    with application(broker, "clash", "$share/g/clash/mlw", "$share/g/clash/#"):
        assert queue(broker, f"{SHARED}clash.mlw")["topic_filter"] == "clash/mlw"
        assert queue(broker, hashed)["topic_filter"] == "clash/#"


def test_a_group_of_devices_has_no_name(broker: Seen) -> None:
    with Wire(broker.port) as wire:
        wire.connect("device3")
        wire.subscribe("$share/g/devices/only")
        assert f"{SHARED}devices.only" not in names(broker)


def test_names_outlive_a_crash(tmp_path: Path) -> None:
    broker = Seen(tmp_path, application_user_names="app")
    broker.start()
    with application(broker, "app1", "$share/g/a/mlw", "$share/g/a/#", "own"):
        before = names(broker)
    broker.kill()
    broker.start()
    assert names(broker) == before
    with application(broker, "app1"):
        assert names(broker) == before
        assert len(broker.get("/v1/sessions/app1")["consumers"]) == 3
    assert broker.ask("DELETE", "/v1/sessions/app1")[0] == 200
    assert names(broker) == ["tbmq.msg.all", "tbmq.msg.persisted"]
    assert broker.stop() == 0


def test_the_command_line_lists_shows_and_reads_queues(broker: Seen) -> None:
    def holdfast(*words: str) -> str:
        command = [str(HOLDFAST), "queue", *words, "--data-dir", str(broker.data_directory)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=WITHIN_S, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    with application(broker, "typed", "typed/#") as wire:
        publish(broker, "typed/a", "typed/b")
        take(wire, 1)
        wire.receive("publish")
        wire.ping()
        name = "tbmq.msg.app.typed"
        heading, *lines = holdfast("list").splitlines()
        columns = heading.split()
        [row] = [line.split() for line in lines if line.startswith(name)]
        shown = dict(zip(columns, row, strict=True))
        assert (shown["kind"], shown["consumers"], shown["owner"]) == ("application", "1", "typed")
        assert (shown["messages"], shown["waiting"]) == ("2", "1")
        assert "read by              its client: committed_offset" in holdfast("show", name)
        assert json.loads(holdfast("show", name, "--json"))["messages"] == 2
        read_lines = holdfast("read", name).splitlines()
        assert [line.split()[-2:] for line in read_lines] == [["typed/a", "1"], ["typed/b", "2"]]
        assert json.loads(holdfast("read", name, "--limit", "1", "--json"))["number"] == 0
        assert "tbmq.msg.app.typed" in holdfast("list", "--json")
