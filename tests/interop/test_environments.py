"""Environments of a running broker as an operator sees them: over HTTP, in the metrics, with
`holdfast environment` and `holdfast top`."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.interop.seen import Seen
from tests.interop.test_admin import eventually
from tests.interop.wire import Wire

HOLDFAST = Path(sys.executable).with_name("holdfast")
WITHIN_S = 120.0
READS = "zebra/fx/+/reads"
MIXED = f"$share/bbu-processors/{READS}"
PROD = f"$share/bbu-processors-azure-prod/{READS}"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    running = Seen(
        tmp_path_factory.mktemp("environments"),
        environments_names="azure-prod",
        application_client_identifiers="app7",
    )
    running.start()
    yield running
    assert running.stop() == 0, running.log()


def command(broker: Seen, *words: str) -> str:
    done = subprocess.run(
        [HOLDFAST, *words, "--data-dir", str(broker.data_directory)],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def publish(broker: Seen, count: int) -> None:
    with Wire(broker.port) as wire:
        wire.connect("reader", clean_start=True, session_expiry_interval=0)
        for number in range(1, count + 1):
            wire.publish("zebra/fx/7/reads", b"%d" % number, qos=1, identifier=number)
            wire.receive("puback")


def environments(broker: Seen) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in broker.get("/v1/environments")["environments"]}


@pytest.mark.accepts("S3.7", "S3.65")
def test_who_takes_the_messages_of_another_environment_is_shown_everywhere(broker: Seen) -> None:
    with ExitStack() as wires:
        for name, environment, group in (
            ("bbu-azure-prod-1", None, MIXED),
            ("bbu-azure-prod-2", None, PROD),
            ("laptop", "local-daves-macbook", MIXED),
        ):
            wire = wires.enter_context(Wire(broker.port))
            told = [("holdfast-environment", environment)]
            said = {} if environment is None else {"user_property": told}
            wire.connect(name, **said)
            wire.subscribe(group, 1)
        publish(broker, 20)
        eventually(lambda: bool(broker.get("/v1/environments")["thefts"]), "the theft is found")
        eventually(lambda: environments(broker)["azure-prod"]["groups"] == 2, "groups are counted")
        page = broker.get("/v1/environments")
        (theft,) = page["thefts"]
        assert (theft["group"], theft["environment"]) == (MIXED, "azure-prod")
        shares = {taker["environment"]: taker["share"] for taker in theft["takers"]}
        assert shares == {"azure-prod": 0.5, "local-daves-macbook": 0.5}
        assert (theft["until_us"], theft["taken"]) == (None, 10)
        prod = environments(broker)["azure-prod"]
        assert (prod["clients"], prod["in_flight"], prod["thefts"]) == (2, 40, 1)
        shown = broker.get("/v1/environments/local-daves-macbook")
        assert (shown["clients"], shown["its_groups"]) == (1, [])
        assert shown["its_thefts"] == [theft]
        assert broker.ask("GET", "/v1/environments/nowhere")[0] == 404

        for group in (MIXED, PROD):
            labels = f'{{group="{group}",environment="azure-prod"}}'
            assert broker.number(f"holdfast_group_in_flight_messages{labels}") == 20
        labels = '{environment="azure-prod",by="local-daves-macbook"}'
        assert broker.number(f"holdfast_environment_taken_messages{labels}") == 10
        assert broker.number('holdfast_environment_clients{environment="azure-prod"}') == 2
        assert broker.number("holdfast_environment_thefts_found") == 1

        listed = command(broker, "environment", "list")
        assert "local-daves-macbook takes 50% of the messages of azure-prod; 10 so far" in listed
        assert PROD in command(broker, "environment", "show", "azure-prod")
        assert '"its_groups": [' in command(broker, "environment", "show", "azure-prod", "--json")
        top = command(broker, "top", "--once")
        assert "local-daves-macbook takes 50% of the messages of azure-prod" in top
        assert "group is used by several environments" in broker.log()

        group = broker.get("/v1/groups")["groups"][0]
        assert (group["group"], group["environment"]) == (PROD, "azure-prod")
        sessions = {row["client_identifier"]: row for row in broker.get("/v1/sessions")["sessions"]}
        assert sessions["laptop"]["environment"] == "local-daves-macbook"
        assert sessions["bbu-azure-prod-1"]["environment"] == "azure-prod"
        longest = broker.get("/v1/backlog/longest")["queues"]
        assert {row["client_identifier"]: row["environment"] for row in longest} == {
            MIXED: "azure-prod",
            PROD: "azure-prod",
        }
        assert "local-daves-macbook" in command(broker, "session", "list")
        own = wires.enter_context(Wire(broker.port))
        own.connect("app7", user_property=[("holdfast-environment", "azure-qa")])
        own.subscribe("other/#", 1)
        assert broker.get("/v1/queues/tbmq.msg.app.app7")["environment"] == "azure-qa"
        client = broker.get("/api/v5/clients/laptop")
        assert client["environment"] == "local-daves-macbook"


def test_a_new_environment_begins_where_another_one_was(broker: Seen) -> None:
    group = f"$share/late-azure-prod/{READS}"
    with Wire(broker.port) as wire:
        wire.connect("late-azure-prod-1")
        wire.subscribe(group, 1)
        wire.send("disconnect", reason_code=0)
    publish(broker, 5)
    made = command(broker, "environment", "fork", "late-azure-qa", "--from", group)
    assert f"$share/late-azure-qa/{READS} begins at offset" in made
    assert " with 5\n" in made
    since = ["--at", "1999-12-05T10:00:00Z"]
    all_of_it = command(broker, "environment", "fork", "a-qa", "--from", group, *since, "--json")
    assert '"messages": 5' in all_of_it, "the group itself has had nothing before"
    path = f"/v1/groups/{quote(group, safe='')}/fork"
    for body, status, error in (
        ({"share_name": "late-azure-qa"}, 409, "name_taken"),
        ({"share_name": "a/b"}, 409, "wrong_name"),
        ({"share_name": 7}, 400, "bad_request"),
    ):
        answered, refused = broker.ask("POST", path, body)
        assert (answered, refused["error"]) == (status, error)
    unknown = f"/v1/groups/{quote('$share/none/x', safe='')}/fork"
    assert broker.ask("POST", unknown, {"share_name": "a"})[0] == 404
    wrong = subprocess.run(
        [HOLDFAST, "environment", "fork", "x", "--from", group, "--at", "yesterday"],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert (wrong.returncode, "is neither a time" in wrong.stderr) == (2, True)
    with Wire(broker.port) as wire:
        wire.connect("late-azure-qa-1")
        wanted = {"topic_filter": f"$share/late-azure-qa/{READS}", "qos": 1}
        terms = {"no_local": False, "retain_as_published": False, "retain_handling": 0}
        wire.send("subscribe", packet_identifier=1, subscriptions=[wanted | terms])
        packets = [wire.next_packet() for _ in range(6)]
    # What waits may come before the answer to SUBSCRIBE.
    got = [packet[1]["payload"] for packet in packets if packet and packet[0] == "publish"]
    assert got == [b"1", b"2", b"3", b"4", b"5"]
