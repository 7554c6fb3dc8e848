"""Kills the broker of Pulsar's own client, and of MQTT clients beside it, at random, and asks what
became of what it had told.

Owns: the kills, and the questions: nothing that has a receipt or a PUBACK is lost on either side of
either door, nothing is invented, an Exclusive consumer and an MQTT subscriber see each topic in
order, and a backlog is as long as what a full drain brings, which is all that has a receipt.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from holdfast import system
from tests.crash.pulsar.clients import COUNTED, MQTT, SUBSCRIPTIONS, TOPICS
from tests.interop.seen import Seen

LIVES_S: Final = ((0.05, 0.5), (0.5, 2.0))
"""How long the broker lives between kills."""
KILLED_WHILE_STARTING: Final = 0.2
STARTING_S: Final = 1.0
ANSWERED_WITHIN_S: Final = 900.0
PROGRAM: Final = (sys.executable, "-m", "tests.crash.pulsar.clients")
SHOWN_MAXIMUM: Final = 5


def _leave_as_it_is(_data_directory: Path) -> None:
    """Nothing happens to what a killed broker leaves."""


@dataclass
class Report:
    """What a run found."""

    seed: int
    kills: int = 0
    sent: int = 0
    receipts: int = 0
    deliveries: int = 0
    repeats: int = 0
    drained: int = 0
    """What was left in the end for those who had taken nothing."""
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        """True if nothing was violated."""
        return not self.violations

    def text(self) -> str:
        """For people."""
        lines = [
            f"{self.kills} kills in {self.seconds:.0f} s, seed {self.seed}: {self.sent} messages"
            f" sent, {self.receipts} with a receipt, {self.deliveries} deliveries, of which"
            f" {self.repeats} came again; {self.drained} drained;"
            f" {len(self.violations)} violations",
            *(f"  {each}" for each in self.violations[:SHOWN_MAXIMUM]),
        ]
        return "\n".join(lines)

    def write(self, file: Path) -> None:
        """As JSON."""
        file.write_text(json.dumps(asdict(self), indent=1) + "\n")


async def run(
    directory: Path,
    *,
    rounds: int,
    seed: int,
    say: Callable[[str], None],
    meanwhile: Callable[[Path], None] = _leave_as_it_is,
    drained_within_s: float = 60.0,
) -> Report:
    """Kills the broker `rounds` times. `meanwhile` is called with the data directory after each."""
    random, began = Random(seed), system.monotonic_s()
    sizes = {"segment_bytes": random.choice(("8MiB", "64MiB"))}
    # A backlog that is cut at a limit says the limit, whatever it has lost.
    broker = Seen(directory, pulsar_port=0, queue_messages_maximum=0, **sizes)
    await asyncio.to_thread(broker.start)
    report = Report(seed)
    log_file = directory / "clients.log"
    drawn = random.getrandbits(32)
    clients = None
    try:
        clients = await _begin(broker, drawn, drained_within_s, log_file)
        assert clients.stdout is not None
        assert await clients.stdout.readline() == b"ready\n", f"see {log_file}"
        for number in range(1, rounds + 1):
            await asyncio.sleep(random.uniform(*random.choice(LIVES_S)))
            await _kill(broker, report, meanwhile)
            if random.random() < KILLED_WHILE_STARTING:
                broker.launch()
                await asyncio.sleep(random.uniform(0.0, STARTING_S))
                await _kill(broker, report, meanwhile)
            took_s = await asyncio.to_thread(broker.start)
            say(f"kill {number}/{rounds}, back in {took_s:.3f} s")
        said, _ = await asyncio.wait_for(clients.communicate(b"\n"), ANSWERED_WITHIN_S)
        seen = json.loads(said)
        _judge(seen, report)
        await _compare_backlogs(broker, seen, report)
    finally:
        if clients is not None and clients.returncode is None:
            clients.kill()
            await clients.wait()
        if broker.is_running():
            await asyncio.to_thread(broker.stop)
    report.seconds = system.monotonic_s() - began
    return report


async def _begin(
    broker: Seen, seed: int, drained_within_s: float, log_file: Path
) -> asyncio.subprocess.Process:
    port, mqtt_port = broker.ports["pulsar"], broker.port
    with log_file.open("ab") as log:
        return await asyncio.create_subprocess_exec(
            *PROGRAM,
            *("--port", str(port), "--mqtt-port", str(mqtt_port), "--seed", str(seed)),
            *("--drained-within", str(drained_within_s)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )


async def _kill(broker: Seen, report: Report, meanwhile: Callable[[Path], None]) -> None:
    await asyncio.to_thread(broker.kill)
    report.kills += 1
    meanwhile(broker.data_directory)


def _judge(seen: dict[str, Any], report: Report) -> None:
    report.violations += seen["failed"]
    for topic in TOPICS:
        sent, receipts = seen["sent"][topic], set(seen["receipts"][topic])
        report.sent += sent
        report.receipts += len(receipts)
        for name in (*SUBSCRIPTIONS, MQTT):
            came = seen["delivered"].get(f"{topic} {name}", [])
            report.deliveries += len(came)
            report.repeats += len(came) - len(set(came))
            where = f"{topic} {name}"
            report.violations += _lost_or_invented(where, came, receipts, sent)
            if name in ("exclusive", MQTT):
                report.violations += _out_of_order(where, came)


def _lost_or_invented(where: str, came: list[int], receipts: set[int], sent: int) -> list[str]:
    lost, invented = receipts - set(came), set(came) - set(range(sent))
    return [
        *(f"{where}: {each} has a receipt and is lost" for each in sorted(lost)),
        *(f"{where}: {each} was never sent" for each in sorted(invented)),
    ]


def _out_of_order(name: str, came: list[int]) -> list[str]:
    """What came for the first time behind something newer."""
    newest, known, found = -1, set[int](), []
    for number in came:
        if number not in known and number < newest:
            found.append(f"{name}: {number} came first after {newest}")
        known.add(number)
        newest = max(newest, number)
    return found


async def _compare_backlogs(broker: Seen, seen: dict[str, Any], report: Report) -> None:
    told = await asyncio.to_thread(_told, broker)
    draining = await asyncio.create_subprocess_exec(
        *PROGRAM,
        *("--port", str(broker.ports["pulsar"]), "--drain"),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await asyncio.wait_for(draining.communicate(), ANSWERED_WITHIN_S)
    drained = json.loads(said)
    for topic in TOPICS:
        for name in SUBSCRIPTIONS:
            if waiting := told[f"subscription/{name}/{topic}"]:
                report.violations.append(f"{topic} {name}: {waiting} are told to wait, and none do")
        where, came = f"{topic} {COUNTED}", drained[topic]
        report.drained += len(came)
        receipts = set(seen["receipts"][topic])
        report.violations += _lost_or_invented(where, came, receipts, seen["sent"][topic])
        waiting = told[f"subscription/{COUNTED}/{topic}"]
        if waiting != len(came):
            line = f"{where}: {waiting} are told to wait, and {len(came)} do"
            report.violations.append(line)


def _told(broker: Seen) -> dict[str, int]:
    queues = broker.get("/v1/queues")["queues"]
    return {it["queue_name"]: sum(one["waiting"] for one in it["readers"]) for it in queues}
