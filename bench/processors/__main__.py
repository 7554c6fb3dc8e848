"""The command line: `python -m bench.processors`."""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

from bench.macro import machine
from bench.macro.brokers import BrokerError, Holdfast, processor_ticks
from bench.macro.measurement import WORK
from bench.macro.rows import Row
from bench.processors.drains import EXPIRY_S, HOST, TOPIC, payload
from holdfast.client.mqtt import Client, ClientOptions, Publication
from holdfast.processors.session import IDENTITY_WISH
from tests.postgresql import postgres_server

COUNT = 40_000
BACKLOG = 1_000_000
DELIVERIES = 200_000
IDENTITY: Mapping[str, Any] = {"user_property": [IDENTITY_WISH]}
QUEUE = Row("processors", (), (), {"queue.messages_maximum": 0})
IN_FLIGHT = 1_000
MEMBERS = 3

Figures = dict[str, float]


class Bench:
    """Lines that are measured one after the other, each some times, and the medians told."""

    def __init__(self, program: Path, options: argparse.Namespace, postgres: str) -> None:
        self._program = program
        self._count: int = options.count
        self._repetitions: int = options.repetitions
        self._postgres = postgres

    def run(self, only: list[str]) -> None:
        """All lines, or those that begin so."""
        lines: dict[str, Callable[[], None]] = {
            "client": self._client,
            "identity": self._identity,
            "sqlite": lambda: self._rows("sqlite"),
            "postgresql": lambda: self._rows("postgresql"),
            "three": self._three,
            "backlog": self._backlog,
            "latency": self._latency,
        }
        for name, line in lines.items():
            if not only or any(name.startswith(each) for each in only):
                print(f"{name}:", flush=True)
                line()

    def _client(self) -> None:
        mine = self._median(lambda: self._drained("ours"))
        gmqtt = self._median(lambda: self._drained("gmqtt"))
        aiomqtt = self._median(lambda: self._drained("aiomqtt"))
        _tell("the client alone, acknowledged after a batch", mine)
        _tell("gmqtt, acknowledged after a batch", gmqtt)
        _tell("aiomqtt, acknowledged at once", aiomqtt)
        _tell_ratio("to gmqtt", mine, gmqtt, "at least 5")
        _tell_ratio("to aiomqtt", mine, aiomqtt, "at least 20")

    def _identity(self) -> None:
        with_it = self._median(lambda: self._brokers_time(IDENTITY))
        without = self._median(lambda: self._brokers_time({}))
        for what, figures in (("with an identity", with_it), ("without", without)):
            print(f"  the broker's time for a delivery {what}: {figures['cpu_us']:.2f} us")
        ratio = with_it["cpu_us"] / without["cpu_us"]
        print(f"  ratio, with to without: {ratio:.2f} (at most 1.1)", flush=True)

    def _rows(self, database: str) -> None:
        whole = self._median(lambda: self._drained("rows-processor", database))
        listed = self._median(lambda: self._listed(database))
        loop = self._median(lambda: self._drained("rows-aiomqtt", database))
        _tell(f"reads into {database}", whole)
        _tell("the same from a list, parsed", listed)
        _tell("a loop of aiomqtt that writes the same batches", loop)
        _tell_ratio("to the list", whole, listed, "at least 0.5")
        _tell_ratio("to the loop", whole, loop, "at least 5")
        print(f"  memory: {whole['resident_mib']:.0f} MiB")

    def _three(self) -> None:
        one = self._median(lambda: self._shared(1))
        three = self._median(lambda: self._shared(MEMBERS))
        _tell("one instance of a group", one)
        _tell("three instances of it, in sum", three)
        _tell_ratio("three to one", three, one, "at least 0.9")
        print(f"  least share of one of the three: {three['least']:.2f} (at least 0.25)")

    def _backlog(self) -> None:
        live = self._live(BACKLOG)
        with (
            self._place("sqlite") as (directory, sink),
            self._filled(directory, TOPIC, BACKLOG) as port,
        ):
            drained = _finish(_begin("rows-processor", port=port, count=BACKLOG, sink=sink))
        _tell(f"{BACKLOG:,} reads into sqlite as they are published", live)
        _tell(f"{BACKLOG:,} reads that have waited", drained)
        _tell_ratio("drained to live", drained, live, "at least 1")
        print(f"  memory: {drained['resident_mib']:.0f} MiB (at most 120)")

    def _latency(self) -> None:
        for database in ("sqlite", "postgresql"):
            found = self._median(lambda database=database: self._soon(database))
            ms = {name: 1_000 * value for name, value in found.items()}
            print(
                f"  {database}: from publish to row p50 {ms['p50_s']:.0f} ms, p99 {ms['p99_s']:.0f}"
                f" ms (at most {ms['wanted_s']:.0f}, with a commit of {ms['commit_s']:.1f});"
                f" subscribed after {ms['subscribed_s']:.0f} ms",
                flush=True,
            )

    # --- runs -----------------------------------------------------------------------------------

    def _median(self, run: Callable[[], Figures]) -> Figures:
        runs = [run() for _ in range(self._repetitions)]
        return {name: median(each[name] for each in runs) for name in runs[0]}

    def _drained(self, kind: str, database: str = "") -> Figures:
        with self._place(database) as (directory, sink), self._filled(directory, TOPIC) as port:
            return _finish(_begin(kind, port=port, count=self._count, sink=sink))

    def _soon(self, database: str) -> Figures:
        with (
            self._place(database) as (directory, sink),
            Holdfast(self._program, "fsync").serve(QUEUE, directory) as (_, port),
        ):
            command = [sys.executable, "-m", "bench.processors.latency", str(port), sink]
            return _finish(
                subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=machine.ROOT)
            )

    def _live(self, count: int) -> Figures:
        with self._place("sqlite") as (directory, sink), self._filled(directory, TOPIC, 0) as port:
            drain = _begin("rows-processor", port=port, count=count, sink=sink)
            asyncio.run(_publish(port, count))
            return _finish(drain)

    def _brokers_time(self, properties: Mapping[str, Any]) -> Figures:
        with (
            self._place("") as (directory, _),
            Holdfast(self._program, "fsync").serve(QUEUE, directory) as (process, port),
        ):
            asyncio.run(_subscribe(port, TOPIC, properties))
            asyncio.run(_publish(port, DELIVERIES))
            before = processor_ticks(process)
            _finish(_begin("ours", port=port, count=DELIVERIES))
            seconds = (processor_ticks(process) - before) / os.sysconf("SC_CLK_TCK")
            return {"cpu_us": seconds / DELIVERIES * 1e6}

    def _listed(self, database: str) -> Figures:
        with self._place(database) as (_, sink):
            return _finish(_begin("rows-list", port=0, count=self._count, sink=sink))

    def _shared(self, members: int) -> Figures:
        topic = f"$share/bench/{TOPIC}"
        with (
            self._place("postgresql") as (directory, sink),
            self._filled(directory, topic) as port,
        ):
            told = {"port": port, "count": self._count, "sink": sink, "group": "bench"}
            # The session that the group was made with is the first member's.
            names = ["drain", *(f"member-{number}" for number in range(1, members))]
            started = [_begin("rows-processor", name=name, **told) for name in names]
            each = [_finish(process) for process in started]
        took_s = max(one["ended_s"] for one in each) - min(one["began_s"] for one in each)
        taken = sum(one["taken"] for one in each)
        cpu_us = sum(one["cpu_us"] * one["taken"] for one in each) / taken
        least = min(one["taken"] for one in each) / taken
        return {"rate": taken / took_s, "cpu_us": cpu_us, "least": least}

    @contextmanager
    def _place(self, database: str) -> Iterator[tuple[Path, str]]:
        """A directory, and a sink that nothing is in."""
        with tempfile.TemporaryDirectory(dir=WORK) as name:
            directory = Path(name)
            directory.chmod(0o755)
            if database == "postgresql":
                with psycopg.connect(self._postgres, autocommit=True) as connection:
                    connection.execute("DROP SCHEMA IF EXISTS bbu CASCADE")
            urls = {"": "", "sqlite": f"sqlite:///{directory}/rows.db"}
            yield directory, urls.get(database, self._postgres)

    @contextmanager
    def _filled(
        self, directory: Path, topic_filter: str, count: int | None = None
    ) -> Iterator[int]:
        """A broker with messages that wait; yields its port."""
        with Holdfast(self._program, "fsync").serve(QUEUE, directory) as (_, port):
            asyncio.run(_subscribe(port, topic_filter))
            asyncio.run(_publish(port, self._count if count is None else count))
            yield port


