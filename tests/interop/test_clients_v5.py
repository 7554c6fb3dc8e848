"""Clients and subscriptions as EMQX's tools ask for them: over TLS, with a user name and a
password, in its words."""

import contextlib
import http.client
import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from tests.builders.certificates import Authority
from tests.interop.seen import Seen
from tests.interop.test_admin import eventually
from tests.interop.users import Users
from tests.interop.wire import Wire
from tests.process import HOST

ADMINISTRATOR = ("admin", "the password")
READS = "zebra/fx/+/reads"
PROD, DEV = "azure-prod", "azure-dev"
DEV_POD = "bbu-processor-azure-dev-pod-1"


class SecureBroker(Seen):
    """A broker that is asked over TLS by an administrator; its answers fit its own document."""

    def __init__(self, directory: Path, authority: Authority) -> None:
        certificate, key = authority.server("server")
        self._context = authority.trusting()
        super().__init__(
            directory,
            http_tls_port=0,
            tls_certificate=certificate,
            tls_key=key,
            queue_messages_maximum=7,
        )

    def ask(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, dict[str, Any]]:
        if not self._document and path != "/v1/openapi.json":
            self._document = self.ask("GET", "/v1/openapi.json")[1]
        port = self.ports["https"]
        connection = http.client.HTTPSConnection(HOST, port, timeout=60, context=self._context)
        given = headers or {"Authorization": basic(*ADMINISTRATOR)}
        with contextlib.closing(connection):
            connection.request(method, path, None, given)
            answer = connection.getresponse()
            found = json.loads(answer.read())
        if self._document:
            self._hold_to_document(method, path, answer.status, found)
        return answer.status, found


def basic(user_name: str, password: str) -> str:
    return "Basic " + b64encode(f"{user_name}:{password}".encode()).decode()


def connect(broker: Seen, name: str, **properties: Any) -> Wire:
    wire = Wire(broker.port)
    wire.connect(name, user_name="admin", password=b"the password", **properties)
    return wire


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """Three processors of two environments are connected, one has been, and so is a sensor that
    leaves nothing behind."""
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    running = SecureBroker(tmp_path_factory.mktemp("broker"), authority)
    Users(running).add(*ADMINISTRATOR, "--administrator", "--allow", "#")
    running.start()
    with contextlib.ExitStack() as wires:
        for pod, environment in (("pod-1", PROD), ("pod-2", PROD), ("pod-1", DEV)):
            name = f"bbu-processor-{environment}-{pod}"
            wire = connect(running, name, session_expiry_interval=3_600, receive_maximum=20)
            wires.enter_context(wire)
            wire.subscribe(f"$share/bbu-processors-{environment}/{READS}", 2)
        with connect(running, "gone", session_expiry_interval=60) as wire:
            wire.subscribe("zebra/#", 1)
            wire.publish("zebra/fx/7/reads", b"read", qos=1, identifier=1)
            wire.receive("puback")
            wire.send("disconnect", reason_code=0)
        sensor = wires.enter_context(
            connect(running, "sensor", clean_start=True, session_expiry_interval=0)
        )
        sensor.subscribe("commands/sensor", 0)
        # What nobody waits for is durable, and listed, within a second.
        path = "/api/v5/clients"
        eventually(lambda: names(running.get(path, conn_state="disconnected")) == ["gone"], "gone")
        yield running
    assert running.stop() == 0, running.log()


def names(page: dict[str, Any]) -> list[str]:
    return [row["clientid"] for row in page["data"]]


@pytest.mark.accepts("S3.55")
def test_clients_are_listed_over_tls_for_whoever_says_who_they_are(broker: SecureBroker) -> None:
    found = broker.get("/api/v5/clients")
    assert names(found) == [
        DEV_POD,
        f"bbu-processor-{PROD}-pod-1",
        f"bbu-processor-{PROD}-pod-2",
        "gone",
        "sensor",
    ]
    assert found["meta"] == {"page": 1, "limit": 100, "count": 5, "hasnext": False}
    for wrong in ({"Accept": "*/*"}, {"Authorization": basic("admin", "guessed")}):
        status, refused = broker.ask("GET", "/api/v5/clients", **wrong)
        assert (status, refused["code"]) == (401, "BAD_API_KEY_OR_SECRET")


@pytest.mark.accepts("S3.56", "S3.58")
def test_one_client_is_shown_in_the_words_of_emqx(broker: SecureBroker) -> None:
    found = broker.get(f"/api/v5/clients/bbu-processor-{PROD}-pod-1")
    assert (found["clean_start"], found["session_expiry_interval"]) == (False, 3_600)
    expected = {
        "username": "admin",
        "connected": True,
        "expiry_interval": 3_600,
        "ip_address": HOST,
        "keepalive": 60,
        "proto_name": "MQTT",
        "proto_ver": 5,
        "is_expired": False,
        "subscriptions_cnt": 1,
        "inflight_max": 20,
        "mqueue_max": 7,
    }
    assert found | expected == found
    assert found["port"] > 0
    assert found["created_at"].endswith("+00:00")
    # A connection is opened before its client has shown who it is, and has a session.
    assert found["connected_at"] <= found["created_at"]
    assert "disconnected_at" not in found
    away = broker.get("/api/v5/clients/gone")
    assert (away["connected"], away["inflight_cnt"], away["expiry_interval"]) == (False, 1, 60)
    assert away["disconnected_at"] >= away["created_at"]
    assert "ip_address" not in away
    status, missing = broker.ask("GET", "/api/v5/clients/nobody")
    assert (status, missing["code"]) == (404, "CLIENTID_NOT_FOUND")


