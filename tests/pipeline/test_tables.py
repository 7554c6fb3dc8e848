"""SQL over messages and their delivery state: the page's queries, on a broker as users have one."""

import argparse
import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.cli.pipeline_command import sql
from holdfast.core.errors import ConfigurationError
from holdfast.pipeline.cursor import Cursor
from holdfast.pipeline.data_source import HoldfastSource
from holdfast.pipeline.json_values import in_json
from holdfast.pipeline.running import ERRORS, Pipeline
from holdfast.pipeline.source.forms import OptionError
from holdfast.pipeline.tables import register_views
from holdfast.reading.tables import SCHEMAS
from tests.builders.stored import Message, store
from tests.interop.device import Device
from tests.process import BrokerProcess

PAGE = Path(__file__).parents[2] / "docs" / "pipeline" / "sql.md"
NAME = "bbu-processors-azure-prod"
GROUP = f"$share/{NAME}/prod/+/reads"
ASKED_MAXIMUM = 100
"""How often what is on its way to the disk is looked for."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    running = BrokerProcess(tmp_path, http_port=0)
    running.start()
    yield running
    if running.is_running():
        assert running.stop() == 0, running.log()


def rows(spark: SparkSession, query: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in spark.sql(query).collect()]


def query_of_the_page(begin: object, end: object) -> str:
    (query,) = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return query.replace("2026-01-31 10:00", str(begin)).replace("2026-01-31 10:05", str(end))


def test_the_page_finds_who_holds_what_is_not_acknowledged(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    members = [
        Device(broker.port, name, answer=False, clean_start=True, ReceiveMaximum=5).connect()
        for name in ("north", "south")
    ]
    for member in members:
        member.subscribe(GROUP, 1)
    reader = Device(broker.port, "reader", clean_start=True).connect()
    reader.publish("prod/7/reads", b"before")
    inside = [b"%d" % number for number in range(20)]
    reader.publish_all("prod/7/reads", inside)
    reader.publish("test/7/reads", b"of another kind")
    reader.publish("prod/7/reads", b"behind")
    held = {member.name: member.receive_many(5) for member in members}
    acknowledged = [held["north"].pop(at) for at in (3, 1)] + [held["south"].pop(0)]
    for member, count in zip(members, (2, 1), strict=True):
        for message in acknowledged[:count]:
            member.client.ack(message.mid, message.qos)
        del acknowledged[:count]
        held[member.name] += member.receive_many(count)
        # Answered behind all that was acknowledged.
        member.publish("barrier", b"", 1)

    moment = register_views(spark, broker=broker.http_address)

    assert moment is not None
    known = {bytes(row["value"]): row for row in rows(spark, "SELECT * FROM messages")}
    begin, end = known[inside[0]]["timestamp"], known[b"behind"]["timestamp"]
    found = rows(spark, query_of_the_page(begin, end))
    by_offset = {row["offset"]: value for value, row in known.items()}
    hands = {
        bytes(message.payload): name for name, messages in held.items() for message in messages
    }
    expected = Counter(hands.get(value) for value in inside)
    done = 3 - sum(value not in inside for value in (b"before",) if value not in hands)
    assert Counter(row["holder"] for row in found) == {
        "north": expected["north"],
        "south": expected["south"],
        None: len(found) - expected["north"] - expected["south"],
    }
    assert len(found) == len(inside) - done
    assert all(hands.get(by_offset[row["offset"]]) == row["holder"] for row in found)
    assert moment.offset == 1 + max(by_offset)
    for device in (*members, reader):
        device.close()


def test_views_are_of_one_moment_until_they_are_made_anew(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    device = Device(broker.port, "reader", clean_start=True).connect()
    device.publish("a", b"1")
    register_views(spark, broker=broker.http_address)
    device.publish("a", b"2", retain=True)
    device.subscribe("b/#")
    for table, count in (("messages", 1), ("retained", 0), ("subscriptions", 0), ("topics", 1)):
        assert len(rows(spark, f"SELECT * FROM {table}")) == count, table
    register_views(spark, broker=broker.http_address)
    for table, count in (("messages", 2), ("retained", 1), ("subscriptions", 1), ("topics", 1)):
        assert len(rows(spark, f"SELECT * FROM {table}")) == count, table
    address = broker.http_address
    alone = spark.read.format("holdfast").options(broker=address, table="sessions").load()
    assert [row["client"] for row in alone.collect()] == ["reader"]
    device.close()


def everything(spark: SparkSession) -> dict[str, list[dict[str, Any]]]:
    return {name: sorted(rows(spark, f"SELECT * FROM {name}"), key=str) for name in SCHEMAS}


def test_a_directory_has_what_is_on_record(spark: SparkSession, broker: BrokerProcess) -> None:
    keeps = Device(
        broker.port, "keeps", answer=False, SessionExpiryInterval=3600, ReceiveMaximum=6
    ).connect()
    keeps.subscribe("a/#", 2)
    keeps.subscribe(GROUP)
    other = Device(broker.port, "other", clean_start=True).connect()
    cursor = Cursor("bronze", broker.http_address)
    cursor.make(["a/#"], "earliest")
    for number in range(4):
        for qos in (1, 2):
            other.publish("a/1", b"%d" % number, qos)
    other.publish("prod/7/reads", b"of the group")
    other.publish("b", b"kept", retain=True)
    for payload in (b"once", b""):
        other.publish("c", payload, retain=True)
    messages = keeps.receive_many(6)
    for message in (messages[0], messages[2]):
        keeps.client.ack(message.mid, message.qos)
    keeps.receive_many(2)
    cursor.hold("h")
    cursor.release("h", 3)
    keeps.publish("barrier", b"", 1)
    for device in (keeps, other):
        device.disconnect()
    for _ in range(ASKED_MAXIMUM):
        register_views(spark, broker=broker.http_address)
        if rows(spark, "SELECT state FROM sessions") == [{"state": "at rest"}]:
            break
    asked = everything(spark)
    for _ in range(ASKED_MAXIMUM):
        register_views(spark, data_dir=str(broker.data_directory))
        if everything(spark) == asked:
            break
    assert everything(spark) == asked
    assert broker.stop() == 0
    assert register_views(spark, data_dir=str(broker.data_directory)) is None
    assert everything(spark) == asked
    broker.start()
    broker.kill()
    assert everything(spark) == asked
    assert len(asked["subscriptions"]) == 2
    assert asked["groups"][0]["members"] == 1
    assert [row["topic"] for row in asked["retained"]] == ["b"]
    assert [row["place"] for row in asked["cursors"]] == [3]
    assert {row["phase"] for row in asked["deliveries"]} == {"received", "sent"}
    ranges = [(row["queue"], row["begin"], row["end"]) for row in asked["acknowledgements"]]
    assert ("cursor/bronze", 0, 3) in ranges
    assert "keeps" in {queue for queue, _, _ in ranges}


def test_a_query_is_run_from_the_command_line(broker: BrokerProcess, tmp_path: Path) -> None:
    device = Device(broker.port, "keeps", SessionExpiryInterval=3600).connect()
    device.subscribe("a/#")
    device.publish("a", b"1")
    device.disconnect()
    query = "SELECT s.client, q.filters, s.state FROM sessions s JOIN queues q ON q.name = s.client"
    told = said(tmp_path, query, "--broker", broker.http_address, "--json")
    assert json.loads(told.stdout) == {"client": "keeps", "filters": ["a/#"], "state": "at rest"}
    assert not re.search(r" WARN |log4j|log level", told.stderr), told.stderr
    wrong = said(tmp_path, "SELECT nothing FROM nowhere", "--broker", broker.http_address)
    assert wrong.returncode == 2
    assert ERRORS not in wrong.stderr, wrong.stderr
    last = wrong.stderr.splitlines()[-1]
    assert last.startswith("holdfast: the query cannot be run: ")
    assert "nowhere" in last


def test_a_value_of_any_type_is_json(spark: SparkSession) -> None:
    query = "SELECT map('a', named_struct('b', array(double('NaN'), double('-Infinity')))) AS m"
    query += ", X'4142' AS x, date'2026-01-31' AS t, 1.5D AS d"
    frame = spark.sql(query)
    [row] = frame.collect()
    found = [in_json(each, kind.dataType) for each, kind in zip(row, frame.schema, strict=True)]
    expected = [{"a": {"b": ["NaN", "-Infinity"]}}, "AB", "2026-01-31", 1.5]
    assert json.loads(json.dumps(found, allow_nan=False)) == expected


def test_rows_are_printed_by_place_and_times_in_utc_whatever_the_machines_zone(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    monkeypatch.setattr(Pipeline, "session", lambda _: nullcontext(spark))
    store(tmp_path / "data", [Message("a", b"1")])
    at = "timestamp'2026-01-31 10:00'"
    query = f"SELECT qos, 7 AS qos, {at} AS at, array({at}) AS every FROM messages"
    (tmp_path / "pipeline.toml").write_text('[log]\ndata_dir = "data"\n')
    options = argparse.Namespace(
        query=query, broker=None, config=tmp_path / "pipeline.toml", limit=10, json=False
    )
    try:
        assert sql(options) == 0
        options.json = True
        with pytest.raises(ConfigurationError, match="has two columns qos; name them apart"):
            sql(options)
    finally:
        monkeypatch.undo()
        time.tzset()
    moment = "2026-01-31 10:00:00+00:00"
    assert capsys.readouterr().out.splitlines() == [
        "qos  qos  at                         every",
        f"1    7    {moment}  ['{moment}']",
    ]


def said(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).parent / "holdfast", "pipeline", "sql", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_page_has_every_column() -> None:
    lines = {
        line.split("`")[1]: line for line in PAGE.read_text().splitlines() if line[:3] == "| `"
    }
    for table, schema in SCHEMAS.items():
        told = dict.fromkeys(re.findall(r"`(\w+)`", lines[table].split("|")[3]))
        assert [name for name in told if name in schema.names] == schema.names, table


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table": "queue"}, "'queue' is unknown; there are topics"),
        ({"table": "messages"}, "'messages' is read by 'subscribe'"),
        ({"table": "queues", "subscribe": "#"}, "'subscribe' does not go with 'table'"),
        ({"table": "queues", "dataDir": "x"}, "and not both"),
    ],
)
def test_a_wrong_option_of_a_table_is_named(options: dict[str, str], said: str) -> None:
    source = HoldfastSource({"broker": "nobody:8080", **options})
    with pytest.raises(OptionError, match=said):
        source.schema()
