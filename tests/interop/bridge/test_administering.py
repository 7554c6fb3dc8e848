"""Bridges as an administrator has them over HTTP: made, changed, stopped, removed, seen."""

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.reading.remote_tables import RemoteTables
from holdfast.reading.tables import SCHEMAS
from holdfast.system import now_us
from tests.interop.bridge.administered import HOLDFAST, AdministeredBroker
from tests.interop.bridge.bridged import bridge, carries, write_configuration
from tests.interop.bridge.conftest import Connect, MakeBroker
from tests.interop.device import payloads
from tests.interop.test_admin import eventually
from tests.interop.users import Users
from tests.ports import HeldPort
from tests.process import HOST, BrokerProcess

PASSWORD = "a password that nobody reads"
OUT = carries("plant/#", destination="site7/{#}")


@pytest.fixture
def nowhere() -> Iterator[int]:
    """A port on which nobody listens."""
    held = HeldPort()
    yield held.number
    del held


def put(broker: AdministeredBroker, **settings: Any) -> tuple[int, dict[str, Any]]:
    return broker.ask("PUT", f"/v1/bridges/{settings['name']}", settings)


def test_a_bridge_that_was_made_carries_and_is_there_after_a_restart(
    remote: BrokerProcess, administered: MakeBroker, client: Connect
) -> None:
    broker = administered()
    settings = bridge("b", remote.port, local_subscriptions=[OUT])
    status, made = broker.ask("POST", "/v1/bridges", settings)
    assert (status, made["name"], made["in_file"], made["warnings"]) == (200, "b", False, [])
    broker.wait_state("b", "connected")
    collector = client(remote, "collector")
    collector.subscribe("site7/#", 2)
    client(broker, "publisher").publish("plant/x", b"1", 2)
    assert payloads([collector.receive()]) == [b"1"]
    broker.wait_number("b", "acknowledged", 1)
    shown = broker.bridge("b")
    assert (shown["waiting"], shown["in_flight"], shown["sent"], shown["repeated"]) == (0, 0, 1, 0)
    assert shown["connections"] == 1
    status, refused = broker.ask("POST", "/v1/bridges", settings)
    assert (status, refused["error"]) == (409, "name_taken")
    assert broker.stop() == 0, broker.log()
    broker.start()
    broker.wait_state("b", "connected")
    assert broker.ask("DELETE", "/v1/bridges/b")[0] == 200
    assert broker.ask("GET", "/v1/bridges/b")[1]["error"] == "no_such_bridge"
    assert broker.stop() == 0, broker.log()
    broker.start()
    assert broker.get("/v1/bridges")["bridges"] == []


@pytest.mark.accepts("S1.43")
def test_a_changed_bridge_keeps_its_queue_and_goes_on_where_it_was(
    remote: BrokerProcess, administered: MakeBroker, client: Connect, nowhere: int
) -> None:
    broker = administered()
    broker.ask("POST", "/v1/bridges", bridge("b", nowhere, local_subscriptions=[OUT]))
    collector, publisher = client(remote, "collector"), client(broker, "publisher")
    collector.subscribe("site8/#", 2)
    for number in range(3):
        publisher.publish("plant/x", b"%d" % number, 1)
    broker.wait_number("b", "waiting", 3)
    elsewhere = carries("plant/#", destination="site8/{#}")
    settings = bridge("b", remote.port, local_subscriptions=[elsewhere])
    status, changed = put(broker, **settings)
    assert (status, changed["settings"]["address"]) == (200, settings["address"])
    assert payloads(collector.receive_many(3)) == [b"0", b"1", b"2"]
    broker.wait_number("b", "waiting", 0)


