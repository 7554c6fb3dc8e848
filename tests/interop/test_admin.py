"""A running broker over its admin interface: what it shows is what clients did, and what it is told
happens to them."""

import base64
import http.client
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from jsonschema import Draft202012Validator

from holdfast.client.http import HttpClient
from holdfast.core.errors import BrokerAbsentError, BrokerRefusedError
from tests.interop.seen import Seen
from tests.interop.wire import Wire
from tests.process import HOST, BrokerProcess

STRANGE = ["a/b", "..", "ü\n\x1b[31m", "%2F", "?&#{}", "x" * 500]
TICK_S = 0.05


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    running = Seen(tmp_path_factory.mktemp("broker"))
    running.start()
    yield running
    assert running.stop() == 0, running.log()


def eventually(holds: Callable[[], bool], what: str) -> None:
    """The view, the sweep and a client that goes take their time."""
    tick = threading.Event()
    for _ in range(1_200):
        if holds():
            return
        tick.wait(TICK_S)
    raise AssertionError(f"never: {what}")


def at_rest(broker: Seen, name: str, topic_filter: str) -> None:
    with Wire(broker.port) as wire:
        wire.connect(name)
        assert wire.subscribe(topic_filter) == [1]
    eventually(lambda: state(broker, name) == "at_rest", f"{name} at rest")


def state(broker: Seen, name: str) -> str:
    status, found = broker.ask("GET", f"/v1/sessions/{quote(name, safe='')}")
    return str(found["state"]) if status == 200 else "none"


def names(broker: Seen, **query: object) -> list[str]:
    return [row["client_identifier"] for row in broker.get("/v1/sessions", **query)["sessions"]]


@pytest.mark.parametrize("name", STRANGE)
def test_any_client_identifier_can_be_looked_at_and_removed(broker: Seen, name: str) -> None:
    path = f"/v1/sessions/{quote(name, safe='')}"
    with Wire(broker.port) as wire:
        wire.connect(name)
        found = broker.get(path)
        assert (found["client_identifier"], found["state"]) == (name, "connected")
        assert found["transport"] == "tcp"
        assert found["protocol_version"] == 5
    assert broker.ask("DELETE", path)[0] == 200
    assert broker.ask("GET", path)[0] == 404
    assert name not in names(broker, search=name)


def test_a_session_at_rest_shows_what_it_keeps(broker: Seen) -> None:
    at_rest(broker, "keeper", "kept/#")
    for number in range(3):
        body = {"topic_name": f"kept/{number}", "payload": "x"}
        assert broker.ask("POST", "/v1/publish", body) == (
            200,
            {"topic_name": f"kept/{number}", "durable": True},
        )
    found = broker.get("/v1/sessions/keeper")
    assert (found["queue_messages"], found["in_flight"]) == (3, 0)
    assert [each["topic_filter"] for each in found["subscriptions"]] == ["kept/#"]
    assert found["expiry_s"] == 3_600
    with Wire(broker.port) as wire:
        assert wire.connect("keeper")["session_present"]
        got = [wire.receive("publish") for _ in range(3)]
        assert broker.get("/v1/sessions/keeper")["in_flight"] == 3
        for packet in got:
            wire.acknowledge("puback", packet["packet_identifier"])
        wire.ping()
        assert broker.get("/v1/sessions/keeper")["queue_messages"] == 0


@pytest.mark.parametrize("path", ["topics", "retained"])
def test_pages_of_topics_miss_none_and_repeat_none(broker: Seen, path: str) -> None:
    wanted = [f"{path}-page/{number}" for number in range(8)]
    for topic_name in wanted:
        body = {"topic_name": topic_name, "payload": "x", "retain": True}
        assert broker.ask("POST", "/v1/publish", body)[0] == 200
    for size in (1, 3, 8, 100):
        found: list[str] = []
        after: dict[str, str] = {}
        while True:
            page = broker.get(f"/v1/{path}", limit=size, filter=f"{path}-page/+", **after)
            found += [row["topic_name"] for row in page[path]]
            if page["next"] is None:
                break
            assert len(page[path]) == size
            after = {"after": page["next"]}
        assert found == wanted


