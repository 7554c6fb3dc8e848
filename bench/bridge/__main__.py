"""The command line: `python -m bench.bridge`."""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench.bridge import result as results
from bench.bridge.draining import drained_per_second
from bench.bridge.pairs import NOTHING, NOWHERE, BridgedHoldfast, BridgedMosquitto, Pair, paired
from bench.bridge.result import PARTIAL, Result
from bench.macro import machine
from bench.macro.brokers import (
    BrokerError,
    Holdfast,
    Mosquitto,
    allow_many_connections,
    free_port,
    peak_resident_kib,
)
from bench.macro.measurement import WORK, Timing, build_generator, generate
from bench.macro.rows import Row
from bench.pipeline.result import HEAD, Measured

BRIDGES = 100
PAIRS = 10
WINDOW = 80

Figures = dict[str, float]

TO_MOSQUITTO = "a bridge between two Mosquittos"
TO_ONE = "one Holdfast, the same receiver"
RATE = "messages/s"
EACH = "ns"


class Bench:
    """Lines that are measured one after the other, each some times, and the medians told."""

    def __init__(self, program: Path, mosquitto: str, options: argparse.Namespace) -> None:
        self._program = program
        self._mosquitto = mosquitto
        self._timing = Timing(options.warm_up, options.seconds)
        self._repetitions: int = options.repetitions
        self.lines: dict[str, Callable[[], list[Measured]]] = {
            "qos-0": lambda: self._forwarding(0),
            "qos-1": lambda: self._forwarding(1),
            "qos-2": lambda: self._forwarding(2),
            "processor": self._processor,
            "latency": self._latency,
            "away": self._away,
            "many": self._many,
            "drain": self._drain,
            "idle": self._idle,
        }
        """By name; each tells figures with what they are compared with."""

    def _forwarding(self, qos: int) -> list[Measured]:
        runs = (self._theirs, self._ours, self._alone)
        theirs, ours, alone = (run["rate"] for run in self._medians(runs, _pairs(qos), 0))
        wanted = 0.6 if qos == 1 else None
        title = f"Holdfast to Holdfast at QoS {qos}"
        return [
            Measured(title, RATE, ours, TO_MOSQUITTO, theirs, at_least=10),
            Measured(f"{title}, on the same cores", RATE, ours, TO_ONE, alone, at_least=wanted),
        ]

    def _processor(self) -> list[Measured]:
        # The same publishers, and whoever takes what they send takes all of it at QoS 1.
        fan_in = ("fanin", "--publishers", str(PAIRS), "--window", str(WINDOW), "--qos", "1")
        runs = (self._ours, self._ours_changed, self._alone)
        forwarded, changed, delivered = (run["cpu_ns"] for run in self._medians(runs, fan_in, 1))
        title = "processor time of the broker that forwards, each message"
        delivery = "a delivery to a persistent subscriber"
        return [
            Measured(title, EACH, forwarded, delivery, delivered, at_most_times=1.3),
            Measured(
                f"{title}, with another topic and a property more",
                EACH,
                changed,
                delivery,
                delivered,
                at_most_times=1.5,
            ),
        ]

    def _latency(self) -> list[Measured]:
        arguments = ("latency", "--rate", "1000", "--qos", "1")
        # At QoS 1 to the end: to a subscriber at QoS 0 one broker alone hands on before its disk
        # has the message, which no bridge may.
        runs = (self._ours, self._alone)
        two, one = (run["p50_us"] for run in self._medians(runs, arguments, 1))
        assert min(one, two) > 0, "the generator told no latency"
        title = "latency through both brokers at 1 000 messages a second, median"
        return [Measured(title, "us", two, "through one", one, at_most_times=2.2)]

    def _away(self) -> list[Measured]:
        runs = (partial(self._single, BridgedHoldfast), partial(self._single, Holdfast))
        beside, without = self._medians(runs, _pairs(1))
        title, peer = "local pairs beside a bridge whose remote is away", "without the bridge"
        memory = "memory that grows meanwhile"
        return [
            Measured(title, RATE, beside["rate"], peer, without["rate"], at_least=0.95),
            Measured(memory, "MiB", beside["grown_mib"], peer, without["grown_mib"], at_most=32),
        ]

    def _many(self) -> list[Measured]:
        arguments = ("pair", "--pairs", str(BRIDGES), "--window", "20", "--qos", "1")
        runs = (self._ours_many, self._ours)
        many, one = (run["rate"] for run in self._medians(runs, arguments, 0))
        title = f"{BRIDGES} bridges with a part each"
        return [Measured(title, RATE, many, "one bridge with all of it", one, at_least=0.9)]

    def _drain(self) -> list[Measured]:
        live, waited = self._medians((partial(self._ours, _pairs(1), 0), self._drained))
        title, drained = "a million that waited", waited["rate"]
        return [Measured(title, RATE, drained, "as they come", live["rate"], at_least=1)]

    def _drained(self) -> Figures:
        first = BridgedHoldfast(self._program, "fsync")
        first.http_port = free_port()
        load = Row("bridge", ("pair", "--pairs", str(PAIRS), "--window", "200", "--qos", "1"), ())
        with self._pair(first) as pair:
            return {"rate": drained_per_second(first, pair, load)}

    def _idle(self) -> list[Measured]:
        one, many = (
            median(self._resident_kib(count) for _ in range(self._repetitions))
            for count in (1, 1 + BRIDGES)
        )
        return [Measured("memory of an idle bridge", "KiB", (many - one) / BRIDGES, at_most=64)]

    def _resident_kib(self, count: int) -> int:
        first = BridgedHoldfast(self._program, "fsync")
        first.carried = [f"idle/{number}" for number in range(count)]
        with self._pair(first) as pair:
            return peak_resident_kib(pair.process)

    @contextmanager
    def _pair(self, first: BridgedHoldfast) -> Iterator[Pair]:
        """It, and another one that it is bridged to."""
        with (
            tempfile.TemporaryDirectory(dir=WORK) as name,
            paired(first, Holdfast(self._program, "fsync"), Path(name)) as pair,
        ):
            yield pair

    # --- runs -----------------------------------------------------------------------------------

    def _medians(self, runs: Sequence[Callable[..., Figures]], *given: Any) -> list[Figures]:
        """Of each run; they take turns, so that whatever else the machine does meets all."""
        rounds = [[run(*given) for run in runs] for _ in range(self._repetitions)]
        return [
            {name: median(figures[name] for figures in repeated) for name in repeated[0]}
            for repeated in zip(*rounds, strict=True)
        ]

    def _ours(self, arguments: tuple[str, ...], to_qos: int) -> Figures:
        return self._through(BridgedHoldfast(self._program, "fsync"), arguments, to_qos)

    def _ours_changed(self, arguments: tuple[str, ...], to_qos: int) -> Figures:
        first = BridgedHoldfast(self._program, "fsync")
        # The same levels in another order cost what any template does, and are still heard.
        first.destination = "{1}/{2}"
        first.added = ({"key": "site", "value": "plant-7"},)
        return self._through(first, arguments, to_qos)

    def _ours_many(self, arguments: tuple[str, ...], to_qos: int) -> Figures:
        first = BridgedHoldfast(self._program, "fsync")
        first.carried = [f"bench/{number}" for number in range(BRIDGES)]
        return self._through(first, arguments, to_qos)

    def _theirs(self, arguments: tuple[str, ...], to_qos: int) -> Figures:
        return self._through(BridgedMosquitto(self._mosquitto), arguments, to_qos)

    def _through(
        self,
        first: BridgedHoldfast | BridgedMosquitto,
        arguments: tuple[str, ...],
        to_qos: int,
    ) -> Figures:
        ours = isinstance(first, BridgedHoldfast)
        second = Holdfast(self._program, "fsync") if ours else Mosquitto(self._mosquitto)
        with tempfile.TemporaryDirectory(dir=WORK) as name:
            Path(name).chmod(0o755)
            with paired(first, second, Path(name)) as pair:
                to = ("--to-port", str(pair.to_port), "--to-qos", str(to_qos))
                row = Row("bridge", (*arguments, *to), ())
                return _figures(generate(row, pair.process, pair.port, self._timing))

    def _alone(self, arguments: tuple[str, ...], to_qos: int) -> Figures:
        return self._single(Holdfast, (*arguments, "--to-qos", str(to_qos)))

    def _single(self, kind: type[Holdfast], arguments: tuple[str, ...]) -> Figures:
        broker = kind(self._program, "fsync")
        if isinstance(broker, BridgedHoldfast):
            broker.to_port = NOWHERE
        with (
            tempfile.TemporaryDirectory(dir=WORK) as name,
            broker.serve(NOTHING, Path(name)) as (process, port),
        ):
            row = Row("bridge", arguments, ())
            return _figures(generate(row, process, port, self._timing))