def test_a_bridge_of_the_file_is_started_and_stopped_and_not_changed(
    remote: BrokerProcess, administered: MakeBroker, client: Connect
) -> None:
    settings = bridge("b", remote.port, local_subscriptions=[OUT])
    broker = administered(settings)
    assert broker.wait_state("b", "connected")["in_file"]
    for method, body in (("PUT", settings), ("DELETE", None)):
        status, refused = broker.ask(method, "/v1/bridges/b", body)
        assert (status, refused["error"]) == (409, "in_file")
        assert "configuration file: change or remove its table [[bridge]]" in refused["detail"]
    assert broker.ask("POST", "/v1/bridges/b/stop", {})[1]["state"] == "stopped"
    client(broker, "publisher").publish("plant/x", b"1", 1)
    broker.wait_number("b", "waiting", 1)
    broker.ask("POST", "/v1/bridges/b/start", {})
    broker.wait_number("b", "waiting", 0)


def test_what_no_bridge_can_be_is_refused(administered: MakeBroker) -> None:
    broker = administered()
    for fields, sentence in (
        ({"local_subscriptions": []}, "neither local_subscriptions nor remote_subscriptions"),
        ({"local_subscriptions": [carries("a/#/b")]}, 'local_subscriptions 1: "a/#/b" is no topic'),
        ({"address": "smtp://x"}, "begins with smtp://"),
        ({"local_subscriptions": [OUT], "loop_prevention": False, "speed": 1}, "speed"),
        (
            {"local_subscriptions": [carries("plant/#")], "loop_prevention": False},
            "local_subscriptions 1: plant/x becomes plant/x, which its filters match again",
        ),
        ({"address": f"{HOST}:0", "local_subscriptions": [OUT]}, "has port 0"),
        (
            {"hop_property": "x" * 65_536, "local_subscriptions": [OUT]},
            "hop_property has 65536 bytes; it can have 65535",
        ),
        (
            {"client_identifier": "a\0b", "local_subscriptions": [OUT]},
            "client_identifier has the character U+0000 in it",
        ),
        ({"local_subscriptions": [carries("a/" * 200)]}, "has 201 levels; it can have 128"),
        (
            {"local_subscriptions": [carries("a", excludes=["b"])] * 600},
            "local_subscriptions have 1200 filters and excludes, and can have 1000",
        ),
        (
            {"local_subscriptions": [OUT], "password": "********"},
            "******** stands for a password that is kept, and none is",
        ),
    ):
        settings = bridge("b", 1883, **fields)
        for path in ("/v1/bridges", "/v1/bridges/check"):
            status, refused = broker.ask("POST", path, settings)
            assert (status, sentence in refused["detail"]) == (400, True), refused
    assert broker.get("/v1/bridges")["bridges"] == []
    for method, action in (("GET", ""), ("DELETE", ""), ("POST", "/start"), ("GET", "/messages")):
        body = {} if method == "POST" else None
        status, refused = broker.ask(method, f"/v1/bridges/none{action}", body)
        assert (status, refused["error"]) == (404, "no_such_bridge")


def test_a_bridge_of_all_that_there_can_be_is_there_after_a_restart(
    administered: MakeBroker, nowhere: int
) -> None:
    broker = administered()
    deep = carries("/" * 127, excludes=["b"])
    excluding = [carries(f"a/{number}", excludes=["b"]) for number in range(99)]
    items = [deep, *excluding, *(carries(f"c/{number}") for number in range(800))]
    assert (
        broker.ask("POST", "/v1/bridges", bridge("b", nowhere, local_subscriptions=items))[0] == 200
    )
    assert broker.stop() == 0, broker.log()
    broker.start()
    broker.wait_number("b", "waiting", 0)


def test_a_password_that_is_kept_goes_nowhere_else(administered: MakeBroker, nowhere: int) -> None:
    broker = administered()
    settings = bridge("b", nowhere, local_subscriptions=[OUT], password=PASSWORD)
    assert broker.ask("POST", "/v1/bridges", settings)[0] == 200
    shown = settings | {"password": "********"}
    assert put(broker, **shown, keep_alive_s=30)[0] == 200
    assert broker.ask("POST", "/v1/bridges/check", shown)[0] == 200
    for elsewhere in ({"address": f"{HOST}:1"}, {"tls": {"server_name": "other"}}):
        for method, path in (("PUT", "/v1/bridges/b"), ("POST", "/v1/bridges/check")):
            status, refused = broker.ask(method, path, shown | elsewhere)
            assert (status, "say the password again" in refused["detail"]) == (400, True), refused
    assert broker.bridge("b")["settings"]["keep_alive_s"] == 30