def test_pages_of_sessions_miss_none_and_repeat_none(broker: Seen) -> None:
    wires = [Wire(broker.port) for _ in range(8)]
    wanted = [f"page-{number}" for number in range(8)]
    for number, wire in enumerate(wires):
        # Half of them end with their connection and are in no record.
        wire.connect(wanted[number], session_expiry_interval=0, clean_start=number % 2 == 0)
    for size in (1, 3, 8, 100):
        found: list[str] = []
        after: dict[str, str] = {}
        while True:
            page = broker.get("/v1/sessions", search="page-", limit=size, **after)
            assert len(page["sessions"]) <= size
            found += [row["client_identifier"] for row in page["sessions"]]
            if page["next"] is None:
                break
            after = {"after": page["next"]}
        assert found == wanted
    for wire in wires:
        wire.send("disconnect", reason_code=0)


def test_an_administrator_ends_a_connection_and_says_so(broker: Seen) -> None:
    with Wire(broker.port) as wire:
        wire.connect("expelled")
        assert broker.ask("POST", "/v1/sessions/expelled/disconnect", {})[0] == 200
        assert wire.receive("disconnect")["reason_code"] == 0x98
        assert wire.next_packet() is None
    assert state(broker, "expelled") == "at_rest"
    status, found = broker.ask("POST", "/v1/sessions/expelled/disconnect", {})
    assert (status, found["error"]) == (404, "not_connected")


def test_a_removed_session_is_gone_for_its_client_and_over_a_restart(tmp_path: Path) -> None:
    broker = Seen(tmp_path)
    broker.start()
    at_rest(broker, "removed", "t/#")
    assert broker.ask("DELETE", "/v1/sessions/removed")[0] == 200
    broker.kill()
    broker.start()
    with Wire(broker.port) as wire:
        assert not wire.connect("removed")["session_present"]
    assert broker.stop() == 0


def test_subscriptions_are_found_by_what_they_match(broker: Seen) -> None:
    with Wire(broker.port) as one, Wire(broker.port) as other:
        one.connect("finder-1")
        one.subscribe("find/+/here")
        other.connect("finder-2", clean_start=True, session_expiry_interval=0)
        other.subscribe("find/#")

        def found(**query: object) -> set[tuple[str, str]]:
            rows = broker.get("/v1/subscriptions", **query)["subscriptions"]
            return {(row["client_identifier"], row["topic_filter"]) for row in rows}

        everything = {("finder-1", "find/+/here"), ("finder-2", "find/#")}
        eventually(lambda: found(filter="find/") == everything, "both subscriptions")
        assert found(topic="find/x/here") == everything
        assert found(topic="find/x/there") == {("finder-2", "find/#")}
        assert found(client_identifier="finder-1") == {("finder-1", "find/+/here")}
    assert broker.ask("GET", "/v1/subscriptions?topic=a/%2B")[0] == 400


