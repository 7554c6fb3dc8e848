"""`holdfast verify disconnect` beside a real broker and a real processor: what it says is so."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.client.http import HttpClient
from tests.interop.test_admin import eventually
from tests.process import HOST, BrokerProcess


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    running = BrokerProcess(tmp_path)
    running.start()
    yield running
    assert running.stop() == 0, running.log()


def configured(broker: BrokerProcess, folder: Path, **changes: Any) -> Path:
    """The configuration of the built-in processor."""
    one = {
        "BrokerHost": HOST,
        "BrokerPort": broker.port,
        "UseTls": False,
        "ClientId": "bbu-processor",
        "SubscribeTopics": ["zebra/fx/+/reads", "zebra/fx/+/events"],
        "SharedSubscriptionGroup": "bbu-processors",
        "EnvironmentId": "qa",
        "Sink": f"sqlite:///{folder / 'reads.db'}",
        **changes,
    }
    file = folder / "appsettings.json"
    file.write_text(json.dumps({"Mqtt": {"ZebraRfid": one}}))
    return file


def play(
    broker: BrokerProcess, folder: Path, capsys: pytest.CaptureFixture[str], **changes: Any
) -> tuple[int, dict[str, Any]]:
    """Plays it with the built-in processor; returns the exit code and the verdict."""
    file = configured(broker, folder, **changes)
    asked = ["verify", "disconnect", str(file), "ZebraRfid", "--reads", "10", "--away", "0.5"]
    capsys.readouterr()
    code = main([*asked, "--within", "60" if not changes else "15", "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.accepts("S3.59")
def test_every_read_of_the_time_away_is_in_the_table_close_together(
    broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, verdict = play(broker, tmp_path, capsys)
    assert code == 0, verdict
    assert verdict["published"] == 10
    assert verdict["missing"] == verdict["twice"] == []
    assert verdict["event_span_s"] > 0.3
    assert verdict["is_good"]


def test_a_processor_that_keeps_no_session_fails_it(
    broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forgetful = {"CleanSession": True, "SessionExpiryIntervalSeconds": 0}
    code, verdict = play(broker, tmp_path, capsys, SharedSubscriptionGroup=None, **forgetful)
    assert code == 1
    assert verdict["missing"] == list(range(1, 11))


def is_publishing(broker: BrokerProcess) -> bool:
    """True while the command is connected to the broker."""
    found = HttpClient.on(broker.data_directory).get("/v1/sessions")["sessions"]
    return any(row["client_identifier"].startswith("holdfast-verify-") for row in found)


def test_it_ends_where_the_broker_goes_away_before_it_has_every_read(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    file = configured(broker, tmp_path)
    command = [sys.executable, "-m", "holdfast", "verify", "disconnect", str(file), "ZebraRfid"]
    with subprocess.Popen([*command, "--away", "3"], stderr=subprocess.PIPE, text=True) as playing:
        assert playing.stderr is not None
        assert any("published over" in line for line in playing.stderr)
        eventually(lambda: is_publishing(broker), "the command publishes")
        broker.kill()
        said = playing.stderr.read()
        assert playing.wait(30) == 1
    assert "the broker was gone before it had taken every read" in said