def test_a_port_at_which_nobody_listens_is_told_in_the_system_s_words(
    administered: MakeBroker, nowhere: int
) -> None:
    broker = administered()
    broker.ask("POST", "/v1/bridges", bridge("b", nowhere, local_subscriptions=[OUT]))
    seen = broker.wait_state("b", "waiting")["last_error"]
    assert seen == f"{HOST}:{nowhere}: {os.strerror(errno.ECONNREFUSED)}"


def test_a_password_file_that_is_a_pipe_is_told_at_once(
    tmp_path: Path, administered: MakeBroker, nowhere: int
) -> None:
    broker, pipe = administered(), tmp_path / "pipe"
    os.mkfifo(pipe)
    secret = {"user_name": "u", "password_file": str(pipe)}
    settings = bridge("b", nowhere, local_subscriptions=[OUT], **secret)
    reason = f"password_file: {pipe} cannot be read: it is no regular file"
    status, checked = broker.ask("POST", "/v1/bridges/check", settings)
    assert (status, checked["accepted"], checked["reason"]) == (200, False, reason)
    broker.ask("POST", "/v1/bridges", settings)
    assert broker.wait_state("b", "waiting")["last_error"] == reason


def test_a_change_leaves_a_stopped_bridge_stopped(administered: MakeBroker, nowhere: int) -> None:
    broker = administered()
    settings = bridge("b", nowhere, local_subscriptions=[OUT])
    broker.ask("POST", "/v1/bridges", settings)
    broker.ask("POST", "/v1/bridges/b/stop", {})
    assert put(broker, **settings, keep_alive_s=30)[1]["state"] == "stopped"


def test_topics_that_become_one_are_told_of(administered: MakeBroker, nowhere: int) -> None:
    broker = administered()
    narrow = carries("plant/+/reads", destination="reads/{3}")
    settings = bridge("b", nowhere, local_subscriptions=[narrow], enabled=False)
    status, made = broker.ask("POST", "/v1/bridges", settings)
    assert (status, made["state"]) == (200, "stopped")
    assert made["warnings"] == [
        'local_subscriptions: the destination "reads/{3}" makes one topic of several:'
        " plant/x/reads and plant/y/reads both become reads/reads"
    ]


@pytest.mark.accepts("S1.66", "S1.76")
def test_the_state_of_each_message_can_be_asked_for(
    remote: BrokerProcess, administered: MakeBroker, client: Connect
) -> None:
    out = carries("plant/#", excludes=["plant/secret/#"], destination="site7/{#}")
    broker = administered(bridge("b", remote.port, local_subscriptions=[out]))
    broker.wait_state("b", "connected")
    publisher = client(broker, "publisher")
    publisher.publish("plant/x", b"0", 1)
    broker.wait_number("b", "acknowledged", 1)
    remote.kill()
    broker.wait_state("b", "waiting", "connecting")
    publisher.publish("plant/secret/x", b"1", 1)
    publisher.publish("plant/x", b"2", 1)
    publisher.publish("plant/x", b"3", 0)
    broker.wait_number("b", "waiting", 1)
    broker.wait_number("b", "buffered", 2)
    assert broker.bridge("b")["shelf_messages"] == 1

    def states(**query: object) -> list[tuple[int, str]]:
        found = broker.get("/v1/bridges/b/messages", **query)["messages"]
        return [(row["offset"], row["state"]) for row in found]

    assert states() == [(2, "buffered")]
    assert states(**{"from": 0}) == [(0, "delivered"), (2, "buffered")]
    assert broker.get("/v1/bridges/b/messages", **{"from": 0, "limit": 1})["next_offset"] == 2
    broker.ask("POST", "/v1/bridges/b/stop", {})
    assert states() == [(2, "queued")]
    remote.start()
    broker.ask("POST", "/v1/bridges/b/start", {})
    broker.wait_number("b", "waiting", 0)
    assert states(**{"from": 0}) == [(0, "delivered"), (2, "delivered")]
    broker.wait_number("b", "buffered", 0)