def test_a_retained_message_is_listed_shown_and_removed(broker: Seen) -> None:
    payload = bytes(range(256))
    body = {
        "topic_name": "plant/or not/ü",
        "payload_base64": base64.b64encode(payload).decode(),
        "retain": True,
        "qos": 2,
        "properties": {"user_property": [["a", "b"]], "content_type": "x/y"},
    }
    assert broker.ask("POST", "/v1/publish", body)[0] == 200
    rows = broker.get("/v1/retained", filter="plant/#")["retained"]
    assert [(row["topic_name"], row["payload_bytes"], row["qos"]) for row in rows] == [
        ("plant/or not/ü", 256, 2)
    ]
    where = f"/v1/retained/message?topic_name={quote('plant/or not/ü')}"
    found = broker.ask("GET", where)[1]
    assert base64.b64decode(found["payload_base64"]) == payload
    assert broker.ask("DELETE", where)[0] == 200
    assert broker.ask("DELETE", where)[0] == 404
    assert broker.ask("GET", where)[0] == 404
    with Wire(broker.port) as wire:
        wire.connect("late", clean_start=True, session_expiry_interval=0)
        wire.subscribe("plant/#")
        wire.ping()
    topics = broker.get("/v1/topics", filter="plant/#")["topics"]
    assert topics == [{"topic_name": "plant/or not/ü", "messages": 2}]


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({}, "topic_name"),
        ({"topic_name": "a/#"}, "wildcard"),
        ({"topic_name": "$SYS/broker/uptime", "payload": "1"}, "begins with $"),
        ({"topic_name": "a", "qos": 3}, "qos must be from 0 to 2"),
        ({"topic_name": "a", "qos": True}, "qos must be of type integer"),
        ({"topic_name": "a", "retian": True}, "unknown member 'retian'"),
        ({"topic_name": "a", "payload": "x", "payload_base64": "eA=="}, "two payloads"),
        ({"topic_name": "a", "payload_base64": "?"}, "not base64"),
        ({"topic_name": "a", "properties": {"user_property": [["a"]]}}, "pair"),
        ({"topic_name": "a", "properties": {"topic_alias": 1}}, "unknown member"),
        ({"topic_name": "a", "payload": "x" * 1_100_000}, "mqtt.maximum_packet_size_bytes"),
        ({"topic_name": "\ud800"}, ""),
        ([], "of type object"),
    ],
)
def test_what_cannot_be_published_is_refused_with_a_reason(
    broker: Seen, body: object, word: str
) -> None:
    status, found = broker.ask("POST", "/v1/publish", body)
    assert status == 400
    assert word in found["detail"]


def test_a_body_must_say_that_it_is_json(broker: Seen) -> None:
    body = {"topic_name": "a"}
    # So that a form of another site cannot publish with the browser of an operator.
    headers = {"Content-Type": "text/plain"}
    assert broker.ask("POST", "/v1/publish", body, **headers)[0] == 415
    assert broker.ask("POST", "/v1/sessions/any/disconnect", {}, **headers)[0] == 415


def test_another_name_for_this_host_is_refused_where_nobody_has_to_show_who_he_is(
    broker: Seen,
) -> None:
    status, found = broker.ask("GET", "/v1/sessions", Host="evil.example:80")
    assert (status, found["error"]) == (403, "forbidden")
    assert broker.ask("GET", "/health/live", Host="evil.example:80")[0] == 200
    for name in ("localhost", "127.0.0.1:1", "[::1]:8080"):
        assert broker.ask("GET", "/v1/sessions", Host=name)[0] == 200


def test_the_length_of_a_queue_at_rest_is_what_its_client_would_get_now(tmp_path: Path) -> None:
    broker = Seen(tmp_path, queue_messages_maximum=3)
    broker.start()
    with Wire(broker.port) as wire:
        wire.connect("away")
        wire.subscribe("reads/#")
        broker.ask("POST", "/v1/publish", {"topic_name": "reads/0"})
        wire.receive("publish")
    eventually(lambda: state(broker, "away") == "at_rest", "away at rest")
    for number in range(1, 6):
        broker.ask("POST", "/v1/publish", {"topic_name": f"reads/{number}"})
    found = broker.get("/v1/sessions/away")
    # One is in flight and takes the place of another.
    assert (found["queue_messages"], found["in_flight"]) == (3, 1)
    assert broker.get("/v1/backlog")["messages"] == 3
    with Wire(broker.port) as wire:
        assert wire.connect("away")["session_present"]
        got = [wire.receive("publish")["topic_name"] for _ in range(3)]
        assert got == ["reads/0", "reads/4", "reads/5"]
        wire.ping()
    assert broker.stop() == 0


