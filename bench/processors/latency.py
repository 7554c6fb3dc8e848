"""How soon a read is a row, and how soon a processor is subscribed, in a process of its own.

`python -m bench.processors.latency PORT SINK` publishes at a steady rate to a processor and prints
what it found as JSON.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median, quantiles

from bench.processors.drains import HOST, TOPIC, payload
from holdfast import system
from holdfast.client.mqtt import Client, ClientOptions, Publication
from holdfast.processors.process import run
from holdfast.processors.settings import ProcessorSettings
from holdfast.processors.sink import Committed, Sink
from holdfast.processors.sinks import open_sink
from holdfast.processors.table import IdentifiedRow, Table
from holdfast.processors.zebra import ZebraRfid

READS = 8_000
TOGETHER = 10
EVERY_S = 0.01
"""Ten reads each hundredth of a second."""
LOOK_EVERY_S = 0.001


class Watch:
    """When each read was published and when it was a row."""

    def __init__(self) -> None:
        self.published: dict[int, float] = {}
        self.took_s: list[float] = []
        self.commits_s: list[float] = []

    def opened(self, url: str) -> Sink:
        """A sink that is watched."""
        sink = open_sink(url)
        commit: Callable[[Table, Sequence[IdentifiedRow]], Committed] = sink.commit

        def watched(table: Table, rows: Sequence[IdentifiedRow]) -> Committed:
            began_s = time.monotonic()
            committed = commit(table, rows)
            now_s = time.monotonic()
            self.commits_s.append(now_s - began_s)
            numbers = (row.row["event_number"] for row in rows)
            self.took_s += [now_s - self.published[number] for number in numbers]
            return committed

        sink.commit = watched  # type: ignore[method-assign]
        return sink


async def until(is_so: Callable[[], bool]) -> None:
    """Looks again and again."""
    while not is_so():  # noqa: ASYNC110 - what it looks at tells nobody.
        await asyncio.sleep(LOOK_EVERY_S)


async def measure(port: int, sink: str) -> dict[str, float]:
    """One run."""
    # As `serve` does.
    system.share_interpreter()
    system.calm_garbage_collector()
    watch = Watch()
    settings = ProcessorSettings(
        name="ZebraRfid",
        broker_host=HOST,
        broker_port=port,
        tls=False,
        environment="bench",
        client_identifier="latency",
        topics=(TOPIC,),
        sink=sink,
    )
    began_s = time.monotonic()
    async with run(ZebraRfid(), settings, sink=watch.opened) as running:
        await until(lambda: running.waits_for() is None)
        subscribed_s = time.monotonic() - began_s
        publisher = Client("reader", ClientOptions(in_flight_maximum=1_000))
        await publisher.connect(HOST, port)
        next_s = time.monotonic()
        for first in range(0, READS, TOGETHER):
            now_s = time.monotonic()
            numbers = range(first, first + TOGETHER)
            watch.published |= dict.fromkeys(numbers, now_s)
            publisher.publish(
                *(Publication("zebra/fx/0/reads", payload(number), 2) for number in numbers)
            )
            next_s += EVERY_S
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))
        await until(lambda: len(watch.took_s) >= READS)
        publisher.disconnect()
    return {
        "subscribed_s": subscribed_s,
        "p50_s": median(watch.took_s),
        "p99_s": quantiles(watch.took_s, n=100)[98],
        "commit_s": median(watch.commits_s),
        "wanted_s": settings.batch_age_s + 5 * median(watch.commits_s),
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(int(sys.argv[1]), sys.argv[2]))))