@pytest.mark.accepts("S1.66")
def test_since_when_a_message_is_where_it_is_is_told_where_it_is_known(
    remote: BrokerProcess, administered: MakeBroker, client: Connect
) -> None:
    broker = administered(bridge("b", remote.port, local_subscriptions=[OUT]))
    broker.wait_state("b", "connected")
    publisher = client(broker, "publisher")

    def since_us() -> list[int | None]:
        found = broker.get("/v1/bridges/b/messages", **{"from": 0})["messages"]
        return [row["since_us"] for row in found]

    began_us = now_us()
    publisher.publish("plant/x", b"0", 1)
    broker.wait_number("b", "acknowledged", 1)
    remote.kill()
    broker.wait_state("b", "waiting", "connecting")
    publisher.publish("plant/x", b"1", 1)
    eventually(lambda: since_us()[0] is not None, "the acknowledgement is on record")
    (delivered_us, buffered_us), stored_us = since_us(), now_us()
    assert began_us <= delivered_us <= stored_us
    assert buffered_us is None
    broker.ask("POST", "/v1/bridges/b/stop", {})
    ((_, queued_us), stopped_us) = since_us(), now_us()
    assert delivered_us <= queued_us <= stopped_us
    remote.start()
    broker.ask("POST", "/v1/bridges/b/start", {})
    broker.wait_number("b", "waiting", 0)
    assert since_us()[1] is None, "nothing lies behind its record"
    publisher.publish("elsewhere", b"2", 1)
    eventually(lambda: since_us()[1] is not None, "the acknowledgement is on record")
    assert since_us()[0] == delivered_us, "what was told once is told so for ever"
    assert stopped_us <= since_us()[1] <= now_us()


def test_a_remote_that_says_no_is_told_with_its_reason(
    tmp_path: Path, administered: MakeBroker
) -> None:
    (tmp_path / "guarded").mkdir()
    guarded = BrokerProcess(tmp_path / "guarded")
    Users(guarded).add("boss", PASSWORD, "--allow", "#")
    guarded.start()
    try:
        secret = {"user_name": "boss", "password": PASSWORD + "?"}
        broker = administered()
        settings = bridge("b", guarded.port, local_subscriptions=[OUT], **secret)
        broker.ask("POST", "/v1/bridges", settings)
        seen = broker.wait_state("b", "refused")
        assert "bad_user_name_or_password" in seen["last_error"], seen
        assert seen["next_attempt_at_us"] > 0
        assert (seen["refusals"], seen["settings"]["password"]) == (1, "********")
        # What was shown can be sent back: it stands for the password that is there.
        put(broker, **seen["settings"])
        broker.wait_state("b", "refused")
        put(broker, **settings | {"password": PASSWORD})
        broker.wait_state("b", "connected")
        told = broker.ask("GET", "/v1/bridges")[1], broker.bridge("b"), broker.get("/v1/statistics")
        shown = broker.command("config", "show").stdout, broker.command("log", "records").stdout
        segments = broker.command("log", "segments").stdout
        assert PASSWORD not in f"{told}{shown}{segments}{broker.log_file.read_text()}"
    finally:
        guarded.kill()