def test_losses_are_listed_by_client_and_reason(tmp_path: Path) -> None:
    broker = Seen(tmp_path, queue_messages_maximum=2)
    broker.start()
    at_rest(broker, "loser", "lost/#")
    for number in range(5):
        broker.ask("POST", "/v1/publish", {"topic_name": f"lost/{number}"})
    with Wire(broker.port) as wire:
        wire.connect("loser")
        eventually(lambda: bool(broker.get("/v1/losses")["losses"]), "a row of the ledger")
    [row] = broker.get("/v1/losses", client_identifier="loser", reason="overflow")["losses"]
    assert (row["count"], row["client_identifier"]) == (3, "loser")
    assert broker.get("/v1/losses", reason="slow_reader")["losses"] == []
    status, refused = broker.ask("GET", "/v1/losses?reason=overfow")
    assert (status, "one of overflow, ttl, retention" in refused["detail"]) == (400, True)
    assert broker.get("/v1/losses", since=row["at_us"], until=row["at_us"])["losses"] == []
    assert len(broker.get("/v1/losses", since=row["at_us"])["losses"]) == 1
    assert broker.get("/v1/losses", after=row["number"])["losses"] == []
    assert broker.number('holdfast_messages_lost{reason="overflow"}') == 3
    broker.wait_logged('warning "messages lost" client_identifier=loser reason=overflow')
    assert broker.stop() == 0


def test_users_and_rules_are_asked_for_as_the_document_says(tmp_path: Path) -> None:
    broker = Seen(tmp_path)
    broker.start()
    word = base64.b64encode(b"ada:open sesame").decode()
    as_ada = {"Authorization": f"Basic {word}"}
    ada = {"name": "ada", "password": "open sesame", "administrator": True}
    status, shown = broker.ask("POST", "/v1/users", ada)
    assert (status, shown["administrator"]) == (201, True)
    assert broker.ask("GET", "/v1/users")[0] == 401
    assert broker.ask("POST", "/v1/users", ada, **as_ada)[0] == 409
    gate = {"name": "gate", "proof": "identifier", "client_identifiers": "gate-*", "allow": ["a"]}
    assert broker.ask("POST", "/v1/users", gate, **as_ada)[0] == 201
    assert broker.ask("PUT", "/v1/users/gate", {"messages_per_second": 5}, **as_ada)[0] == 200
    page = broker.ask("GET", "/v1/users?limit=1", **as_ada)[1]
    assert [user["name"] for user in page["users"]] == [page["next"]] == ["ada"]
    rule = {"action": "publish", "topic_filter": "b/#", "allowed": False, "at": 1}
    assert broker.ask("POST", "/v1/rules/gate", rule, **as_ada)[0] == 200
    rules = broker.ask("GET", "/v1/rules/gate", **as_ada)[1]["rules"]
    assert [(each["number"], each["topic_filter"]) for each in rules] == [(1, "b/#"), (2, "a")]
    assert broker.ask("PUT", "/v1/rules/gate", {"rules": rules[1:]}, **as_ada)[0] == 200
    assert broker.ask("DELETE", "/v1/rules/gate/1", **as_ada)[1]["rules"] == []
    assert broker.ask("DELETE", "/v1/rules/gate/1", **as_ada)[0] == 404
    assert broker.ask("GET", "/v1/rules", **as_ada)[1] == {"owners": [], "next": None}
    with Wire(broker.port) as wire:
        wire.connect("gate-7")
        found = broker.ask("GET", "/v1/sessions?user_name=gate", **as_ada)[1]["sessions"]
        assert [(row["client_identifier"], row["user_name"]) for row in found] == [
            ("gate-7", "gate")
        ]
        assert broker.ask("GET", "/v1/sessions?user_name=ada", **as_ada)[1]["sessions"] == []
        assert broker.ask("DELETE", "/v1/users/gate", **as_ada)[0] == 200
        assert broker.ask("GET", "/v1/users/gate", **as_ada)[0] == 404
    assert '"client connected" client_identifier=gate-7 user_name=gate' in broker.log()
    assert broker.stop() == 0


def test_what_waits_for_sessions_at_rest_is_counted_when_asked(broker: Seen) -> None:
    for name, topic_filter in (("waits-1", "waits/#"), ("waits-2", "waits/a"), ("waits-3", "no")):
        at_rest(broker, name, topic_filter)
    for topic in ("waits/a", "waits/b"):
        broker.ask("POST", "/v1/publish", {"topic_name": topic})
    longest: list[tuple[str, int]] = []
    after: dict[str, str] = {}
    while True:
        page = broker.get("/v1/backlog", limit=2, **after)
        longest += [(row["client_identifier"], row["messages"]) for row in page["longest"]]
        assert page["messages"] == sum(row["messages"] for row in page["longest"])
        assert page["behind"] == len(page["longest"]) <= page["sessions"] <= 2
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert {("waits-1", 2), ("waits-2", 1)} <= set(longest)
    assert "waits-3" not in dict(longest)


