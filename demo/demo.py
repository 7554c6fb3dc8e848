"""From a fleet's messages, through a broker that is killed, to two subscribers, a Spark table and a
picture.

Run by `make demo`. Ends by itself; the exit code is 0 only if every count agrees.
"""

import shutil
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from broker import BrokerProcess
from fleet import Fleet
from picture import Curve, Span, draw
from subscriber import Subscriber
from table import Reads, Tables
from verdict import Arrived, compare

from holdfast.reading.remote import RemoteLog

OUTPUT = Path("demo-output")
READERS = 16
REPORTS_PER_SECOND = 500
"""A subscriber that is away is kept 10 000 messages by default: here, those of twenty seconds."""
SEED = 9600
SETTLE_TIMEOUT_S = 40


@dataclass(frozen=True)
class Outcome:
    """Everything that the report is made of."""

    fleet: Fleet
    arrived: list[Arrived]
    first_run: int
    second_run: int
    rows: int
    distinct_offsets: int
    log_records: int
    reads: Reads
    publishing_s: float
    outage_s: float

    def agrees(self) -> bool:
        """True if nothing was lost or doubled anywhere, and every end counts the same."""
        ledger = self.fleet.ledger
        return (
            ledger.sent == ledger.acknowledged
            and ledger.refused == 0
            and all(end.lost == end.duplicated == 0 for end in self.arrived)
            and self.first_run > 0
            and self.second_run > 0
            and self.first_run + self.second_run == self.rows
            and self.rows == self.distinct_offsets == self.log_records
            and self.reads.parsed + self.reads.rejected.total() == self.rows
        )


