"""A soak: mixed load with churn for a given time, and what the broker holds meanwhile.

Owns: the broker, the clients' beginning and end, the report.
Never: forgives; one lost message fails the run.
"""

import asyncio
import contextlib
import http.client
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from holdfast import system
from tests.process import HOST, BrokerProcess
from tests.soak.churn import Churn
from tests.soak.fleet import Fleet, Size
from tests.soak.residents import APPLICATIONS, PARTIES, Residents
from tests.soak.samples import (
    MIB,
    QUANTITIES,
    WARM_UP_ROUNDS,
    Sample,
    descriptors,
    disk_bytes,
    growth,
    judged,
    remembered_bytes,
    resident_bytes,
    sockets,
)
from tests.soak.tally import Tally

SAMPLES = 120
"""How many samples a run has, at most one a second."""
SCRAPED_EVERY_S = 1.0
SCRAPED = (
    "/metrics",
    "/v1/statistics",
    "/v1/sessions",
    "/v1/topics?filter=soak%2F%23",
    "/v1/queues",
)
DRAINED_WITHIN_S = 120.0
GONE_WITHIN_S = 30.0
SETTINGS: dict[str, object] = {
    "segment_bytes": "2MiB",
    "checkpoint_bytes": "4MiB",
    "retention_bytes": "24MiB",
    "cache_bytes": "8MiB",
    "session_ttl_s": "20s",
    "session_expiry_cron": "*/2 * * ? * *",
    "shared_group_expiry_s": "3s",
    "application_client_identifiers": APPLICATIONS,
    "application_pack_messages_maximum": 20,
    "application_retries": 0,
}
"""Small, so that within a minute everything has come round several times; but a session outlives
the absence of a resident on a machine that is busy."""


@dataclass
class Soaked:
    """What a soak found."""

    seed: int
    samples: list[Sample] = field(default_factory=list)
    lacking: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    scrapes: int = 0
    wills: int = 0
    passers_by: int = 0
    visits: int = 0
    """How often one of the fleet came back."""

    def text(self) -> str:
        """For people."""
        last = self.samples[-1]
        lines = [
            f"{last.at_s:.0f} s, seed {self.seed}: {last.acknowledged} acknowledged,"
            f" {last.arrived} delivered, {self.passers_by} passers-by,"
            f" {self.visits} visits of the fleet, {self.wills} Wills, {self.scrapes} scrapes"
        ]
        warm = judged(self.samples)
        if not warm:
            lines.append(
                f"  NOT JUDGED: the fleet came {last.rounds:.1f} times; nothing is judged before it"
                f" has come {WARM_UP_ROUNDS:.0f} times, so take more minutes"
            )
        for quantity in QUANTITIES if warm else ():
            first, end, flat = growth(warm, quantity)
            verdict = "flat" if flat else "GROWS"
            unit = f" {quantity.unit}".rstrip()
            lines.append(f"  {quantity.title}: {first:.1f} to {end:.1f}{unit}: {verdict}")
        lines += [f"  {party} lacks {count}" for party, count in self.lacking.items()]
        lines += [f"  {fault}" for fault in self.faults]
        return "\n".join(lines)

    @property
    def kept_its_promises(self) -> bool:
        """True if nothing was lost, doubled or left open."""
        return not self.lacking and not self.faults

    @property
    def is_flat(self) -> bool:
        """True if nothing grew, as far as can be said."""
        warm = judged(self.samples)
        return bool(warm) and all(growth(warm, quantity)[2] for quantity in QUANTITIES)


@dataclass(frozen=True)
class Look:
    """Who and what is looked at."""

    broker: BrokerProcess
    tally: Tally
    churn: Churn
    fleet: Fleet
    size: Size

    async def sample(self, at_s: float) -> Sample:
        """This moment."""
        process = self.broker.process_identifier
        metrics = await asyncio.to_thread(_fetch, self.broker.http_port, "/metrics")
        return Sample(
            at_s,
            resident_bytes(process),
            descriptors(process),
            await asyncio.to_thread(disk_bytes, self.broker.data_directory),
            remembered_bytes(metrics),
            self.size.rounds(self.fleet.visits),
            self.tally.acknowledged,
            self.tally.arrived,
            self.churn.count,
        )


