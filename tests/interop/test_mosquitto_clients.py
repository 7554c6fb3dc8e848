"""mosquitto_pub and mosquitto_sub as people type them."""

import subprocess
import threading

import pytest

from tests.interop.conftest import MakeDevice
from tests.interop.installation import mosquitto_clients
from tests.process import HOST, BrokerProcess

WITHIN_S = 120


@pytest.fixture(params=["mqttv31", "mqttv311", "mqttv5"])
def spoken(request: pytest.FixtureRequest) -> str:
    """The version, as the option has it."""
    return str(request.param)


class Shell:
    """Runs both against one broker, in one version."""

    def __init__(self, port: int, spoken: str) -> None:
        self._where = ("-h", HOST, "-p", str(port), "-V", spoken)

    def pub(self, topic: str, *options: str, payload: bytes = b"x") -> None:
        self._run("mosquitto_pub", "-t", topic, "-s", *options, given=payload)

    def sub(self, topic_filter: str, *options: str) -> bytes:
        return self._run("mosquitto_sub", "-t", topic_filter, "-W", str(WITHIN_S), *options)

    def start_sub(self, topic_filter: str, *options: str) -> subprocess.Popen[bytes]:
        """Returns when it has subscribed."""
        # Into a pipe it would write when its buffer is full.
        program = str(mosquitto_clients() / "mosquitto_sub")
        command = ["stdbuf", "-oL", program, *self._where, "-t", topic_filter, "-d"]
        process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE)
        overdue = threading.Timer(WITHIN_S, process.kill)
        overdue.start()
        assert process.stdout is not None
        assert any(b"SUBACK" in line for line in process.stdout)
        overdue.cancel()
        return process

    def _run(self, program: str, *options: str, given: bytes = b"") -> bytes:
        ended = subprocess.run(
            [str(mosquitto_clients() / program), *self._where, *options],
            input=given,
            capture_output=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


@pytest.fixture
def shell(shared_broker: BrokerProcess, spoken: str) -> Shell:
    return Shell(shared_broker.port, spoken)


def test_a_subscriber_gets_what_was_published_while_it_was_away(shell: Shell, prefix: str) -> None:
    session = ("-c", "-i", prefix, "-q", "2")
    shell.sub(f"{prefix}/#", *session, "-E")
    for qos in ("0", "1", "2"):
        shell.pub(f"{prefix}/a", "-q", qos, payload=f"at {qos}".encode())
    came = shell.sub(f"{prefix}/#", *session, "-C", "2", "-F", "%q %t %p")
    assert came.decode().splitlines() == [f"{qos} {prefix}/a at {qos}" for qos in (1, 2)]


def test_a_retained_message_greets_a_subscriber(shell: Shell, prefix: str) -> None:
    shell.pub(f"{prefix}/a", "-q", "1", "-r", payload=b"kept")
    assert shell.sub(f"{prefix}/+", "-C", "1", "-F", "%r %p") == b"1 kept\n"


def test_a_large_payload_arrives_whole(shell: Shell, prefix: str) -> None:
    payload = bytes(range(256)) * 2_048
    shell.pub(f"{prefix}/a", "-q", "2", "-r", payload=payload)
    assert shell.sub(f"{prefix}/a", "-q", "2", "-C", "1", "-N") == payload


def test_a_killed_subscriber_is_mourned(shell: Shell, device: MakeDevice, prefix: str) -> None:
    watcher = device(f"{prefix}w", clean_start=True)
    watcher.subscribe(f"{prefix}/will")
    will = ("--will-topic", f"{prefix}/will", "--will-payload", "gone", "--will-qos", "1")
    process = shell.start_sub(f"{prefix}/a", *will)
    process.kill()
    process.communicate()
    message = watcher.receive()
    assert (message.payload, message.qos) == (b"gone", 1)


def test_properties_are_printed_in_their_order(shared_broker: BrokerProcess, prefix: str) -> None:
    shell = Shell(shared_broker.port, "mqttv5")
    properties = ("user-property", "b", "1"), ("user-property", "a", "2"), ("content-type", "text")
    options = [part for each in properties for part in ("-D", "publish", *each)]
    shell.pub(f"{prefix}/a", "-r", "-q", "1", *options)
    came = shell.sub(f"{prefix}/a", "-C", "1", "-F", "%C|%P")
    assert came == b"text|b:1 a:2\n"
