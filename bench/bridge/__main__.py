"""The command line: `python -m bench.bridge`."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench.bridge.draining import drained_per_second
from bench.bridge.pairs import NOTHING, NOWHERE, BridgedHoldfast, BridgedMosquitto, Pair, paired
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

BRIDGES = 100
PAIRS = 10
WINDOW = 80

Figures = dict[str, float]


class Bench:
    """Lines that are measured one after the other, each some times, and the medians told."""

    def __init__(self, program: Path, mosquitto: str, options: argparse.Namespace) -> None:
        self._program = program
        self._mosquitto = mosquitto
        self._timing = Timing(options.warm_up, options.seconds)
        self._repetitions: int = options.repetitions

    def run(self, only: list[str]) -> None:
        """All lines, or those that begin so."""
        lines: dict[str, Callable[[], None]] = {
            "qos-0": lambda: self._forwarding(0),
            "qos-1": lambda: self._forwarding(1),
            "qos-2": lambda: self._forwarding(2),
            "processor": self._processor,
            "rewriting": self._rewriting,
            "latency": self._latency,
            "away": self._away,
            "many": self._many,
            "drain": self._drain,
            "idle": self._idle,
        }
        for name, line in lines.items():
            if not only or any(name.startswith(each) for each in only):
                print(f"{name}:", flush=True)
                line()

    def _forwarding(self, qos: int) -> None:
        theirs = self._rate(self._theirs, qos)
        ours = self._rate(self._ours, qos)
        alone = self._rate(self._alone, qos)
        _tell("Mosquitto to Mosquitto", theirs)
        _tell("Holdfast to Holdfast", ours)
        _tell("one Holdfast, plain subscriber", alone)
        _tell_ratio("to Mosquitto's bridge", ours, theirs, "rate", "at least 10")
        _tell_ratio("to one Holdfast", ours, alone, "rate", "at least 0.6")

    def _processor(self) -> None:
        # The same publishers, and whoever takes what they send takes all of it at QoS 1.
        fan_in = ("fanin", "--publishers", str(PAIRS), "--window", str(WINDOW), "--qos", "1")
        forwarded = self._median(lambda: self._ours(fan_in, 1))
        delivered = self._median(lambda: self._alone(fan_in, 1))
        _tell("forwarded", forwarded)
        _tell("one Holdfast, persistent subscriber", delivered)
        _tell_ratio(
            "processor time of the first broker", forwarded, delivered, "cpu_us", "at most 1.3"
        )

    def _rewriting(self) -> None:
        plain = self._rate(self._ours, 1)
        changed = self._rate(self._ours_changed, 1)
        _tell("as it is", plain)
        _tell("another topic, a property more", changed)
        _tell_ratio("processor time of the first broker", changed, plain, "cpu_us", "at most 1.5")

    def _latency(self) -> None:
        arguments = ("latency", "--rate", "1000", "--qos", "1")
        # At QoS 1 to the end: to a subscriber at QoS 0 one broker alone hands on before its disk
        # has the message, which no bridge may.
        two = self._median(lambda: self._ours(arguments, 1))
        one = self._median(lambda: self._alone(arguments, 1))
        for each in (one, two):
            assert each["p50_us"] > 0, "the generator told no latency"
        print(f"  through both brokers: p50 {two['p50_us']:.0f} us; one: {one['p50_us']:.0f} us")
        _tell_ratio("p50", two, one, "p50_us", "at most 2.2")

    def _away(self) -> None:
        arguments = ("pair", "--pairs", str(PAIRS), "--window", str(WINDOW), "--qos", "1")
        without = self._median(lambda: self._single(Holdfast, arguments))
        beside = self._median(lambda: self._single(BridgedHoldfast, arguments))
        _tell("publishers without a bridge", without)
        _tell("with a bridge whose remote is away", beside)
        _tell_ratio("rate", beside, without, "rate", "at least 0.95")
        grown = beside["grown_mib"] - without["grown_mib"]
        print(f"  memory more than without: {grown:.0f} MiB (at most 32)")

    def _many(self) -> None:
        arguments = ("pair", "--pairs", str(BRIDGES), "--window", "20", "--qos", "1")
        one = self._median(lambda: self._ours(arguments, 0))
        many = self._median(lambda: self._ours_many(arguments, 0))
        _tell("one bridge with all of it", one)
        _tell(f"{BRIDGES} bridges with a part each", many)
        _tell_ratio("rate", many, one, "rate", "at least 0.9")

    def _drain(self) -> None:
        live = self._rate(self._ours, 1)
        drained = median(self._drained() for _ in range(self._repetitions))
        _tell("as they come", live)
        print(f"  a million that wait: {drained:,.0f} messages/s", flush=True)
        print(f"  ratio: {drained / live['rate']:.2f} (at least 1)", flush=True)

    def _drained(self) -> float:
        first = BridgedHoldfast(self._program, "fsync")
        first.http_port = free_port()
        load = Row("bridge", ("pair", "--pairs", str(PAIRS), "--window", "200", "--qos", "1"), ())
        with self._pair(first) as pair:
            return drained_per_second(first, pair, load)

    def _idle(self) -> None:
        one, many = (
            median(self._resident_kib(count) for _ in range(self._repetitions))
            for count in (1, 1 + BRIDGES)
        )
        print(f"  memory of an idle bridge: {(many - one) / BRIDGES:.1f} KiB (less than 64)")

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

    def _rate(self, run: Callable[[tuple[str, ...], int], Figures], qos: int) -> Figures:
        arguments = ("pair", "--pairs", str(PAIRS), "--window", str(WINDOW), "--qos", str(qos))
        return self._median(lambda: run(arguments, 0))

    def _median(self, run: Callable[[], Figures]) -> Figures:
        runs = [run() for _ in range(self._repetitions)]
        return {name: median(each[name] for each in runs) for name in runs[0]}

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


def _figures(raw: dict[str, float]) -> Figures:
    before, after = raw["broker_resident_kib_before"], raw["broker_resident_kib_after"]
    return {
        "rate": raw["received"] / raw["seconds"],
        "cpu_us": raw["broker_processor_s"] / (raw["received"] or 1) * 1e6,
        "p50_us": raw.get("latency_p50_us", 0.0),
        "grown_mib": (after - before) / 1024,
    }


def _tell(what: str, figures: Figures) -> None:
    rate, cpu = figures["rate"], figures["cpu_us"]
    print(f"  {what}: {rate:,.0f} messages/s, {cpu:.2f} us of the first broker each", flush=True)


def _tell_ratio(what: str, one: Figures, other: Figures, name: str, wanted: str) -> None:
    print(f"  ratio, {what}: {one[name] / (other[name] or 1):.2f} ({wanted})", flush=True)


def main() -> int:
    """Measures as asked."""
    parser = argparse.ArgumentParser(prog="python -m bench.bridge", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="LINE")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--warm-up", type=float, default=2.0)
    options = parser.parse_args()
    mosquitto = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    if not Path(mosquitto).exists():
        print("mosquitto is missing; see `make bench-setup`", file=sys.stderr)
        return 1
    allow_many_connections()
    build_generator()
    WORK.mkdir(parents=True, exist_ok=True)
    print(f"{machine.commit()} on {machine.describe()}")
    try:
        Bench(Path(sys.executable).with_name("holdfast"), mosquitto, options).run(options.only)
    except BrokerError as error:
        print(f"bench.bridge: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