@pytest.mark.accepts("S3.57")
def test_subscriptions_show_the_groups_of_each_environment(broker: SecureBroker) -> None:
    found = broker.get("/api/v5/subscriptions")
    topics = {row["clientid"]: row["topic"] for row in found["data"]}
    assert topics == {
        DEV_POD: f"$share/bbu-processors-{DEV}/{READS}",
        f"bbu-processor-{PROD}-pod-1": f"$share/bbu-processors-{PROD}/{READS}",
        f"bbu-processor-{PROD}-pod-2": f"$share/bbu-processors-{PROD}/{READS}",
        "gone": "zebra/#",
        "sensor": "commands/sensor",
    }
    first = found["data"][0]
    assert first | {"qos": 2, "nl": 0, "rap": 0, "rh": 0, "durable": True} == first
    prod = broker.get("/api/v5/subscriptions", share_group=f"bbu-processors-{PROD}")
    assert prod["meta"]["count"] == 2
    own = broker.ask("GET", f"/api/v5/clients/{DEV_POD}/subscriptions")
    assert own == (200, [first])
    assert broker.ask("GET", "/api/v5/clients/nobody/subscriptions")[0] == 404


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"clientid": "gone"}, ["gone"]),
        ({"like_clientid": "-pod-2"}, [f"bbu-processor-{PROD}-pod-2"]),
        ({"like_clientid": "sens"}, ["sensor"]),
        ({"username": "admin", "conn_state": "disconnected"}, ["gone"]),
        ({"username": "nobody"}, []),
        ({"like_username": "adm", "clean_start": "true"}, ["sensor"]),
        ({"ip_address": HOST, "like_clientid": "-pod-2"}, [f"bbu-processor-{PROD}-pod-2"]),
        ({"ip_address": "192.0.2.1"}, []),
        ({"proto_ver": 4}, []),
        ({"conn_state": "idle"}, []),
        ({"gte_created_at": "2100-01-01T00:00:00Z"}, []),
        ({"lte_connected_at": 1_000}, []),
        ({"lte_created_at": "2100-01-01T00:00:00Z", "clientid": "sensor"}, ["sensor"]),
    ],
)
def test_clients_are_searched(
    broker: SecureBroker, query: dict[str, Any], expected: list[str]
) -> None:
    found = broker.get("/api/v5/clients", **query)
    assert names(found) == expected
    assert found["meta"]["count"] == len(expected)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"clientid": "sensor"}, ["sensor"]),
        ({"topic": "zebra/#"}, ["gone"]),
        (
            {"topic": READS, "clientid": DEV_POD},
            [DEV_POD],
        ),
        ({"match_topic": "zebra/#", "qos": 1}, ["gone"]),
        ({"match_topic": "commands/+"}, ["sensor"]),
        ({"qos": 0}, ["sensor"]),
        ({"share_group": "bbu-processors"}, []),
    ],
)
def test_subscriptions_are_searched(
    broker: SecureBroker, query: dict[str, Any], expected: list[str]
) -> None:
    assert names(broker.get("/api/v5/subscriptions", **query)) == expected


@pytest.mark.parametrize("path", ["/api/v5/clients", "/api/v5/subscriptions"])
def test_pages_follow_one_another_over_those_on_record_and_those_that_are_not(
    broker: SecureBroker, path: str
) -> None:
    found, metas = [], []
    for page in range(1, 4):
        answer = broker.get(path, page=page, limit=2)
        found += names(answer)
        metas.append(answer["meta"])
    assert found == names(broker.get(path))
    assert [meta["hasnext"] for meta in metas] == [True, True, False]
    assert metas[-1] == {"page": 3, "limit": 2, "count": 5, "hasnext": False}
    # Clients are counted all the time; to count subscriptions all of them would have to be read.
    assert metas[0].get("count") == (5 if path.endswith("clients") else None)
    assert broker.get(path, page=9, limit=2)["data"] == []
    assert names(broker.get(path, page=5, limit=1)) == ["sensor"]


def test_what_cannot_be_asked_is_refused_in_the_words_of_emqx(broker: SecureBroker) -> None:
    for path, query, code in (
        ("clients", {"limit": 0}, "BAD_REQUEST"),
        ("clients", {"clean_start": "perhaps"}, "BAD_REQUEST"),
        ("clients", {"proto_ver": 6}, "BAD_REQUEST"),
        ("clients", {"gte_created_at": "yesterday"}, "BAD_REQUEST"),
        ("subscriptions", {"match_topic": "a/#/b"}, "INVALID_PARAMETER"),
        ("subscriptions", {"unknown": "1"}, "BAD_REQUEST"),
    ):
        status, refused = broker.ask("GET", f"/api/v5/{path}?{urlencode(query)}")
        assert (status, refused["code"]) == (400, code)
    assert broker.ask("GET", f"/api/v5/{quote('nothing')}")[1]["code"] == "NOT_FOUND"


def test_who_is_not_let_in_makes_no_environment_known(broker: SecureBroker) -> None:
    said = [("holdfast-environment", "made-up")]
    with Wire(broker.port) as wire:
        wire.connect("stranger", user_name="admin", password=b"guessed", user_property=said)
    with connect(broker, "friend", clean_start=True, user_property=[(said[0][0], "real")]):
        found = [row["name"] for row in broker.get("/v1/environments")["environments"]]
    assert found == ["real"]
