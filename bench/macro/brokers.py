"""Broker processes: started on a port of their own for one measurement, and stopped."""

import json
import os
import random
import resource
import signal
import socket
import subprocess
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.macro.machine import ROOT
from bench.macro.rows import APACHE_PULSAR, PULSAR, Row

START_SECONDS = 60
REST_SECONDS = 0.3
"""A broker that has used no processor time for so long has nothing of its start left to do."""
REST_WITHIN_SECONDS = 5
STOP_SECONDS = 15
PORTS = range(20_000, 32_000, 2)
"""Below those that the system gives to connections: of those thousands are in TIME-WAIT behind a
load of many connections."""
PORT_TRIES = 100
LOG_CHARACTERS = 400


class BrokerError(Exception):
    """A broker did not start, or ended by itself; says what it last wrote."""


class Broker(ABC):
    """One of the brokers that are compared."""

    name: str

    @abstractmethod
    def version(self) -> str:
        """The version as the broker tells it."""

    @abstractmethod
    def command(self, row: Row, port: int, directory: Path) -> list[str]:
        """Write what the broker needs into its empty directory; the command to start it."""

    @contextmanager
    def serve(self, row: Row, directory: Path) -> Iterator[tuple[int, int]]:
        """A fresh process; yields its number and its port, and stops it in the end. Behind that
        port is the one of its Pulsar clients, where it has any."""
        port = _free_ports()
        log = directory / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                self.command(row, port, directory),
                stdout=output,
                stderr=output,
                cwd=ROOT,
                env=os.environ | self.environment(port, directory),
            )
        try:
            self._wait_until_it_listens(process, port, log)
            worker = self.worker(process.pid)
            _wait_until_it_rests(worker)
            yield worker, port
            if process.poll() is not None:
                raise BrokerError(f"{self.name} ended: {_tail(log)}")
        finally:
            _stop(process)

    def environment(self, port: int, directory: Path) -> dict[str, str]:
        """What the process finds in its environment besides ours."""
        return {}

    def worker(self, process: int) -> int:
        """The process that does the work, if the one that was started is only a script."""
        return process

    def is_ready(self, port: int) -> bool:
        """Whether it takes connections."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def _wait_until_it_listens(
        self, process: subprocess.Popen[bytes], port: int, log: Path
    ) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise BrokerError(f"{self.name} did not start: {_tail(log)}")
            if self.is_ready(port):
                return
            time.sleep(0.02)
        raise BrokerError(f"{self.name} did not listen within {START_SECONDS} s: {_tail(log)}")


class Holdfast(Broker):
    """This project's broker, with its defaults and fsync before each acknowledgement."""

    name = "holdfast"

    def __init__(self, program: Path, durability: str) -> None:
        self._program = program
        self._durability = durability

    def version(self) -> str:
        """What `holdfast --version` says."""
        return _first_line([str(self._program), "--version"])

    def command(self, row: Row, port: int, directory: Path) -> list[str]:
        """Settings of the row go into a file; everything else is an option."""
        settings = directory / "holdfast.toml"
        given = row.holdfast_settings
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in given.items()]
        settings.write_text("".join(lines))
        return [
            str(self._program), "serve",
            "--config", str(settings),
            "--data-dir", str(directory / "data"),
            "--mqtt-port", str(port),
            "--http-port", "off",
            "--pulsar-port", str(pulsar_port(port)) if PULSAR in row.speaks else "off",
            "--log-durability", self._durability,
        ]  # fmt: skip


class Mosquitto(Broker):
    """Eclipse Mosquitto without persistence and without limits on what it queues."""

    name = "mosquitto"

    CONFIGURATION = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
max_queued_messages 0
max_inflight_messages 0
set_tcp_nodelay true
sys_interval 0
log_dest stderr
log_type error
log_type warning
connection_messages false
"""

    def __init__(self, program: str) -> None:
        self._program = program

    def version(self) -> str:
        """What the help says; the program has no other way."""
        return _first_line([self._program, "-h"])

    def command(self, row: Row, port: int, directory: Path) -> list[str]:
        """Everything is in a file."""
        configuration = directory / "mosquitto.conf"
        configuration.write_text(self.CONFIGURATION.format(port=port))
        return [self._program, "-c", str(configuration)]


class FlashMQ(Broker):
    """FlashMQ with a thread for each core, in memory. It drops what goes beyond 65 535 messages
    that wait for a client, the most that it can be told; bytes do not bound them sooner."""

    name = "flashmq"

    VARIABLE = "BENCH_FLASHMQ"
    """Names the program: no distribution that we know has a package of it."""

    CONFIGURATION = """\
