"""One drain, in a process of its own: some messages that wait, taken by one kind of client.

`python -m bench.processors.drains KIND JSON` prints what it took as JSON. The clock runs from the
first message to the last one that is done with.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiomqtt
import gmqtt

from holdfast import system
from holdfast.client.consumer import Arrival, Consumer
from holdfast.client.mqtt import ClientOptions
from holdfast.processors.message import Message
from holdfast.processors.process import run
from holdfast.processors.session import Session
from holdfast.processors.settings import ProcessorSettings
from holdfast.processors.sink import Committed, Sink
from holdfast.processors.sinks import open_sink
from holdfast.processors.table import IdentifiedRow, Table
from holdfast.processors.zebra import ZebraRfid

HOST = "127.0.0.1"
BATCH = 1_000
RECEIVE_MAXIMUM = 2_000
EXPIRY_S = 3_600
TOPIC = "zebra/fx/+/reads"
QUIET_S = 2.0
"""A member of a group that has got nothing for so long has had its share."""


@dataclass
class Told:
    """What a drain is told."""

    port: int
    count: int
    name: str = "drain"
    group: str = ""
    sink: str = ""
    began_s: float = 0.0
    began_cpu_s: float = 0.0
    ended_s: float = 0.0
    taken: int = 0
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self) -> None:
        """The first message is there."""
        if not self.began_s:
            self.began_s, self.began_cpu_s = time.monotonic(), time.process_time()

    def take(self, count: int) -> None:
        """So many more are done with."""
        self.taken += count
        self.ended_s = time.monotonic()
        if self.taken >= self.count:
            self.done.set()

    def figures(self) -> dict[str, float]:
        """What it took."""
        cpu_s = time.process_time() - self.began_cpu_s
        return {
            "began_s": self.began_s,
            "ended_s": self.ended_s,
            "taken": self.taken,
            "rate": self.taken / max(self.ended_s - self.began_s, 1e-9),
            "cpu_us": cpu_s / max(self.taken, 1) * 1e6,
            "resident_mib": _most_resident_mib(),
        }


def _most_resident_mib() -> float:
    """The most memory that this process has held. What `getrusage` says of a new process begins
    with what its parent held."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


async def ours(told: Told) -> None:
    """The client alone: a batch is committed into nothing, and then acknowledged."""

    class Taking(Consumer):
        waiting: list[Arrival] = []  # noqa: RUF012

        def arrived(self, arrivals: Sequence[Arrival]) -> None:
            told.begin()
            self.waiting.extend(arrivals)
            while len(self.waiting) >= BATCH:
                batch, self.waiting = self.waiting[:BATCH], self.waiting[BATCH:]
                self.acknowledge_all(batch)
                told.take(len(batch))

    options = ClientOptions(session_expiry_interval_s=EXPIRY_S, receive_maximum=RECEIVE_MAXIMUM)
    client = Taking(told.name, options)
    await client.connect(HOST, told.port)
    await told.done.wait()


async def by_gmqtt(told: Told) -> None:
    """Each message's task waits until its batch is committed."""
    committed = asyncio.Event()
    waiting = 0

    async def arrived(_client: Any, _topic: str, _payload: bytes, _qos: int, _more: Any) -> int:
        nonlocal committed, waiting
        told.begin()
        mine = committed
        waiting += 1
        if waiting >= BATCH:
            told.take(waiting)
            waiting, committed = 0, asyncio.Event()
            mine.set()
        await mine.wait()
        return 0

    client = gmqtt.Client(
        told.name,
        clean_session=False,
        optimistic_acknowledgement=False,
        session_expiry_interval=EXPIRY_S,
        receive_maximum=RECEIVE_MAXIMUM,
    )
    client.on_message = arrived
    await client.connect(HOST, told.port)
    await told.done.wait()


def _aiomqtt(told: Told) -> aiomqtt.Client:
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    properties = Properties(PacketTypes.CONNECT)
    properties.SessionExpiryInterval = EXPIRY_S
    properties.ReceiveMaximum = RECEIVE_MAXIMUM
    return aiomqtt.Client(
        HOST,
        told.port,
        identifier=told.name,
        protocol=aiomqtt.ProtocolVersion.V5,
        clean_start=False,
        properties=properties,
    )


