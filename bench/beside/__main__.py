"""The command line: which lines, which broker, which scale."""

import argparse
import fcntl
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from bench.beside import result as results
from bench.beside import stage
from bench.beside.axes import AXES
from bench.beside.figures import Moment, Sample
from bench.beside.lines import TABLE, Line
from bench.beside.pressure import PRESSURE
from bench.beside.result import DIRECTORY, HEADINGS, PARTIAL, Played, Result, aligned
from bench.beside.served import WORK, Ours, Theirs
from bench.beside.stage import Flow, Served
from bench.beside.wire import GoneError
from bench.macro import machine
from bench.macro.__main__ import peer_broker
from bench.macro.brokers import BrokerError, allow_many_connections
from bench.macro.measurement import build_generator
from bench.macro.results import newest

PAIRS_ROW = "50-pair-qos-1"
RATE_DEFAULT = 50_000
"""Where no result says what the pairs can do."""
LINES = (*TABLE, *PRESSURE, *AXES)
PEERS = ("mosquitto", "nats")


def main() -> int:
    """Plays as asked."""
    options = _parse()
    chosen = [line for line in LINES if _is_chosen(line, options.line)]
    if not chosen:
        print(f"No such line. There are: {', '.join(line.name for line in LINES)}", file=sys.stderr)
        return 1
    brokers = _brokers(options)
    allow_many_connections()
    build_generator()
    WORK.mkdir(parents=True, exist_ok=True)
    with (WORK / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another run is at work in this work tree.", file=sys.stderr)
            return 1
        return _measure(chosen, brokers, options)


def _measure(chosen: list[Line], brokers: list[Ours | Theirs], options: argparse.Namespace) -> int:
    """Plays the lines and writes what they gave."""
    played: list[Played] = []
    for line in chosen:
        for broker in brokers:
            if broker.name in ("holdfast", *line.peers):
                _say(f"{line.name}, {broker.name}: {line.title(options.scale)}")
                played.append(_play(line, broker, options))
                _say(aligned([HEADINGS, *played[-1].rows()]) + "\n")
    result = Result(
        date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M"),
        commit=machine.commit(),
        machine=machine.describe(),
        load_average=os.getloadavg()[0],
        brokers={broker.name: broker.version() for broker in brokers},
        played=played,
    )
    whole = not options.line and options.scale == 1 and not options.broker_from
    last = results.newest() if options.again else None
    if last is not None:
        result, whole = last.with_lines_of(result), True
    path = DIRECTORY / result.file_name if whole else PARTIAL
    result.write(path)
    _say(
        f"Wrote {path.relative_to(machine.ROOT)}; python -m bench.macro --render shows it if whole."
    )
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.beside", description=__doc__)
    parser.add_argument(
        "--line", action="append", metavar="LINE", help="only this one and its variants; as a, f"
    )
    parser.add_argument("--scale", type=int, default=1, help="how many times the numbers")
    parser.add_argument("--rate", type=int, help="messages a second of the pairs together")
    parser.add_argument("--fresh", action="store_true", help="make the logs anew")
    parser.add_argument(
        "--again", action="store_true", help="put the lines into the newest result, which says so"
    )
    parser.add_argument("--peer", action="append", choices=PEERS, help="also these, if they fit")
    parser.add_argument(
        "--broker-from", type=Path, metavar="DIRECTORY", help="measure the broker of this work tree"
    )
    parser.add_argument(
        "--holdfast", type=Path, default=Path(sys.executable).with_name("holdfast"),
        help="the program to measure",
    )  # fmt: skip
    options = parser.parse_args()
    if options.broker_from:
        options.holdfast = options.broker_from / ".venv" / "bin" / "holdfast"
    return options


def _is_chosen(line: Line, names: list[str] | None) -> bool:
    return not names or any(line.name == name or line.name.startswith(f"{name}-") for name in names)


def _brokers(options: argparse.Namespace) -> list[Ours | Theirs]:
    brokers: list[Ours | Theirs] = [Ours(options.holdfast)]
    for name in options.peer or ():
        peer = peer_broker(name)
        if peer is None:
            raise SystemExit(f"{name} is not there: make bench-setup, or leave it out")
        brokers.append(Theirs(peer))
    return brokers


def _play(line: Line, broker: Ours | Theirs, options: argparse.Namespace) -> Played:
    """Plays one line. A failure is a result too, with its reason."""
    scale = options.scale
    flow = line.flow or Flow(options.rate or _tenth(broker.name))
    moments: list[Moment] = []
    ended: list[str] = []
    error = None
    alone = stage.disk_alone(WORK)
    fill = line.fill
    try:
        with broker.serve(
            f"{line.log}-{scale}",
            (lambda port: fill(port, scale)) if fill else None,
            line.settings,
            fresh=options.fresh,
        ) as served:
            moments, ended = _moments(line, served, flow, scale)
    except (OSError, GoneError, BrokerError, AssertionError) as failure:
        error = f"{type(failure).__name__}: {failure}"
    alone += stage.disk_alone(WORK)
    return Played(
        line=line.name,
        title=line.title(scale),
        scale=scale,
        broker=broker.name,
        disk_alone_ms=_longest_ms(alone),
        moments=moments,
        bounds=list(line.bounds),
        ended=ended,
        is_probed=line.is_probed,
        error=error,
    )


def _moments(line: Line, served: Served, flow: Flow, scale: int) -> tuple[list[Moment], list[str]]:
    def act(found: stage.Stage) -> None:
        line.act(found, scale)

    if line.is_probed:
        return stage.play(served, flow, act, _say)
    return stage.play_alone(served, act, _say), []


def _longest_ms(samples: list[Sample]) -> float:
    return max(took for _, took in samples) / 1e6


def _tenth(broker: str) -> int:
    """A tenth of what the pairs reached at full speed, where that was measured."""
    measured = newest()
    spread = measured and measured.spread(PAIRS_ROW, broker, "messages_per_second")
    return int(spread.median / 10) if spread else RATE_DEFAULT


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