log_file {directory}/flashmq.log
log_level warning
allow_anonymous true
max_qos_msg_pending_per_client 65535
max_qos_bytes_pending_per_client 1073741824
listen {{
    protocol mqtt
    inet_protocol ip4
    inet4_bind_address 127.0.0.1
    port {port}
    tcp_nodelay true
}}
"""

    def __init__(self, program: str) -> None:
        self._program = program

    def version(self) -> str:
        """What the program says."""
        return _first_line([self._program, "--version"])

    def command(self, row: Row, port: int, directory: Path) -> list[str]:
        """Everything is in a file."""
        configuration = directory / "flashmq.conf"
        configuration.write_text(self.CONFIGURATION.format(port=port, directory=directory))
        return [self._program, "-c", str(configuration)]


class Forwarder(Broker):
    """No broker: what the generator's package has beside it to pass bytes on."""

    name = "forwarder"

    PROGRAM = ROOT / "target" / "release" / "holdfast-forwarder"

    def version(self) -> str:
        """It has none of its own."""
        return "a bare forwarder"

    def command(self, row: Row, port: int, directory: Path) -> list[str]:
        """It takes nothing but its port."""
        return [str(self.PROGRAM), str(port)]


class Nats(Broker):
    """NATS with JetStream, which its MQTT stands on: files, synced every two minutes."""

    name = "nats"

    CONFIGURATION = """\
listen: "127.0.0.1:-1"
server_name: bench
jetstream {{ store_dir: "{directory}/jetstream" }}
mqtt {{ host: "127.0.0.1", port: {port}, max_ack_pending: 30000 }}
"""

    def __init__(self, program: str) -> None:
        self._program = program

    def version(self) -> str:
        """What the program says."""
        return _first_line([self._program, "--version"])

    def command(self, row: Row, port: int, directory: Path) -> list[str]:
        """Everything is in a file."""
        configuration = directory / "nats.conf"
        configuration.write_text(self.CONFIGURATION.format(port=port, directory=directory))
        return [self._program, "-c", str(configuration)]