def test_what_a_bridge_does_shows_in_metrics_and_sys(
    remote: BrokerProcess, administered: MakeBroker, client: Connect
) -> None:
    both = carries("orders/#", destination="plant7/{#}")
    settings = bridge("b", remote.port, local_subscriptions=[OUT], remote_subscriptions=[both])
    broker = administered(settings, sys_interval_s=1)
    broker.wait_state("b", "connected")
    reader = client(broker, "reader")
    reader.subscribe("$SYS/broker/connection/#", 0)
    client(broker, "publisher").publish("plant/x", b"1", 1)
    client(remote, "sender").publish("orders/x", b"2", 1)
    shown = {
        'messages{bridge="b",direction="out"}': 1,
        'messages{bridge="b",direction="in"}': 1,
        'acknowledged_messages{bridge="b"}': 1,
        'waiting_messages{bridge="b"}': 0,
        'connections{bridge="b"}': 1,
        'state{bridge="b",state="connected"}': 1,
        'state{bridge="b",state="stopped"}': 0,
    }
    for name, value in shown.items():
        eventually(lambda n=name, v=value: broker.number(f"holdfast_bridge_{n}") == v, name)
    remote.kill()
    name = 'holdfast_bridge_state{bridge="b",state="connected"}'
    eventually(lambda: broker.number(name) == 0, "it is told as away")
    failures = 'holdfast_bridge_failures{{bridge="b",reason="{}"}}'.format
    eventually(lambda: broker.number(failures("unreachable")) > 0, "its attempts are counted")
    assert broker.number(failures("closed")) == 1, "and how the connection ended"
    assert broker.number(failures("refused")) == 0
    told = {(message.topic, bytes(message.payload)) for message in reader.receive_many(2)}
    topic = "$SYS/broker/connection/b/state"
    assert told == {(topic, b"1"), (topic, b"0")}


def test_bridges_are_had_by_the_command_line(
    tmp_path: Path, remote: BrokerProcess, administered: MakeBroker, nowhere: int
) -> None:
    broker = administered()
    where = f"{HOST}:{remote.port}"
    checked = broker.command("bridge", "check", "b", "--address", where, "--out", "plant/#=x/{1}")
    assert checked.returncode == 0, checked.stderr
    assert "accepted                   yes" in checked.stdout
    assert 'warning                    local_subscriptions: the destination "x/{1}"' in (
        checked.stdout
    )
    assert broker.get("/v1/bridges")["bridges"] == []
    fields = tmp_path / "b.toml"
    fields.write_text('password = "secret"\nuser_name = "u"\n')
    arguments = ["--file", str(fields), "--address", where, "--out", "plant/#=site7/{#}"]
    assert broker.command("bridge", "add", "b", *arguments).returncode == 0
    broker.wait_state("b", "connected")
    shown = broker.command("bridge", "show", "b").stdout
    assert 'settings                   password = "********"' in shown
    assert "secret" not in shown
    assert broker.command("bridge", "check", "b").returncode == 0, "as it stands"
    checked = broker.command("bridge", "check", "b", "--out", "plant/#=y/{1}")
    assert 'the destination "y/{1}"' in checked.stdout, "as it stands, but for that"
    checked = broker.command("bridge", "check", "b", "--password-file", str(tmp_path / "none"))
    assert (checked.returncode, "No such file" in checked.stdout) == (1, True), checked
    assert "connected" in broker.command("bridge", "list").stdout.splitlines()[1]
    assert "b" in broker.command("bridge", "watch").stdout
    assert "bridges" in broker.command("top", "--once").stdout
    assert broker.command("bridge", "messages", "b", "--from", "0").stdout.split() == [
        "offset",
        "state",
        "since",
        "reason",
    ]
    assert broker.command("bridge", "stop", "b").returncode == 0
    assert broker.bridge("b")["state"] == "stopped"
    assert broker.command("bridge", "start", "b").returncode == 0
    taken = broker.command("bridge", "add", "b", *arguments)
    assert (taken.returncode, "there is a bridge 'b' already" in taken.stderr) == (1, True)
    assert broker.command("bridge", "add", "b", "--replace", *arguments).returncode == 0
    assert broker.command("bridge", "remove", "b").returncode == 0
    refused = broker.command("bridge", "check", "b", "--address", f"{HOST}:{nowhere}")
    assert "neither local_subscriptions nor remote_subscriptions" in refused.stderr
    away = f"{HOST}:{nowhere}"
    refused = broker.command("bridge", "check", "b", "--address", away, "--in", "a")
    assert (refused.returncode, "accepted                   no" in refused.stdout) == (1, True)