async def _subscribe(
    port: int, topic_filter: str, properties: Mapping[str, Any] = IDENTITY
) -> None:
    waiting = Client("drain", ClientOptions(session_expiry_interval_s=EXPIRY_S))
    await waiting.connect(HOST, port)
    await waiting.subscribe_all((topic_filter,), 2, properties)
    waiting.disconnect()
    await waiting.lost.wait()


async def _publish(port: int, count: int) -> None:
    publisher = Client("readers", ClientOptions(in_flight_maximum=IN_FLIGHT))
    await publisher.connect(HOST, port)
    publisher.publish(
        *(
            Publication(f"zebra/fx/{number % 4}/reads", payload(number), 2)
            for number in range(count)
        )
    )
    await publisher.idle.wait()
    publisher.disconnect()
    await publisher.lost.wait()


def _begin(kind: str, **told: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.processors.drains", kind, json.dumps(told)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=machine.ROOT)


def _finish(process: subprocess.Popen[str]) -> Figures:
    said, _ = process.communicate(timeout=300)
    if process.returncode != 0:
        raise BrokerError(f"a drain ended with {process.returncode}")
    figures: Figures = json.loads(said)
    return figures


def _tell(what: str, figures: Figures) -> None:
    rate, cpu = figures["rate"], figures["cpu_us"]
    print(f"  {what}: {rate:,.0f} a second, {cpu:.1f} us of its process each", flush=True)


def _tell_ratio(what: str, one: Figures, other: Figures, wanted: str) -> None:
    print(f"  ratio, {what}: {one['rate'] / other['rate']:.2f} ({wanted})", flush=True)


def main() -> int:
    """Measures as asked."""
    parser = argparse.ArgumentParser(prog="python -m bench.processors", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="LINE")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--count", type=int, default=COUNT, help="messages of a drain")
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    print(f"{machine.commit()} on {machine.describe()}")
    try:
        with ExitStack() as stack:
            postgres = stack.enter_context(postgres_server(sync=True)).url()
            program = Path(sys.executable).with_name("holdfast")
            Bench(program, options, postgres).run(options.only)
    except BrokerError as error:
        print(f"bench.processors: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
