"""`holdfast verify isolation` against running brokers."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client.http import HttpClient
from holdfast.client.isolation import Got
from tests.builders.certificates import Authority
from tests.interop.test_admin import eventually
from tests.interop.users import Users
from tests.process import HOST, BrokerProcess

HOLDFAST = Path(sys.executable).with_name("holdfast")
WITHIN_S = 240.0
WHO = "verifier:the%20password"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[BrokerProcess]:
    certificate, key = authority.server("server")
    running = BrokerProcess(
        tmp_path_factory.mktemp("broker"),
        mqtt_tls_port=0,
        tls_certificate=certificate,
        tls_key=key,
    )
    Users(running).add("verifier", "the password", "--allow", "#")
    running.start()
    yield running
    assert running.stop() == 0, running.log()


def verify(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [HOLDFAST, "verify", "isolation", *arguments],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.accepts("S3.1", "S3.2", "S3.3", "S3.4", "S3.5", "S3.6", "S3.7")
def test_environments_are_shown_in_numbers_over_tls(
    broker: BrokerProcess, authority: Authority
) -> None:
    address = f"mqtts://{WHO}@{HOST}:{broker.ports['mqtts']}"
    code, printed = verify(address, "--ca", str(authority.file), "--messages", "120")
    assert code == 0, printed
    for line in (
        "prod        120 of 120  pods: 33%  33%  33%",
        "dev         120 of 120  pods: 50%  50%",
        "laptop      120 of 120  pods: 100%",
        "prod        120 of 120  pods: 25%  25%  25%  25%",
        "mixed       120 of 120  pods: 25%  25%  25%  25%",
    ):
        assert line in printed
    assert "ok: each environment got everything, once" in printed
    code, printed = verify(f"mqtt://{WHO}@{HOST}:{broker.port}", "--json", "--messages", "60")
    acts = [json.loads(line) for line in printed.splitlines()]
    assert code == 0
    assert [act["behaviours"][-1] for act in acts] == ["S3.6", "S3.5", "S3.4", "S3.7"]
    assert acts[0]["environments"][2]["by_pod"] == [60]


def test_it_leaves_nothing(broker: BrokerProcess) -> None:
    assert verify(f"mqtt://{WHO}@{HOST}:{broker.port}", "--messages", "60")[0] == 0
    ask = HttpClient.on(broker.data_directory)
    eventually(lambda: not ask.get("/v1/sessions")["sessions"], "no session is left")
    assert ask.get("/v1/groups")["groups"] == []
    assert ask.get("/v1/losses")["losses"] == []


def test_a_broker_that_refuses_one_group_for_all_is_told(tmp_path: Path) -> None:
    strict = BrokerProcess(
        tmp_path,
        environments_groups_without_environment="refuse",
        environments_names="prod,dev,laptop",
    )
    strict.start()
    code, printed = verify(f"mqtt://{HOST}:{strict.port}", "--messages", "6")
    assert strict.stop() == 0, strict.log()
    assert (code, "One group for all is refused" in printed) == (0, True)


def test_what_cannot_be_asked_or_reached_is_one_sentence(broker: BrokerProcess) -> None:
    assert verify("http://localhost") == (
        2,
        "holdfast: expected the broker's address as mqtts://USER@HOST:PORT\n",
    )
    assert verify(f"mqtt://{HOST}:{broker.port}", "--messages", "0")[0] == 2
    code, printed = verify(f"mqtts://{HOST}:{broker.ports['mqtts']}")
    assert (code, printed.count("\n")) == (1, 1), "nobody knows its authority here"


def test_what_is_missing_or_came_twice_is_counted() -> None:
    got = Got("prod", 4, ((0, 1), (1, 2)))
    assert (got.missing, got.repeated, got.shares) == (1, 1, (0.5, 0.5))
