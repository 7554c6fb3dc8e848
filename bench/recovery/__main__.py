"""The command line: build the log, kill and start, write the figures."""

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from bench.macro import machine
from bench.recovery import stored
from bench.recovery.result import DIRECTORY, Recovered
from holdfast import system
from holdfast.core.config import Config
from tests.equipment.clients import Client, ClientOptions, ConnectionFailedError
from tests.equipment.history import History, Message
from tests.process import HOST, BrokerProcess

RETENTION_BYTES = 64 << 30
"""More than is written: what is measured is the whole log."""
LOADED_S = 1.0
PUBLISHED_AT_ONCE = 50
AT_ONCE = 50


def main() -> int:
    """Measures as asked."""
    parser = argparse.ArgumentParser(prog="python -m bench.recovery", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--sessions", type=int, default=1_000)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--directory", type=Path, default=machine.ROOT / "target")
    options = parser.parse_args()
    options.directory.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="bench-recovery-", dir=options.directory))
    try:
        recovered = _measure(directory, options)
    finally:
        shutil.rmtree(directory)
    print(recovered.text())
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    path = DIRECTORY / f"{recovered.date.replace(':', '')}-{recovered.commit.rstrip('+')}.json"
    path.write_text(json.dumps(vars(recovered), indent=1) + "\n")
    print(f"Wrote {path.relative_to(machine.ROOT)}; python -m bench.macro --render shows it.")
    return 0


def _measure(directory: Path, options: argparse.Namespace) -> Recovered:
    broker = BrokerProcess(directory, retention_bytes=RETENTION_BYTES)
    broker.start()
    _say(f"{options.sessions} sessions subscribe and leave")
    asyncio.run(_leave_sessions(broker.port, options.sessions))
    broker.kill()
    _say(f"{options.gigabytes:g} GB are written")
    config = Config(data_dir=broker.data_directory, mqtt_port=broker.port)
    wanted_bytes = int(options.gigabytes * 1e9)
    messages = stored.fill(broker.data_directory, config, wanted_bytes, _say)
    times = [asyncio.run(_round(broker, number)) for number in range(options.repetitions)]
    read_s = _logged_seconds(broker)[-2 * options.repetitions :][1::2]
    return Recovered(
        date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M"),
        commit=machine.commit(),
        machine=machine.describe(),
        gigabytes=options.gigabytes,
        messages=messages,
        sessions=options.sessions,
        load_average=os.getloadavg()[0],
        accepted_s=[accepted for accepted, _, _ in times],
        delivered_s=[delivered for _, delivered, _ in times],
        processor_s=[processor for _, _, processor in times],
        read_s=read_s,
    )


async def _leave_sessions(port: int, count: int) -> None:
    """So many sessions exist, are subscribed and away."""

    async def leave(number: int) -> None:
        client = _session(number)
        await client.connect(HOST, port)
        await client.subscribe(stored.topic_filter(number), 1)
        client.disconnect()
        await client.lost.wait()

    for first in range(0, count, AT_ONCE):
        await asyncio.gather(*(leave(n) for n in range(first, min(first + AT_ONCE, count))))


def _session(number: int, history: History | None = None) -> Client:
    return Client(f"session-{number}", history or _Blind(), ClientOptions(), Random(number))


async def _round(broker: BrokerProcess, number: int) -> tuple[float, float, float]:
    """Starts the broker, loads it, kills it, starts it again; returns after how many seconds it
    accepted a connection, after how many a session had the first message of its backlog, and the
    processor time up to the connection."""
    await asyncio.to_thread(broker.start)
    await _load(broker.port)
    await asyncio.to_thread(broker.kill)
    began = system.monotonic_s()
    broker.launch()
    first = asyncio.Event()
    session = _FirstPublish(number, first)
    while True:
        try:
            await session.connect(HOST, broker.port)
            break
        except ConnectionFailedError:
            await asyncio.sleep(0.005)
    accepted = system.monotonic_s() - began
    processor = _processor_s(broker.process_identifier)
    await first.wait()
    delivered = system.monotonic_s() - began
    session.drop()
    _say(
        f"accepted after {accepted:.2f} s ({processor:.2f} s of a core),"
        f" first message after {delivered:.2f} s"
    )
    await asyncio.to_thread(broker.kill)
    return accepted, delivered, processor


async def _load(port: int) -> None:
    """The broker is not killed while it idles."""
    publisher = Client("publisher", _Blind(), ClientOptions(), Random(0))
    await publisher.connect(HOST, port)
    ends_at = system.monotonic_s() + LOADED_S
    sequence = 0
    while system.monotonic_s() < ends_at:
        for _ in range(PUBLISHED_AT_ONCE):
            sequence += 1
            publisher.publish(Message("publisher", "fleet/1/reads/1", sequence, qos=1))
        await publisher.idle.wait()
    publisher.publish(Message("publisher", "fleet/1/reads/1", sequence + 1, qos=1))
    publisher.drop()


class _Blind(History):
    """Nobody looks at what happened."""

    def add(self, event: Any) -> None:
        """Forgets it."""


class _FirstPublish(Client):
    """A session that comes back and waits for its first message."""

    def __init__(self, number: int, first: asyncio.Event) -> None:
        super().__init__(f"session-{number}", _Blind(), ClientOptions(), Random(number))
        self._first = first

    def _take(self, kind: str, fields: dict[str, Any]) -> None:
        if kind == "publish":
            self._first.set()
        else:
            super()._take(kind, fields)


def _processor_s(process: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _logged_seconds(broker: BrokerProcess) -> list[float]:
    """What the broker itself says about each recovery of its log."""
    lines = broker.log_file.read_text(errors="replace").splitlines()
    found = [line for line in lines if '"log recovered"' in line]
    return [float(line.rpartition("seconds=")[2]) for line in found]


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