def test_the_configuration_says_where_each_value_came_from(broker: Seen) -> None:
    settings = broker.get("/v1/configuration")["settings"]
    assert settings["http.port"]["value"] == "0"
    assert settings["http.port"]["origin"] == "HOLDFAST_HTTP_PORT"
    assert settings["log.segment_bytes"] == {
        "value": "64MiB",
        "origin": "default",
        "default": "64MiB",
        "reason": settings["log.segment_bytes"]["reason"],
    }


def test_the_broker_says_what_it_is(broker: Seen) -> None:
    found = broker.get("/v1/broker")
    assert found["durability"] == "fsync"
    assert found["process"] == broker.process_identifier
    assert {"protocol": "mqtt", "address": f"{HOST}:{broker.port}"} in found["listeners"]
    assert {"protocol": "http", "address": f"{HOST}:{broker.http_port}"} in found["listeners"]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/sessions?limit=0",
        "/v1/sessions?limit=1001",
        "/v1/sessions?limit=many",
        "/v1/sessions?limt=1",
        "/v1/sessions?state=asleep",
        "/v1/topics?filter=a/%23/b",
        "/v1/retained?after=x",
        "/v1/retained/message",
        "/v1/losses?since=yesterday",
        "/v1/losses?after=-1",
        "/v1/losses?reason=zzz",
        "/v1/broker?x=1",
    ],
)
def test_a_wrong_parameter_is_refused(broker: Seen, path: str) -> None:
    status, found = broker.ask("GET", path)
    assert (status, found["error"]) == (400, "bad_request")


def test_every_operation_is_in_the_document_with_its_answers(broker: Seen) -> None:
    document = broker.get("/v1/openapi.json")
    assert document["openapi"] == "3.1.0"
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    operations = [
        (path, method, described)
        for path, methods in document["paths"].items()
        for method, described in methods.items()
    ]
    assert len(operations) >= 20
    identifiers = [described["operationId"] for _, _, described in operations]
    assert len(set(identifiers)) == len(identifiers)
    for path, method, described in operations:
        assert described["summary"]
        [done] = {"200", "201"} & set(described["responses"])
        in_path = {each["name"] for each in described["parameters"] if each["in"] == "path"}
        assert in_path == {word.strip("{}") for word in path.split("/") if word.startswith("{")}
        for response in described["responses"].values():
            assert response["description"]
            assert response["content"]
        # It is there: asked for nothing in particular, it answers something documented.
        asked = re.sub(r"\{\w+\}", "nobody", path)
        if "json" in str(described["responses"][done]["content"]):
            broker.ask(method.upper(), asked, {} if "requestBody" in described else None)


def test_the_control_socket_needs_no_listener(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    running = HttpClient.on(broker.data_directory)

    def is_ready() -> bool:
        # MQTT is served a moment earlier.
        try:
            return running.get("/health/ready") == {"status": "ready"}
        except BrokerAbsentError:
            return False

    eventually(is_ready, "the control socket")
    with Wire(broker.port) as wire:
        wire.connect("here")
        assert running.get("/v1/sessions/here")["state"] == "connected"
        running.delete("/v1/sessions/here")
    with pytest.raises(BrokerRefusedError, match="no session has the client identifier"):
        running.get("/v1/sessions/here")
    assert broker.stop() == 0


def test_metrics_are_text_that_prometheus_reads(broker: Seen) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    connection = http.client.HTTPConnection(HOST, broker.http_port, timeout=60)
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["holdfast_commit_seconds"].type == "histogram"
    assert families["holdfast_connections_opened"].type == "counter"
    assert all(family.documentation for family in families.values())
    assert json.dumps(sorted(families))