def test_a_wrong_bridge_in_the_file_is_found_before_the_start(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"

    def check(*bridges: dict[str, Any]) -> tuple[int, str]:
        write_configuration(file, bridges)
        command = [HOLDFAST, "config", "check", "--config", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    right = bridge("a", 1883, local_subscriptions=[OUT])
    assert check(right) == (0, "the settings are right\n")
    wrong = bridge("b", 1883, local_subscriptions=[carries("a/#/b")])
    code, said = check(right, wrong)
    assert code == 2
    assert '[[bridge]] 2: local_subscriptions 1: "a/#/b" is no topic filter' in said
    code, said = check(right | {"local_subscriptions": [carries("a/+", destination="x")]})
    assert code == 0
    assert "bridge a: warning: local_subscriptions: the destination" in said


def test_what_a_bridge_has_lost_is_told_and_can_be_driven_again(
    remote: BrokerProcess, administered: MakeBroker, client: Connect
) -> None:
    out = carries("plant/#", excludes=["plant/secret/#"], destination="site7/{#}")
    settings = bridge("b", remote.port, local_subscriptions=[out], queue_limit=2)
    dropped = 'holdfast_bridge_dropped_messages{bridge="b",direction="out",reason="overflow"}'
    broker = administered(settings, bridges_storage="FILE_NATIVE")
    broker.wait_state("b", "connected")
    collector, publisher = client(remote, "collector"), client(broker, "publisher")
    collector.subscribe("site7/#", 2)
    broker.ask("POST", "/v1/bridges/b/stop", {})
    publisher.publish("plant/secret/x", b"no", 1)
    for number in range(5):
        publisher.publish("plant/x", b"%d" % number, 1)
    (queue,) = [row for row in broker.get("/v1/queues")["queues"] if row["kind"] == "bridge"]
    assert (queue["queue_name"], queue["readers"][0]["waiting"]) == ("bridge/b", 5)
    assert broker.get("/v1/queues/bridge%2Fb")["consumers"] == 0
    broker.ask("POST", "/v1/bridges/b/start", {})
    kept = payloads(collector.receive_many(2))
    eventually(lambda: bool(broker.get("/v1/losses")["losses"]), "the loss is on record")
    (loss,) = broker.get("/v1/losses")["losses"]
    assert (loss["client_identifier"], loss["reason"], loss["count"]) == ("b", "overflow", 3)
    assert broker.bridge("b")["lost"] == {"overflow": 3}
    eventually(lambda: broker.number(dropped) == 3, "it is counted")
    found = broker.get("/v1/bridges/b/messages", **{"from": 0})["messages"]
    assert [row["state"] for row in found].count("lost") == 3
    broker.ask("POST", "/v1/bridges/b/stop", {})
    status, driven = broker.ask("POST", f"/v1/losses/{loss['number']}/redrive", {})
    assert (status, driven["client_identifier"]) == (200, "b"), driven
    assert broker.stop() == 0, broker.log()
    broker.start()
    again = payloads(collector.receive_many(3))
    assert sorted([*kept, *again]) == [b"%d" % number for number in range(5)]
    assert collector.all_received() == [], "what is left out is not driven again either"


def test_tables_about_the_broker_have_the_queue_of_a_bridge(
    remote: BrokerProcess, administered: MakeBroker, client: Connect
) -> None:
    broker = administered(bridge("b", remote.port, local_subscriptions=[OUT]))
    broker.wait_state("b", "connected")
    client(broker, "publisher").publish("plant/x", b"1", 1)
    broker.wait_number("b", "acknowledged", 1)
    tables = RemoteTables(f"{HOST}:{broker.http_port}")

    def rows(name: str) -> list[dict[str, Any]]:
        moment = tables.take([name])
        found = list(tables.read(moment.name, name))
        return pa.Table.from_batches(found, SCHEMAS[name]).to_pylist()

    (queue,) = rows("queues")
    assert (queue["queue"], queue["kind"], queue["filters"]) == ("bridge/b", "bridge", ["plant/#"])
    (done,) = rows("acknowledgements")
    assert (done["queue"], done["name"], done["end"]) == ("bridge/b", "b", 1)
    remote.kill()
    broker.wait_state("b", "waiting", "connecting")
    assert rows("deliveries") == []
