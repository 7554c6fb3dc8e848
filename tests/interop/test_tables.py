"""Tables about a running broker: of one moment, as Arrow, over HTTP."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyarrow as pa
import pytest

from holdfast import system
from holdfast.client.http import HttpClient
from holdfast.core.table_names import FOR_READERS
from holdfast.reading.log import UnreadableLogError
from holdfast.reading.remote_tables import RemoteTables
from holdfast.reading.tables import SCHEMAS
from tests.interop.device import Device
from tests.process import BrokerProcess
from tests.scheduling import knows_slices, niceness_and_slice

GROUP = "$share/processors/prod/+/reads"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    running = BrokerProcess(tmp_path, http_port=0)
    running.start()
    yield running
    if running.is_running():
        assert running.stop() == 0, running.log()


@pytest.fixture
def tables(broker: BrokerProcess) -> RemoteTables:
    return RemoteTables(broker.http_address)


def rows(tables: RemoteTables, *names: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """Tables of one moment, by name."""
    moment = tables.take(names)
    found = {}
    for name in names:
        batches = list(tables.read(moment.name, name))
        assert all(batch.schema == SCHEMAS[name] for batch in batches)
        found[name] = pa.Table.from_batches(batches, SCHEMAS[name]).to_pylist()
    return moment.offset, found


def test_who_reads_leaves_the_cores_to_the_loop_and_to_commits(broker: BrokerProcess) -> None:
    publisher = Device(broker.port, "publisher", clean_start=True).connect()
    # More than the loop sends by itself.
    publisher.publish_all("prod/7/reads", [bytes(1_000)] * 1_000)
    first = f"http://{broker.http_address}/v1/log/records?from=0&to=1000"
    with urlopen(first, timeout=60) as answer:
        assert len(answer.read()) > 1_000_000
    names, threads = {}, []
    nice: Counter[int] = Counter()
    for task in Path(f"/proc/{broker.process_identifier}/task").iterdir():
        names[(task / "comm").read_text().strip()] = int(task.name)
        threads.append(int(task.name))
        nice[os.getpriority(os.PRIO_PROCESS, int(task.name))] += 1
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    beside = min(usual + system.NICENESS_BESIDE, 19)
    for thread in (broker.process_identifier, names["committer"]):
        assert os.getpriority(os.PRIO_PROCESS, thread) == usual
    # One has read, and one has sent.
    assert set(nice) == {usual, beside}
    assert nice[beside] > 1
    if knows_slices():
        for thread in (broker.process_identifier, names["committer"]):
            assert niceness_and_slice(thread) == niceness_and_slice()
        told = [niceness_and_slice(thread) for thread in threads]
        assert (beside, system.SLICE_BESIDE_NS) in told


def test_every_table_tells_what_the_broker_has(broker: BrokerProcess, tables: RemoteTables) -> None:
    keeps = {"SessionExpiryInterval": 3600}
    members = [Device(broker.port, f"member-{n}", answer=False, **keeps).connect() for n in "ab"]
    for member in members:
        member.subscribe(GROUP, 1)
    away = Device(broker.port, "away", **keeps).connect()
    away.subscribe("prod/#", 1, noLocal=True)
    away.disconnect()
    passing = Device(broker.port, "passing", clean_start=True, answer=False).connect()
    passing.subscribe("prod/9/reads", 2)
    reader = Device(broker.port, "reader").connect()
    reader.publish_all("prod/7/reads", [b"%d" % n for n in range(10)])
    reader.publish("prod/9/reads", b"twice", 2)
    reader.publish("state/7", b"on", retain=True)
    got = [message for member in members for message in member.receive_many(5)]
    passing.receive()
    first = got[0]
    members[0].client.ack(first.mid, first.qos)
    members[0].all_received()

    offset, found = rows(tables, *SCHEMAS)

    assert offset == tables.take(["topics"]).offset
    topics = {row["topic"]: row["messages"] for row in found["topics"]}
    assert topics["prod/7/reads"] == 10
    assert [row["topic"] for row in found["retained"]] == ["state/7"]
    states = {row["client"]: (row["state"], row["persistent"]) for row in found["sessions"]}
    assert states == {
        "away": ("at rest", True),
        "member-a": ("connected", True),
        "member-b": ("connected", True),
        "passing": ("connected", False),
        "reader": ("connected", True),
    }
    subscribed = {
        (row["client"], row["topic_filter"], row["group"]) for row in found["subscriptions"]
    }
    assert ("away", "prod/#", None) in subscribed
    assert ("member-b", "prod/+/reads", GROUP) in subscribed
    assert ("passing", "prod/9/reads", None) in subscribed
    (group,) = found["groups"]
    assert (group["group"], group["members"], group["connected"]) == (GROUP, 2, 2)
    kinds = {row["queue"]: (row["name"], row["kind"], row["filters"]) for row in found["queues"]}
    assert kinds["away"] == ("away", "client", ["prod/#"])
    assert kinds[GROUP] == ("processors", "group", ["prod/+/reads"])
    held = Counter((row["name"], row["holder"]) for row in found["deliveries"])
    assert held["processors", "member-a"] + held["processors", "member-b"] == 10
    assert held["passing", "passing"] == 1
    for row in found["deliveries"]:
        assert (row["state"], row["attempts"], row["retained"]) == ("in flight", 1, False)
        assert row["since"] is not None
    done = {
        at
        for row in found["acknowledgements"]
        if row["name"] == "processors"
        for at in range(row["begin"], row["end"])
    }
    in_hand = {row["offset"] for row in found["deliveries"] if row["name"] == "processors"}
    assert not done & in_hand
    for device in (*members, passing, reader):
        device.close()


def test_what_is_in_flight_to_who_has_gone_is_at_rest(
    broker: BrokerProcess, tables: RemoteTables
) -> None:
    taker = Device(broker.port, "taker", answer=False, SessionExpiryInterval=3600).connect()
    taker.subscribe("prod/#", 1)
    publisher = Device(broker.port, "publisher", clean_start=True).connect()
    publisher.publish_all("prod/1", [b"%d" % n for n in range(3)])
    taker.receive_many(3)
    taker.cut()
    publisher.publish("prod/1", b"3")
    _, found = rows(tables, "deliveries", "sessions")
    assert [(row["holder"], row["state"]) for row in found["deliveries"]] == [
        ("taker", "at rest")
    ] * 3
    broker.kill()
    broker.start()
    _, found = rows(RemoteTables(tables.address), "deliveries", "sessions")
    assert len(found["deliveries"]) == 3
    publisher.close()


def test_a_cursor_is_where_it_was_released(broker: BrokerProcess, tables: RemoteTables) -> None:
    publisher = Device(broker.port, "publisher", clean_start=True).connect()
    publisher.publish_all("prod/1", [b"%d" % n for n in range(9)])
    running = HttpClient.on(broker.data_directory)
    for name in ("bronze", "silver"):
        running.put(f"/v1/cursors/{name}", {"selection": ["prod/#"], "place": 2})
    running.post("/v1/cursors/bronze/hold", {"holder": "a-query", "held_as": "the query"})
    running.post("/v1/cursors/bronze/release", {"holder": "a-query", "offset": 7})
    _, found = rows(tables, "cursors", "queues")
    told = {row["name"]: (row["filters"], row["place"], row["holder"]) for row in found["cursors"]}
    assert told["bronze"] == (["prod/#"], 7, "a-query")
    assert told["silver"] == (["prod/#"], 2, None)
    assert {row["queue"] for row in found["queues"]} == {"cursor/bronze", "cursor/silver"}
    publisher.close()


def test_a_reader_sees_messages_and_no_sessions(broker: BrokerProcess) -> None:
    running = HttpClient.on(broker.data_directory)
    running.post("/v1/users", {"name": "spark", "password": "open sesame", "reader": True})
    tables = RemoteTables(broker.http_address, "spark", "open sesame")
    moment = tables.take(sorted(FOR_READERS - {"messages"}))
    assert list(tables.read(moment.name, "topics")) == []
    with pytest.raises(UnreadableLogError, match="'sessions' is for administrators"):
        tables.take(["sessions"])
    with pytest.raises(UnreadableLogError, match="'sessions' is for administrators"):
        list(tables.read(moment.name, "sessions"))
    with pytest.raises(UnreadableLogError, match="take it again"):
        list(tables.read("0" * 16, "topics"))