class RabbitMQ(Broker):
    """RabbitMQ with its MQTT plugin; messages of persistent sessions go to durable queues."""

    name = "rabbitmq"

    # The script that Debian puts on the PATH insists on a user of its own.
    PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")

    CONFIGURATION = """\
listeners.tcp = none
mqtt.listeners.tcp.1 = 127.0.0.1:{port}
mqtt.allow_anonymous = true
mqtt.prefetch = 65535
log.console = true
log.console.level = warning
log.file = false
"""

    def version(self) -> str:
        """What its scripts say."""
        return (
            f"rabbitmq {_first_line(['dpkg-query', '-W', '-f', '${Version}', 'rabbitmq-server'])}"
        )

    def command(self, row: Row, port: int, directory: Path) -> list[str]:
        """The rest is in the environment."""
        (directory / "rabbitmq.conf").write_text(self.CONFIGURATION.format(port=port))
        (directory / "enabled_plugins").write_text("[rabbitmq_mqtt].")
        return [str(self.PROGRAM)]

    def environment(self, port: int, directory: Path) -> dict[str, str]:
        """A node of its own with everything in the run's directory; no port mapper stays behind."""
        return {
            "HOME": str(directory),
            "RABBITMQ_NODENAME": f"bench{port}@localhost",
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "ERL_EPMD_PORT": str(free_port()),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    def worker(self, process: int) -> int:
        """The Erlang machine below the script."""
        return next(
            (child for child in _descendants(process) if _name(child) == "beam.smp"), process
        )

    @contextmanager
    def serve(self, row: Row, directory: Path) -> Iterator[tuple[int, int]]:
        """As of any broker; its port mapper, which is a daemon, is stopped too."""
        before = set(_named("epmd"))
        try:
            with super().serve(row, directory) as served:
                yield served
        finally:
            for process in set(_named("epmd")) - before:
                os.kill(process, signal.SIGTERM)


class Amqtt(Broker):
    """aMQTT, the broker in plain Python."""

    name = "amqtt"

    CONFIGURATION = """\
listeners:
  default:
    type: tcp
    bind: 127.0.0.1:{port}
    max_connections: 10000
plugins:
  amqtt.plugins.authentication.AnonymousAuthPlugin:
    allow_anonymous: true
"""

    def __init__(self, program: Path) -> None:
        self._program = program

    def version(self) -> str:
        """What the program says."""
        return f"amqtt {_first_line([str(self._program), '--version'])}"

    def command(self, row: Row, port: int, directory: Path) -> list[str]:
        """Everything is in a file."""
        configuration = directory / "amqtt.yaml"
        configuration.write_text(self.CONFIGURATION.format(port=port))
        return [str(self._program), "-c", str(configuration)]


class Pulsar(Broker):
    """Apache Pulsar with its storage in one process, set up as the file that it brings for that:
    without a sync before a receipt."""

    name = APACHE_PULSAR

    JARS = ROOT / "target" / "bench-pulsar" / "jars"
    LOGGING = ROOT / "bench" / "official" / "log4j2.xml"
    MAIN = "org.apache.pulsar.PulsarStandaloneStarter"
    HEALTH_SECONDS = 1

    # Less memory than its script asks for: the machine has the clients too.
    MACHINE = (
        "-Xms1g",
        "-Xmx1g",
        "-XX:MaxDirectMemorySize=2g",
        "-Dio.netty.leakDetectionLevel=disabled",
    )

    CONFIGURATION = """\
clusterName=standalone
bindAddress=127.0.0.1
advertisedAddress=127.0.0.1
listeningInterface=lo
allowLoopback=true
webServicePort={port}
brokerServicePort={pulsar_port}
metadataStoreUrl=
configurationMetadataStoreUrl=
managedLedgerDefaultEnsembleSize=1
managedLedgerDefaultWriteQuorum=1
managedLedgerDefaultAckQuorum=1
journalSyncData=false
loadBalancerEnabled=false
"""

    def version(self) -> str:
        """As its jar is called."""
        (jar,) = self.JARS.glob("pulsar-broker-[0-9]*.jar")
        return jar.stem.replace("-broker-", " ")

    def command(self, row: Row, port: int, directory: Path) -> list[str]:
        """What it listens on is in a file, where it stores in options."""
        configuration = directory / "standalone.conf"
        ports = {"port": port, "pulsar_port": pulsar_port(port)}
        configuration.write_text(self.CONFIGURATION.format(**ports))
        return [
            *java(*self.MACHINE), self.MAIN,
            "--no-functions-worker", "--no-stream-storage",
            "--config", str(configuration),
            "--metadata-dir", str(directory / "metadata"),
            "--bookkeeper-dir", str(directory / "bookkeeper"),
        ]  # fmt: skip

    def is_ready(self, port: int) -> bool:
        """It listens long before it serves."""
        url = f"http://127.0.0.1:{port}/admin/v2/brokers/health"
        try:
            with urllib.request.urlopen(url, timeout=self.HEALTH_SECONDS):
                return True
        except OSError:
            return False


def java(*options: str) -> list[str]:
    """Starts Java with Pulsar's jars; what it runs is to follow."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else "java"
    logging = f"-Dlog4j2.configurationFile={Pulsar.LOGGING}"
    return [program, *options, logging, "-cp", f"{Pulsar.JARS}/*"]


def allow_many_connections() -> None:
    """Let this process and its children open as many files as the system permits."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _wait_until_it_rests(process: int) -> None:
    deadline = time.monotonic() + REST_WITHIN_SECONDS
    used = processor_ticks(process)
    while time.monotonic() < deadline:
        time.sleep(REST_SECONDS)
        before, used = used, processor_ticks(process)
        # One tick is a hundredth of a second: a timer's work.
        if used - before <= 1:
            return


def processor_ticks(process: int) -> int:
    """User and system time of a process, in ticks; 0 if it has gone."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def peak_resident_kib(process: int) -> int:
    """The most memory that a process has held; 0 if it is gone."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return 0
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0


def pulsar_port(port: int) -> int:
    """Where Pulsar clients reach the broker that others reach at `port`."""
    return port + 1


def free_port() -> int:
    """A port of this machine that nobody has at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _free_ports() -> int:
    """A port that is free, as the one behind it is."""
    for port in random.sample(PORTS, PORT_TRIES):
        if _is_free(port) and _is_free(pulsar_port(port)):
            return port
    raise BrokerError("no two ports in a row are free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _named(name: str) -> list[int]:
    numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [number for number in numbers if _name(number) == name]


def _name(process: int) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:
        return ""


def _descendants(process: int) -> list[int]:
    try:
        text = Path(f"/proc/{process}/task/{process}/children").read_text()
    except OSError:
        return []
    children = [int(number) for number in text.split()]
    return [*children, *(number for child in children for number in _descendants(child))]


def _first_line(command: list[str]) -> str:
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return (answer.stdout + answer.stderr).partition("\n")[0].strip()


def _tail(log: Path) -> str:
    return " / ".join(log.read_text(errors="replace")[-LOG_CHARACTERS:].split("\n")).strip(" /")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