def _pairs(qos: int) -> tuple[str, ...]:
    return ("pair", "--pairs", str(PAIRS), "--window", str(WINDOW), "--qos", str(qos))


def _figures(raw: dict[str, float]) -> Figures:
    before, after = raw["broker_resident_kib_before"], raw["broker_resident_kib_after"]
    return {
        "rate": raw["received"] / raw["seconds"],
        "cpu_ns": raw["broker_processor_s"] / (raw["received"] or 1) * 1e9,
        "p50_us": raw.get("latency_p50_us", 0.0),
        "grown_mib": (after - before) / 1024,
    }


def main() -> int:
    """Measures as asked."""
    options = _parse()
    mosquitto = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    if not Path(mosquitto).exists():
        print("mosquitto is missing; see `make bench-setup`", file=sys.stderr)
        return 1
    allow_many_connections()
    build_generator()
    WORK.mkdir(parents=True, exist_ok=True)
    bench = Bench(options.holdfast, mosquitto, options)
    last = results.newest() if options.again else None
    try:
        result = _measure(bench, options)
    except BrokerError as error:
        print(f"bench.bridge: {error}", file=sys.stderr)
        return 1
    whole = last is not None or not options.only
    path = (last.with_lines_of(result) if last else result).write(PARTIAL if not whole else None)
    print(
        f"Wrote {path.relative_to(machine.ROOT)}; python -m bench.macro --render shows it if whole."
    )
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.bridge", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="LINE")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--warm-up", type=float, default=2.0)
    parser.add_argument(
        "--again", action="store_true", help="put the lines into the newest result, which says so"
    )
    parser.add_argument(
        "--holdfast", type=Path, default=Path(sys.executable).with_name("holdfast"),
        help="the program to measure",
    )  # fmt: skip
    return parser.parse_args()


def _measure(bench: Bench, options: argparse.Namespace) -> Result:
    """All lines, or those that begin so; each is told when it is there."""
    began = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M")
    load_average = os.getloadavg()[0]
    measured: dict[str, list[Measured]] = {}
    print("\n".join(HEAD), flush=True)
    for name, line in bench.lines.items():
        if not options.only or any(name.startswith(each) for each in options.only):
            measured[name] = line()
            print("\n".join(each.row() for each in measured[name]), flush=True)
    return Result(
        date=began,
        commit=machine.commit(),
        machine=machine.describe(),
        repetitions=options.repetitions,
        seconds=options.seconds,
        load_average=load_average,
        lines=measured,
    )


if __name__ == "__main__":
    sys.exit(main())
