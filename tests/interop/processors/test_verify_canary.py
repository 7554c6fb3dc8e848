"""`holdfast verify canary` against a running broker, as an operator starts it."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

from holdfast import system
from holdfast.client.mqtt import Client, ClientOptions, Delivery
from tests.builders.certificates import Authority
from tests.interop.bridge.test_mosquitto import MakeMosquitto, make_mosquitto
from tests.interop.test_tls import TlsBroker
from tests.ports import HeldPort
from tests.process import HOST, BrokerProcess

HOLDFAST = Path(sys.executable).with_name("holdfast")
WITHIN_S = 60.0
ASK_EVERY_S = 0.05

__all__ = ["make_mosquitto"]


class Listener(Client):
    """Waits for the first message that is wanted."""

    def __init__(self, wanted: Callable[[Delivery], bool]) -> None:
        super().__init__("listener", ClientOptions(clean_start=True))
        self._wanted = wanted
        self.first: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()

    def received(self, delivery: Delivery) -> None:
        if not self.first.done() and self._wanted(delivery):
            self.first.set_result(delivery)
        self.acknowledge(delivery)


def started(folder: Path, port: int, *arguments: str, **keys: object) -> "subprocess.Popen[str]":
    processor = {"BrokerHost": HOST, "BrokerPort": port, "UseTls": False, "EnvironmentId": "qa"}
    processor |= keys
    file = folder / "appsettings.json"
    file.write_text(json.dumps({"Mqtt": {"ZebraRfid": processor}}))
    times = ("--every", "1", "--away", "0.2", "--reads", "20")
    return subprocess.Popen(
        [HOLDFAST, "verify", "canary", str(file), *times, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def numbers(port: int) -> dict[str, float]:
    """The canary's metrics by name, none before it serves them."""
    try:
        with urlopen(f"http://{HOST}:{port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return {}
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name.removesuffix('{environment="qa"}'): float(value) for name, value in pairs}


def after_rounds(running: "subprocess.Popen[str]", port: int, rounds: int) -> dict[str, float]:
    began_s = system.monotonic_s()
    while numbers(port).get("holdfast_canary_rounds_total", 0) < rounds:
        assert system.monotonic_s() - began_s < WITHIN_S
        try:
            running.wait(ASK_EVERY_S)
        except subprocess.TimeoutExpired:
            continue
        raise AssertionError(running.communicate()[0])
    return numbers(port)


async def retained(port: int) -> tuple[Delivery, bool]:
    """The retained result, and whether there is a session of the canary."""
    found = await heard(port, "holdfast-canary/qa/result", lambda _delivery: True)
    return found, await has_session(port)


async def heard(port: int, topic: str, wanted: Callable[[Delivery], bool]) -> Delivery:
    """The first message on a topic that is wanted."""
    listener = Listener(wanted)
    await listener.connect(HOST, port)
    await listener.subscribe(topic, 1)
    async with asyncio.timeout(WITHIN_S):
        found = await listener.first
    listener.disconnect()
    return found


async def has_session(port: int) -> bool:
    """Whether there is a session of the canary; there is none afterwards."""
    looking = Client("holdfast-canary-qa", ClientOptions(session_expiry_interval_s=0))
    present = await looking.connect(HOST, port)
    looking.disconnect()
    return present


def test_rounds_are_seen_as_metrics_and_retained_and_leave_no_session(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    health = HeldPort()
    running = started(tmp_path, broker.port, "--metrics-port", str(health.number))
    try:
        found = after_rounds(running, health.number, 2)
        running.send_signal(signal.SIGTERM)
        printed, _ = running.communicate(timeout=WITHIN_S)
    finally:
        running.kill()
    assert running.returncode == 0, printed
    assert found["holdfast_canary_lost_messages_total"] == 0
    assert found["holdfast_canary_doubled_messages_total"] == 0
    assert found["holdfast_canary_red"] == 0
    assert found["holdfast_canary_catch_up_seconds"] > 0
    assert found["holdfast_canary_last_round_timestamp_seconds"] > 0
    assert "canary: the round is green" in printed
    result, present = asyncio.run(retained(broker.port))
    told = json.loads(result.payload)
    assert result.retain
    assert (told["environment"], told["red"], told["reads"], told["lost"]) == ("qa", False, 20, 0)
    assert not present
    assert broker.stop() == 0, broker.log()


def test_it_ends_after_its_rounds_and_says_whether_any_was_red(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    green = started(tmp_path, broker.port, "--rounds", "2")
    printed, _ = green.communicate(timeout=WITHIN_S)
    assert (green.returncode, printed.count("the round is green")) == (0, 2), printed
    assert broker.stop() == 0, broker.log()
    red = started(tmp_path, HeldPort().number, "--rounds", "1")
    printed, _ = red.communicate(timeout=WITHIN_S)
    assert (red.returncode, printed.count("the round is red")) == (1, 1), printed


def test_mosquitto_is_watched_too(tmp_path: Path, make_mosquitto: MakeMosquitto) -> None:
    broker = make_mosquitto()
    watching = started(tmp_path, broker.port, "--rounds", "2")
    printed, _ = watching.communicate(timeout=WITHIN_S)
    assert (watching.returncode, printed.count("the round is green")) == (0, 2), printed


def test_a_broker_with_tls_is_watched_and_a_stranger_is_a_red_round(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    stranger = Authority(tmp_path / "stranger", "stranger")
    broker = TlsBroker(tmp_path, authority)
    broker.start()
    ends = {}
    for trusted in (authority, stranger):
        keys = {"UseTls": True, "TlsAuthority": str(trusted.file)}
        watching = started(tmp_path, broker.tls_port, "--rounds", "1", **keys)
        printed, _ = watching.communicate(timeout=WITHIN_S)
        ends[trusted] = (watching.returncode, printed)
    assert ends[authority][0] == 0, ends[authority]
    assert ends[stranger][0] == 1, ends[stranger]
    assert "certificate verify failed" in ends[stranger][1].lower(), ends[stranger]
    assert broker.stop() == 0, broker.log()


def test_a_canary_that_is_stopped_in_a_round_leaves_no_session(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    # Its messages wait for it longer than the test does.
    stopped = started(tmp_path, broker.port, "--away", "600")
    try:
        # The first read is for the consumer; the others are published when it has gone.
        asyncio.run(
            heard(broker.port, "holdfast-canary/qa/reads", lambda read: read.payload[-2:] != b" 0")
        )
        stopped.send_signal(signal.SIGTERM)
        printed, _ = stopped.communicate(timeout=WITHIN_S)
    finally:
        stopped.kill()
    assert stopped.returncode == 0, printed
    assert not asyncio.run(has_session(broker.port))
    assert broker.stop() == 0, broker.log()


def test_what_cannot_be_played_is_one_sentence(tmp_path: Path) -> None:
    wrong = started(tmp_path, 1, "--rounds", "0")
    printed, _ = wrong.communicate(timeout=WITHIN_S)
    assert (wrong.returncode, printed) == (2, "holdfast: --rounds is a number from 1\n")
