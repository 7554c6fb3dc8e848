"""`holdfast serve` and `holdfast log` as an operator meets them: real processes, real signals."""

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

HOLDFAST = Path(sys.executable).with_name("holdfast")
WITHIN_S = 120
LAST_LINE = "messages are kept"

ANY_PORTS = ("--mqtt-port", "0", "--http-port", "0", "--pulsar-port", "0")


class Serving:
    """A broker that has said that it serves."""

    def __init__(self, process: subprocess.Popen[str], said: list[str]) -> None:
        self.process = process
        self.said = said

    def port(self, protocol: str) -> int:
        line = next(line for line in self.said if line.startswith(protocol))
        return int(line.rpartition(":")[2])

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(WITHIN_S)


@contextmanager
def serving(directory: Path, *options: str) -> Iterator[Serving]:
    """A broker in `directory`; killed if it says nothing in time, and at the end."""
    process = subprocess.Popen(
        [HOLDFAST, "serve", *options],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    overdue = threading.Timer(WITHIN_S, process.kill)
    overdue.start()
    try:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line.rstrip("\n"))
            if line.startswith(LAST_LINE):
                break
        overdue.cancel()
        assert said, "the broker ended without a word"
        yield Serving(process, said)
    finally:
        overdue.cancel()
        process.kill()
        process.communicate()


def refusal(directory: Path, *arguments: str) -> tuple[int, str]:
    """The exit code, and what a command that cannot do its work says."""
    ended = subprocess.run(
        [HOLDFAST, *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    sentences = [line for line in ended.stderr.splitlines() if line.startswith("holdfast: ")]
    assert len(sentences) == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.returncode, sentences[0]


def publish(port: int, topic: str, payload: bytes) -> None:
    client = Client(CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", port)
    client.loop_start()
    client.publish(topic, payload, qos=1).wait_for_publish(WITHIN_S)
    client.disconnect()
    client.loop_stop()


def test_a_start_without_settings_says_where_it_listens_and_what_it_keeps(tmp_path: Path) -> None:
    with serving(tmp_path, *ANY_PORTS) as broker:
        said = "\n".join(broker.said)
        assert "MQTT on 127.0.0.1:" in said
        assert "Pulsar on 127.0.0.1:" in said
        assert "at /mqtt, on http://127.0.0.1:" in said
        assert f"data in {tmp_path / 'holdfast-data'}" in said
        assert "messages are kept for 7d, at most " in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path, *ANY_PORTS) as broker:
        publish(broker.port("MQTT"), "zebra/fx/7/reads", b"1")
        assert broker.end(number) == 0
    with serving(tmp_path, *ANY_PORTS) as broker:
        assert broker.end() == 0


def test_a_listener_may_be_off(tmp_path: Path) -> None:
    with serving(tmp_path, *ANY_PORTS, "--http-port", "off") as broker:
        assert not [line for line in broker.said if line.startswith("HTTP")]


def test_weaker_durability_is_said(tmp_path: Path) -> None:
    with serving(tmp_path, *ANY_PORTS, "--log-durability", "os") as broker:
        broker.end()
        assert broker.process.stdout is not None
        assert "does not survive the loss of power" in broker.process.stdout.read()


def test_an_address_that_others_reach_needs_users_or_the_explicit_word(tmp_path: Path) -> None:
    wider = ("serve", "--listen-host", "0.0.0.0", *ANY_PORTS)
    code, sentence = refusal(tmp_path, *wider)
    assert code == 2
    assert "listen.host: 0.0.0.0 can be reached" in sentence
    assert "holdfast user add NAME --data-dir holdfast-data" in sentence
    assert "--access-anonymous" in sentence

    with serving(tmp_path, "--listen-host", "0.0.0.0", "--access-anonymous", *ANY_PORTS) as broker:
        assert broker.end() == 0
    command = [HOLDFAST, "user", "add", "gate", "--certificate"]
    subprocess.run(command, cwd=tmp_path, timeout=WITHIN_S, check=True)
    with serving(tmp_path, "--listen-host", "0.0.0.0", *ANY_PORTS) as broker:
        assert broker.end() == 0


@pytest.mark.parametrize("protocol", ["mqtt", "pulsar", "http"])
def test_a_port_in_use_is_named_and_so_is_its_setting(tmp_path: Path, protocol: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, sentence = refusal(tmp_path, "serve", *ANY_PORTS, f"--{protocol}-port", port)
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}: " in sentence
    assert f"in use; {protocol}.port takes another port, or off" in sentence


def test_a_directory_that_another_broker_holds_is_left_alone(tmp_path: Path) -> None:
    with serving(tmp_path, *ANY_PORTS) as broker:
        code, sentence = refusal(tmp_path, "serve", *ANY_PORTS)
        assert code == 1
        assert f"is held by process {broker.process.pid}" in sentence
        publish(broker.port("MQTT"), "zebra/fx/7/reads", b"1")
        assert broker.end() == 0


def test_a_data_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "holdfast-data").write_text("mine")
    code, sentence = refusal(tmp_path, "serve", *ANY_PORTS)
    assert code == 1
    assert "the data directory holdfast-data cannot be used" in sentence
    assert (tmp_path / "holdfast-data").read_text() == "mine"


def test_a_directory_that_a_newer_version_wrote_is_left_alone(tmp_path: Path) -> None:
    with serving(tmp_path, *ANY_PORTS) as broker:
        publish(broker.port("MQTT"), "zebra/fx/7/reads", b"1")
        assert broker.end() == 0
    log = tmp_path / "holdfast-data" / "log"
    written = (log / "format").read_bytes()
    (log / "format").write_bytes(written.replace(b"holdfast-log 2", b"holdfast-log 3"))
    before = {file.name: file.read_bytes() for file in log.iterdir()}

    code, sentence = refusal(tmp_path, "serve", *ANY_PORTS)
    assert code == 1
    assert "was written by a newer version" in sentence
    assert {file.name: file.read_bytes() for file in log.iterdir()} == before


def test_the_log_can_be_read_beside_the_broker_that_writes_it(tmp_path: Path) -> None:
    def told(*arguments: str) -> str:
        return subprocess.run(
            [HOLDFAST, "log", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=True,
        ).stdout

    with serving(tmp_path, *ANY_PORTS) as broker:
        for number in range(3):
            publish(broker.port("MQTT"), f"zebra/fx/{number}/reads", b"tag %d" % number)
        # An acknowledged message is durable, but a reader beside the broker believes the log's own
        # markers, and the last one travels with what follows; after the end nothing is missing.
        assert json.loads(told("ranges", "--json"))["begin_offset"] == 0
        assert broker.end() == 0

    rows = [json.loads(line) for line in told("records", "--json").splitlines()]
    assert [(row["offset"], row["topic"], row["value"]) for row in rows] == [
        (number, f"zebra/fx/{number}/reads", f"tag {number}") for number in range(3)
    ]
    assert len(told("records", "--filter", "zebra/+/1/reads").splitlines()) == 1
    assert len(told("records", "--topic", "zebra/fx/2/reads").splitlines()) == 1
    assert len(told("records", "--from", "1", "--to", "2").splitlines()) == 1
    assert told("records", "--until", "1h") == ""
    assert len(told("records", "--since", "1h").splitlines()) == 3
    assert "zebra/fx/0/reads" in told("topics")
    assert "offsets 0 to 3" in told("segments")
    assert json.loads(told("verify", "--json")) == []
