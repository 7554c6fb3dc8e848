"""DEVICE and APPLICATION clients of a real broker: who is which, where it shows, and what a session
does whose client comes back as the other."""

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.seen import Seen
from tests.interop.test_admin import eventually, state
from tests.interop.users import WITHIN_S, Users
from tests.interop.wire import Wire

HOLDFAST = Path(sys.executable).with_name("holdfast")
UNKEPT = "holdfast_applications_not_persistent"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    running = Seen(
        tmp_path_factory.mktemp("types"),
        application_client_identifiers="spark*",
        application_user_names="etl",
    )
    running.start()
    yield running
    assert running.stop() == 0, running.log()


def session(broker: Seen, name: str) -> dict[str, Any]:
    return broker.get(f"/v1/sessions/{name}")


@pytest.mark.accepts("S2.31")
def test_a_client_has_the_type_that_its_credential_says(tmp_path: Path) -> None:
    broker = Seen(tmp_path, login_delay_s=0)
    broker.start()
    # Its document is fetched while everybody may.
    broker.get("/v1/sessions")
    users = Users(broker)
    users.add("ada", "ada's", "--administrator", "--allow", "#")
    users.add("etl", "etl's", "--allow", "#", "--client-type", "APPLICATION")
    users.add("gate", "gate's", "--allow", "#")
    word = base64.b64encode(b"ada:ada's").decode()
    as_ada = {"Authorization": f"Basic {word}"}

    def type_of(name: str, user_name: str) -> str:
        with Wire(broker.port) as wire:
            secret = f"{user_name}'s".encode()
            assert wire.connect(name, user_name=user_name, password=secret)["reason_code"] == 0
            status, found = broker.ask("GET", f"/v1/sessions/{name}", **as_ada)
            assert status == 200
            return str(found["client_type"])

    assert type_of("one", "etl") == "APPLICATION"
    assert type_of("two", "gate") == "DEVICE"
    types = {row["name"]: row["client_type"] for row in users.all()}
    assert types == {"ada": "DEVICE", "etl": "APPLICATION", "gate": "DEVICE"}
    assert json.loads(users("show", "etl", "--json"))["client_type"] == "APPLICATION"
    users("set", "gate", "--client-type", "APPLICATION")
    assert type_of("two", "gate") == "APPLICATION"
    body = {"client_type": "DEVICE"}
    assert broker.ask("PUT", "/v1/users/gate", body, **as_ada)[1]["client_type"] == "DEVICE"
    assert type_of("two", "gate") == "DEVICE"
    wrong = {"client_type": "application"}
    status, refused = broker.ask("PUT", "/v1/users/gate", wrong, **as_ada)
    assert (status, "DEVICE or APPLICATION is" in refused["detail"]) == (400, True)
    assert users.run("set", "gate")[0] != 0
    assert broker.stop() == 0


def test_a_rule_makes_clients_without_credentials_applications(broker: Seen) -> None:
    for name, user_name, expected in (
        ("spark1", None, "APPLICATION"),
        ("another", "etl", "APPLICATION"),
        ("reader", None, "DEVICE"),
    ):
        with Wire(broker.port) as wire:
            wire.connect(name, user_name=user_name)
            assert session(broker, name)["client_type"] == expected
    rows = broker.get("/v1/sessions", search="spark1")["sessions"]
    assert [row["client_type"] for row in rows] == ["APPLICATION"]


@pytest.mark.accepts("S2.37")
def test_an_application_without_a_persistent_session_works_and_warns(broker: Seen) -> None:
    before = broker.number(UNKEPT)
    with Wire(broker.port) as wire:
        wire.connect("sparkUnkept", clean_start=True, session_expiry_interval=0)
        assert wire.subscribe("unkept") == [1]
        broker.ask("POST", "/v1/publish", {"topic_name": "unkept", "payload": "x"})
        assert wire.receive("publish")["payload"] == b"x"
        assert "without a persistent session" in session(broker, "sparkUnkept")["warning"]
    assert broker.number(UNKEPT) == before + 1
    words = 'warning "APPLICATION client without a persistent session"'
    assert f"{words} client_identifier=sparkUnkept" in broker.log_file.read_text()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sparkKept", {}),
        ("deviceUnkept", {"clean_start": True, "session_expiry_interval": 0}),
    ],
)
def test_nobody_else_is_warned_about(broker: Seen, name: str, options: dict[str, Any]) -> None:
    before = broker.number(UNKEPT)
    with Wire(broker.port) as wire:
        wire.connect(name, **options)
        assert session(broker, name)["warning"] is None
    assert broker.number(UNKEPT) == before


def test_a_session_whose_client_comes_back_as_another_type_goes_on(broker: Seen) -> None:
    for user_name, client_type in ((None, "DEVICE"), ("etl", "APPLICATION"), (None, "DEVICE")):
        with Wire(broker.port) as wire:
            present = wire.connect("changes", user_name=user_name)["session_present"]
            if not present:
                wire.subscribe("changes")
            else:
                packet = wire.receive("publish")
                assert packet["payload"] == b"kept"
                wire.acknowledge("puback", packet["packet_identifier"])
                wire.ping()
            assert session(broker, "changes")["client_type"] == client_type
        eventually(lambda: state(broker, "changes") == "at_rest", "it is away")
        broker.ask("POST", "/v1/publish", {"topic_name": "changes", "payload": "kept"})
    words = 'warning "client type changed" client_identifier=changes was=DEVICE is=APPLICATION'
    assert words in broker.log_file.read_text()


def test_session_list_shows_the_type(broker: Seen) -> None:
    with Wire(broker.port) as wire:
        wire.connect("sparkListed")
        command = [str(HOLDFAST), "session", "list", "--search", "sparkListed"]
        done = subprocess.run(
            [*command, "--data-dir", str(broker.data_directory)],
            capture_output=True, text=True, timeout=WITHIN_S, check=True,
        )  # fmt: skip
    heading, row = done.stdout.splitlines()
    assert row.split()[heading.split().index("client_type")] == "APPLICATION"