async def soak(
    directory: Path,
    *,
    seconds: float,
    seed: int,
    say: Callable[[str], None],
    size: Size | None = None,
) -> Soaked:
    """Runs for so long, with a fleet of this size; `say` gets a line for each sample."""
    random = Random(seed)
    broker = BrokerProcess(directory, http_port=0, **SETTINGS)
    await asyncio.to_thread(broker.start)
    tally = Tally(PARTIES)
    residents = Residents(HOST, broker.port, tally, Random(random.getrandbits(63)))
    churn = Churn(HOST, broker.port, tally, Random(random.getrandbits(63)))
    size = size or Size()
    fleet = Fleet(HOST, broker.port, tally, Random(random.getrandbits(63)), size)
    soaked = Soaked(seed)
    before = sockets(broker.process_identifier)
    scraping = asyncio.get_running_loop().create_task(_scrape(broker.http_port, soaked))
    try:
        await residents.begin()
        await fleet.begin()
        churn.begin()
        look = Look(broker, tally, churn, fleet, size)
        await _sample(look, seconds, soaked, say)
        await churn.end()
        await fleet.end()
        soaked.lacking = await residents.end(DRAINED_WITHIN_S)
        await residents.close()
        if scraping.done():
            soaked.faults.append(f"scraping ended: {scraping.exception()}")
        scraping.cancel()
        await asyncio.gather(scraping, return_exceptions=True)
        soaked.faults += [*tally.faults, *await _left_open(broker, before)]
    finally:
        scraping.cancel()
        await churn.end()
        await fleet.end()
        await residents.close()
        status = await asyncio.to_thread(broker.stop) if broker.is_running() else -1
    if status:
        soaked.faults.append(f"the broker ended with {status}:\n{broker.log()}")
    soaked.wills, soaked.passers_by, soaked.visits = tally.wills, churn.count, fleet.visits
    return soaked


async def _sample(look: Look, seconds: float, soaked: Soaked, say: Callable[[str], None]) -> None:
    began = system.monotonic_s()
    say(
        "  seconds   memory MiB  remembered  descriptors   disk MiB  acknowledged  delivered"
        "  passers-by  rounds"
    )
    while (at_s := system.monotonic_s() - began) < seconds:
        sample = await look.sample(at_s)
        soaked.samples.append(sample)
        say(
            f"{at_s:9.0f} {sample.resident_bytes / MIB:12.1f} {sample.remembered_bytes / MIB:11.1f}"
            f" {sample.descriptors:12} {sample.disk_bytes / MIB:10.1f} {sample.acknowledged:13}"
            f" {sample.arrived:10} {sample.passers_by:11} {sample.rounds:7.1f}"
        )
        await asyncio.sleep(max(seconds / SAMPLES, 1.0))


async def _scrape(port: int, soaked: Soaked) -> None:
    """Whoever watches: each page once a second."""
    while True:
        for path in SCRAPED:
            await asyncio.to_thread(_fetch, port, path)
            soaked.scrapes += 1
        await asyncio.sleep(SCRAPED_EVERY_S)


def _fetch(port: int, path: str) -> str:
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        content = answer.read().decode()
    assert answer.status == 200, f"{path} was answered with {answer.status}"
    return content


async def _left_open(broker: BrokerProcess, before: int) -> list[str]:
    """Everybody has gone; returns what is open nevertheless."""
    began = system.monotonic_s()
    while (left := sockets(broker.process_identifier)) > before:
        if system.monotonic_s() - began > GONE_WITHIN_S:
            return [f"{left} sockets are open after everybody has gone, {before} at the start"]
        await asyncio.sleep(0.1)
    return []