class Progress:
    """Lines with the time, so that whoever watches knows that it moves."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """Prints a line at once."""
        print(f"[{time.monotonic() - self._began:5.1f} s] {text}", flush=True)


def main() -> int:
    """Plays the demo in a fresh directory, and ends everything that it started."""
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir()
    broker = BrokerProcess(OUTPUT / "data", OUTPUT / "broker.log")
    fleet = Fleet(READERS, SEED)
    pipeline = Tables(broker.http_address, OUTPUT)
    try:
        outcome = play(broker, fleet, pipeline, Progress())
    finally:
        fleet.stop()
        pipeline.close()
        broker.stop()
    print(format_report(outcome))
    return 0 if outcome.agrees() else 1


@dataclass
class Stage:
    """Who takes part."""

    broker: BrokerProcess
    fleet: Fleet
    pipeline: Tables
    progress: Progress
    steady: Subscriber
    absent: Subscriber


@dataclass(frozen=True)
class Times:
    """When what happened, by one clock."""

    began: float
    left: float
    killed: float
    restarted: float
    returned: float
    ended: float


def play(broker: BrokerProcess, fleet: Fleet, pipeline: Tables, progress: Progress) -> Outcome:
    """The story, in its order."""
    opening = threading.Thread(target=pipeline.open)
    opening.start()
    progress.say(f"broker ready after {broker.start():.2f} s on port {broker.mqtt_port}")
    steady, absent = (Subscriber(name, broker.mqtt_port) for name in ("dashboard", "warehouse"))
    steady.subscribe()
    absent.subscribe()
    fleet.connect(broker.mqtt_port)
    progress.say(f"{READERS} readers connected, two subscribers with persistent sessions")
    opening.join()
    progress.say("Spark is there; the readers report")
    stage = Stage(broker, fleet, pipeline, progress, steady, absent)
    first, times = publish(stage)
    settle(fleet, [steady, absent], progress)
    progress.say(f"{fleet.ledger.acknowledged.total()} of {fleet.ledger.sent.total()} acknowledged")
    outcome = examine(stage, first, times)
    draw_picture(stage, times)
    stage.pipeline.report(OUTPUT / "report.html")
    steady.leave()
    absent.leave()
    return outcome


def publish(stage: Stage) -> tuple[int, Times]:
    """The readers report all the time, whatever happens to the others meanwhile."""
    fleet, absent, progress = stage.fleet, stage.absent, stage.progress
    began = time.monotonic()
    fleet.report_for(4, REPORTS_PER_SECOND)
    progress.say(f"{fleet.ledger.acknowledged.total()} acknowledged; first Spark run")
    first: list[int] = []
    running = threading.Thread(target=lambda: first.append(stage.pipeline.run()))
    running.start()
    while running.is_alive():
        fleet.report_for(1, REPORTS_PER_SECOND)
    absent.leave()
    left = time.monotonic()
    progress.say(f"first Spark run has written {first[0]} rows; subscriber warehouse leaves")
    fleet.report_for(3, REPORTS_PER_SECOND)
    stage.broker.kill()
    killed = time.monotonic()
    progress.say(f"kill -9 of the broker at {fleet.ledger.acknowledged.total()} acknowledged")
    fleet.report_for(1.5, REPORTS_PER_SECOND)
    recovery_s = stage.broker.start()
    restarted = time.monotonic()
    progress.say(f"broker ready again after {recovery_s:.2f} s; the readers went on reporting")
    fleet.report_for(4, REPORTS_PER_SECOND)
    absent.come_back()
    returned = time.monotonic()
    progress.say(f"subscriber warehouse comes back, with {absent.messages} messages so far")
    fleet.report_for(3, REPORTS_PER_SECOND)
    return first[0], Times(began, left, killed, restarted, returned, time.monotonic())


def examine(stage: Stage, first_run: int, times: Times) -> Outcome:
    """Lets Spark take the rest, and counts at every end."""
    stage.pipeline.restart()
    second = stage.pipeline.run()
    stage.progress.say(f"second Spark run, after a restart, has added {second} rows")
    extent = RemoteLog(stage.broker.http_address).extent()
    rows = stage.pipeline.rows()
    ledger = stage.fleet.ledger
    return Outcome(
        fleet=stage.fleet,
        arrived=[
            compare("dashboard", ledger, stage.steady.so_far()),
            compare("warehouse", ledger, stage.absent.so_far()),
            compare("table", ledger, Counter(rows["value"].to_pylist())),
        ],
        first_run=first_run,
        second_run=second,
        rows=rows.num_rows,
        distinct_offsets=len(set(rows["offset"].to_pylist())),
        log_records=extent.end - extent.begin,
        reads=stage.pipeline.reads(),
        publishing_s=times.ended - times.began,
        outage_s=times.restarted - times.killed,
    )


def draw_picture(stage: Stage, times: Times) -> None:
    """Both ends of the broker over time, and who was away when."""
    series = {
        "acknowledged to the readers": stage.fleet.ledger.acknowledged_at,
        "delivered to dashboard (stays)": stage.steady.delivered_at,
        "delivered to warehouse (away)": stage.absent.delivered_at,
    }
    curves = [Curve(label, [at - times.began for at in when]) for label, when in series.items()]
    gone = Span("broker gone", times.killed - times.began, times.restarted - times.began)
    away = Span("warehouse away", times.left - times.began, times.returned - times.began)
    draw(OUTPUT / "reads.png", curves, [gone, away])


def settle(fleet: Fleet, subscribers: list[Subscriber], progress: Progress) -> None:
    """Waits until all is acknowledged and what is acknowledged is delivered, or time is up."""
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    told = time.monotonic()
    while time.monotonic() < deadline:
        waiting = fleet.collect()
        missing = sum(compare("", fleet.ledger, each.so_far()).lost for each in subscribers)
        if waiting == 0 and missing == 0:
            # Whatever would still come now would be one too many, and shall be seen.
            time.sleep(1)
            return
        if time.monotonic() - told > 2:
            told = time.monotonic()
            progress.say(f"{waiting} wait for their acknowledgement, {missing} for their delivery")
        time.sleep(0.2)


def format_report(outcome: Outcome) -> str:
    """The counts side by side."""
    ledger = outcome.fleet.ledger
    sent, acknowledged = ledger.sent.total(), ledger.acknowledged.total()
    lines = [
        "",
        f"sent          {sent}",
        f"acknowledged  {acknowledged}  ({acknowledged / outcome.publishing_s:.0f} a second, "
        f"with {outcome.outage_s:.1f} s of outage)",
    ]
    lines += [
        f"{end.where:13} {end.messages}  lost {end.lost}, duplicated {end.duplicated} "
        f"(QoS 1 sent again: {end.repeated})"
        for end in outcome.arrived
    ]
    reads = outcome.reads
    lines += [
        f"in the table  {outcome.first_run} + {outcome.second_run} = {outcome.rows} rows, "
        f"records in the log {outcome.log_records}",
        f"tag reads     {reads.parsed} parsed, {reads.rejected.total()} rejected, "
        f"{reads.once} after repeated reports were dropped",
    ]
    lines += [f"  rejected    {number:5}  not: {rule}" for rule, number in reads.rejected.items()]
    lines.append(f"picture       {OUTPUT / 'reads.png'}")
    lines.append(f"report        {OUTPUT / 'report.html'}")
    lines.append("THE COUNTS AGREE" if outcome.agrees() else "THE COUNTS DO NOT AGREE")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
