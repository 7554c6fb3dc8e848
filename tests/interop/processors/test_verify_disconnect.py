"""`holdfast verify disconnect` beside a real broker and a real processor: what it says is so."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from tests.process import HOST, BrokerProcess


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    running = BrokerProcess(tmp_path)
    running.start()
    yield running
    assert running.stop() == 0, running.log()


def play(
    broker: BrokerProcess, folder: Path, capsys: pytest.CaptureFixture[str], **changes: Any
) -> tuple[int, dict[str, Any]]:
    """Plays it with the built-in processor; returns the exit code and the verdict."""
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