async def by_aiomqtt(told: Told) -> None:
    """PUBREC leaves before anybody sees the message: this client has no other way."""
    async with _aiomqtt(told) as client:
        async for _ in client.messages:
            told.begin()
            told.take(1)
            if told.done.is_set():
                return


async def rows_by_aiomqtt(told: Told) -> None:
    """The loop that one writes first: parse, gather a batch, write it."""
    zebra, sink = ZebraRfid(), open_sink(told.sink)
    sink.open(zebra.table)
    rows: list[IdentifiedRow] = []
    async with _aiomqtt(told) as client:
        async for each in client.messages:
            told.begin()
            message = _message(str(each.topic), bytes(each.payload))
            identity = f"{told.taken + len(rows)}"
            rows += [IdentifiedRow(identity, 0, row) for row in zebra.parse(message)]
            if len(rows) >= BATCH:
                sink.commit(zebra.table, rows)
                told.take(len(rows))
                rows = []
            if told.done.is_set():
                return


async def rows_of_list(told: Told) -> None:
    """The same messages, which are there already, parsed into the same sink."""
    zebra, sink = ZebraRfid(), open_sink(told.sink)
    sink.open(zebra.table)
    messages = [_message("zebra/fx/0/reads", payload(number)) for number in range(told.count)]
    told.begin()
    for start in range(0, len(messages), BATCH):
        rows = [
            IdentifiedRow(f"0123456789abcdef-{number}", 0, row)
            for number, message in enumerate(messages[start : start + BATCH], start)
            for row in zebra.parse(message)
        ]
        sink.commit(zebra.table, rows)
        told.take(len(rows))


def counting(told: Told, loop: asyncio.AbstractEventLoop) -> Callable[[str], Sink]:
    """Opens sinks that say how many rows they have written."""

    def opened(url: str) -> Sink:
        sink = open_sink(url)
        commit = sink.commit

        def counted(table: Table, rows: Sequence[IdentifiedRow]) -> Committed:
            committed = commit(table, rows)
            loop.call_soon_threadsafe(told.take, committed.written)
            return committed

        sink.commit = counted  # type: ignore[method-assign]
        return sink

    return opened


async def rows_by_processor(told: Told) -> None:
    """The processor as it runs."""
    arrived = Session.arrived

    def begin(self: Session, arrivals: Sequence[Arrival]) -> None:
        told.begin()
        arrived(self, arrivals)

    Session.arrived = begin  # type: ignore[method-assign]
    settings = ProcessorSettings(
        name="ZebraRfid",
        broker_host=HOST,
        broker_port=told.port,
        tls=False,
        environment="bench",
        client_identifier=told.name,
        group=told.group or None,
        topics=(TOPIC,),
        receive_maximum=RECEIVE_MAXIMUM,
        batch_messages=BATCH,
        sink=told.sink,
    )
    # As `serve` does.
    system.share_interpreter()
    system.calm_garbage_collector()
    loop = asyncio.get_running_loop()
    async with run(ZebraRfid(), settings, sink=counting(told, loop)):
        while not told.done.is_set():
            before = told.taken
            try:
                await asyncio.wait_for(told.done.wait(), QUIET_S)
            except TimeoutError:
                if told.group and before == told.taken:
                    return


def payload(number: int) -> bytes:
    """A read of one of four readers, now."""
    said = {
        "type": "SIMPLE",
        "timestamp": "2026-03-01T12:30:15.250+0000",
        "data": {
            "eventNum": number,
            "format": "epc",
            "idHex": f"E28011602000{number % 5_000:04X}",
            "antenna": number % 4 + 1,
            "peakRssi": -50,
            "reads": 2,
            "hostName": f"FX9600-{number % 4}",
        },
    }
    return json.dumps(said).encode()


def _message(topic: str, data: bytes) -> Message:
    return Message(topic, data, 2, False, False, (), None, time.time_ns() // 1_000)


KINDS: dict[str, Callable[[Told], Any]] = {
    "ours": ours,
    "gmqtt": by_gmqtt,
    "aiomqtt": by_aiomqtt,
    "rows-aiomqtt": rows_by_aiomqtt,
    "rows-list": rows_of_list,
    "rows-processor": rows_by_processor,
}


def main() -> None:
    """Drains, and says what it took."""
    told = Told(**json.loads(sys.argv[2]))
    asyncio.run(KINDS[sys.argv[1]](told))
    print(json.dumps(told.figures()))


if __name__ == "__main__":
    main()
