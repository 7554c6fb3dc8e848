"""Two brokers with a bridge from the first to the second, each in a process of its own."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.macro.brokers import Broker, Holdfast, Mosquitto
from bench.macro.rows import Row

NOTHING = Row("bridge", (), ())
NOWHERE = 9
"""The port of a remote that is away."""


@dataclass(frozen=True)
class Pair:
    """Both brokers, as they run."""

    process: int
    """Of the first one."""
    port: int
    to_port: int


class BridgedHoldfast(Holdfast):
    """Holdfast with bridges that each carry the messages of some filters."""

    to_port = NOWHERE
    carried: Sequence[str] = ("bench/#",)
    added: Sequence[dict[str, str]] = ()
    destination = "{#}"
    http_port = 0
    """Where it is administered, if it is."""

    def command(self, row: Row, port: int, directory: Path) -> list[str]:
        """A table for each bridge stands in the settings."""
        command = super().command(row, port, directory)
        if self.http_port:
            command[command.index("--http-port") + 1] = str(self.http_port)
        tables = [
            f'[[bridge]]\nname = "b{number}"\naddress = "127.0.0.1:{self.to_port}"\n'
            "[[bridge.local_subscriptions]]\n"
            f"filters = {json.dumps([topic_filter])}\n"
            f'destination = "{self.destination}"\n'
            + "".join(
                f'[[bridge.local_subscriptions.user_properties]]\nkey = "{each["key"]}"\n'
                f'value = "{each["value"]}"\n'
                for each in self.added
            )
            for number, topic_filter in enumerate(self.carried)
        ]
        (directory / "holdfast.toml").write_text(
            '[bridges]\nstorage = "FILE_NATIVE"\n' + "".join(tables)
        )
        return command


class BridgedMosquitto(Mosquitto):
    """Mosquitto with a bridge that keeps QoS and topics."""

    to_port = NOWHERE

    def command(self, row: Row, port: int, directory: Path) -> list[str]:
        """The bridge stands in its file too."""
        command = super().command(row, port, directory)
        with (directory / "mosquitto.conf").open("a") as file:
            file.write(
                f"connection b\naddress 127.0.0.1:{self.to_port}\ntopic bench/# out 2\n"
                "bridge_protocol_version mqttv311\ntry_private false\nnotifications false\n"
            )
        return command


@contextmanager
def paired(
    first: BridgedHoldfast | BridgedMosquitto, second: Broker, directory: Path
) -> Iterator[Pair]:
    """Both run, and the bridge has had the time to connect that its broker rests after."""
    (directory / "second").mkdir(parents=True)
    (directory / "first").mkdir()
    with second.serve(NOTHING, directory / "second") as (_, to_port):
        first.to_port = to_port
        with first.serve(NOTHING, directory / "first") as (process, port):
            yield Pair(process, port, to_port)
