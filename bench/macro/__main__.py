"""The command line: measure and render, or render only."""

import argparse
import os
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

from bench.macro import machine, page, table
from bench.macro.brokers import (
    Amqtt,
    Broker,
    FlashMQ,
    Forwarder,
    Holdfast,
    Mosquitto,
    Nats,
    Pulsar,
    RabbitMQ,
    allow_many_connections,
)
from bench.macro.measurement import Measurement, Timing, build_generator, measure
from bench.macro.results import DIRECTORY, Result, newest
from bench.macro.rows import APACHE_PULSAR, EVERYBODY, FORWARDER, ROWS, Row

# In an environment of its own: `make bench-setup` makes it.
AMQTT = machine.ROOT / "target" / "bench-peers" / "bin" / "amqtt"

PEERS = (*EVERYBODY, APACHE_PULSAR, FORWARDER)

# Part of the rows, or too short to be trusted: shown, kept for a look, never rendered.
PARTIAL = DIRECTORY / "partial.tmp"


def main() -> int:
    """Measure as asked. The exit code says whether there is a result, not whether it is good."""
    options = _parse()
    if options.render:
        result = newest()
        if result is None:
            print("There is no result yet in bench/results.", file=sys.stderr)
            return 1
        page.render(result)
        print(f"Rendered {page.PAGE.relative_to(machine.ROOT)} from {result.file_name}.")
        return 0
    rows = [row for row in ROWS if not options.only or _is_chosen(row, options.only)]
    if not rows:
        print(f"No such row. There are: {', '.join(row.name for row in ROWS)}", file=sys.stderr)
        return 1
    brokers = _brokers(options)
    if brokers is None:
        return 1
    allow_many_connections()
    build_generator()
    result = _run(options, rows, brokers)
    print(f"\n{table.as_text(result)}\n")
    if options.again:
        whole = newest()
        if whole is None:
            print("There is no result yet in bench/results.", file=sys.stderr)
            return 1
        result = whole.with_rows_of(result)
    elif options.quick or len(rows) < len(ROWS):
        result.write(PARTIAL)
        return 0
    result.write(DIRECTORY / result.file_name)
    page.render(result)
    print(f"Wrote bench/results/{result.file_name} and {page.PAGE.relative_to(machine.ROOT)}.")
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.macro", description=__doc__)
    parser.add_argument("--only", action="append", metavar="ROW", help="rows that begin with this")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="measured part of each run")
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds before it")
    parser.add_argument(
        "--peer", action="append", choices=(*PEERS, "none"), help="only these; default: all"
    )
    parser.add_argument("--without-holdfast", action="store_true", help="measure the peer alone")
    parser.add_argument("--quick", action="store_true", help="one short repetition")
    parser.add_argument(
        "--again", action="store_true", help="put the rows into the newest result, which says so"
    )
    parser.add_argument("--render", action="store_true", help="render the newest result again")
    parser.add_argument("--durability", choices=("fsync", "os", "memory"), default="fsync")
    parser.add_argument(
        "--holdfast", type=Path, default=Path(sys.executable).with_name("holdfast"),
        help="the program to measure",
    )  # fmt: skip
    options = parser.parse_args()
    if options.quick:
        options.repetitions, options.seconds, options.warm_up = 1, 1.0, 0.5
    return options


def _is_chosen(row: Row, prefixes: list[str]) -> bool:
    return any(row.name.startswith(prefix) for prefix in prefixes)


def _brokers(options: argparse.Namespace) -> list[Broker] | None:
    brokers: list[Broker] = []
    if not options.without_holdfast:
        if not options.holdfast.exists():
            print(f"{options.holdfast} is not there: make setup", file=sys.stderr)
            return None
        brokers.append(Holdfast(options.holdfast, options.durability))
    for name in options.peer or PEERS:
        if name == "none":
            continue
        peer = peer_broker(name)
        if peer is None:
            print(
                f"{name} is not there: make bench-setup, or leave it out with --peer",
                file=sys.stderr,
            )
            return None
        brokers.append(peer)
    return brokers


def peer_broker(name: str) -> Broker | None:
    """A peer where it is installed."""
    if name == "rabbitmq":
        return RabbitMQ() if RabbitMQ.PROGRAM.exists() else None
    if name == "amqtt":
        return Amqtt(AMQTT) if AMQTT.exists() else None
    if name == APACHE_PULSAR:
        return Pulsar() if Pulsar.JARS.exists() else None
    if name == FORWARDER:
        return Forwarder()  # It is built with the generator.
    if name == "flashmq":
        named = shutil.which(os.environ.get(FlashMQ.VARIABLE, "flashmq"))
        return FlashMQ(named) if named else None
    kind, program = {"mosquitto": (Mosquitto, "mosquitto"), "nats": (Nats, "nats-server")}[name]
    # Debian puts them where only root's PATH leads.
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin")
    return kind(found) if found else None


def _run(options: argparse.Namespace, rows: list[Row], brokers: list[Broker]) -> Result:
    timing = Timing(options.warm_up, options.seconds)
    measurements: list[Measurement] = []
    plays = {row.name: [b for b in brokers if b.name in ("holdfast", *row.peers)] for row in rows}
    total = options.repetitions * sum(len(who) for who in plays.values())
    for repetition in range(1, options.repetitions + 1):
        for row in rows:
            # The order turns with each repetition: what the disk or the machine does after the one
            # before it then hits all of them.
            order = plays[row.name] if repetition % 2 else plays[row.name][::-1]
            for broker in order:
                number = len(measurements) + 1
                print(f"[{number:3}/{total}] {row.name:20} {broker.name:10}", end=" ", flush=True)
                measurement = measure(row, broker, repetition, timing)
                measurements.append(measurement)
                print(_progress(row, measurement), flush=True)
    return Result(
        date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M"),
        commit=machine.commit(),
        machine=machine.describe(),
        brokers={broker.name: broker.version() for broker in brokers},
        options={
            "repetitions": options.repetitions,
            "seconds": options.seconds,
            "warm_up_seconds": options.warm_up,
            "durability": options.durability,
        },
        measurements=measurements,
    )


def _progress(row: Row, measurement: Measurement) -> str:
    figures = measurement.figures
    if measurement.error:
        return f"failed: {measurement.error}"
    shown = [
        f"{line.title.rpartition(', ')[2] if index else ''} "
        f"{figures[line.figure] * line.scale:8.1f} {line.unit}".strip()
        for index, line in enumerate(row.lines)
    ]
    return (
        f"{', '.join(shown)}; broker {figures['broker_processor_us']:.2f} us a message, "
        f"{figures['resident_mib_peak']:.0f} MiB; generator {figures['generator_share']:.0%}"
    )


if __name__ == "__main__":
    sys.exit(main())
