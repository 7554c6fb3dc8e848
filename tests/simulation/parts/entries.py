"""Services that speak Pulsar's protocol: producers of entries, consumers Exclusive and Shared; and
devices on the same topic.

Owns: what services do, and the notebook of what they were told; it is judged at the end. What
producers send and what has a receipt is in the stage's history, as if devices had published it: so
whoever judges what devices get knows of it, and consumers are owed what devices have published.
Never: judges what devices get.
"""

import asyncio
from asyncio import StreamReader, StreamWriter
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from holdfast.protocols.pulsar.commands import read_answer, write_command
from holdfast.protocols.pulsar.fields import (
    FROM_BROKERS,
    CloseConsumer,
    Command,
    Error,
    InitialPosition,
    SubType,
    Success,
)
from tests.builders.entries import (
    ACK_RESPONSE,
    MESSAGE,
    SEND_ERROR,
    SEND_RECEIPT,
    Frame,
    acknowledge,
    entry,
    flow,
    frame,
    payloads_of,
    read_frame,
    redeliver,
    send,
)
from tests.builders.pulsar import connect, producer, subscribe
from tests.equipment.history import (
    Acknowledged,
    Damaged,
    History,
    Message,
    QueueLimited,
    Sent,
    parse_payload,
)
from tests.simulation.parts.devices import Devices
from tests.simulation.stage import Stage

TOPIC: Final = "entries"
PULSAR_PORT: Final = 6650
PRODUCERS: Final = 2
SUBSCRIPTIONS: Final = {"alone": SubType.EXCLUSIVE, "together": SubType.SHARED}
CONSUMERS: Final = {"alone": 1, "together": 3}
ENTRIES_MAXIMUM: Final = 120
"""What one producer sends in a run."""
MESSAGES: Final = (1, 1, 1, 3, 40)
"""How many an entry has; the seed draws."""
CROSSES_WITH_QOS: Final = 1
UNANSWERED_MAXIMUM: Final = 20
ANSWERED_WITHIN_S: Final = 60.0
"""Longer than a broker takes to find that its peer is gone, and to come back."""
SILENCE_S: Final = 40.0
DRAINED_WITHIN_S: Final = 1_500.0
PING, PONG = 18, 19


class LostConnectionError(Exception):
    """The connection is over, or says nothing any more."""


@dataclass
class Notebook:
    """What all of them were told."""

    sent: dict[tuple[str, int], bytes] = field(default_factory=dict)
    """Entries, by producer and the number of their first message."""
    delivered: dict[str, list[tuple[str, int]]] = field(
        default_factory=lambda: {name: [] for name in SUBSCRIPTIONS}
    )
    acknowledged: dict[str, dict[tuple[int, int], float]] = field(
        default_factory=lambda: {name: {} for name in SUBSCRIPTIONS}
    )
    """Message ids whose acknowledgement was answered, and when."""
    violations: list[str] = field(default_factory=list)

    def lacking(self, name: str, history: History) -> set[tuple[str, int]]:
        """What is acknowledged to producers and devices and has not come to a subscription, by
        publisher and number."""
        acknowledged = (it.message for it in history.events if isinstance(it, Acknowledged))
        owed = {(it.publisher, it.sequence) for it in acknowledged if it.topic == TOPIC}
        return owed - set(self.delivered[name])

    def out_of_order(self, name: str) -> list[tuple[str, int]]:
        """What came for the first time behind something newer of its producer."""
        newest: dict[str, int] = {}
        known, found = set[tuple[str, int]](), []
        for message in self.delivered[name]:
            by, number = message
            if message not in known and number < newest.get(by, -1):
                found.append(message)
            known.add(message)
            newest[by] = max(newest.get(by, -1), number)
        return found


class Door:
    """One connection of a client that was let in."""

    def __init__(self, reader: StreamReader, writer: StreamWriter, opened_at_s: float) -> None:
        self._reader = reader
        self._writer = writer
        self.opened_at_s = opened_at_s

    def send(self, *frames: bytes) -> None:
        """Sends frames that are made, while it is open."""
        if not self._writer.is_closing():
            self._writer.write(b"".join(frames))

    def tell(self, command: Command) -> None:
        """Sends a command."""
        self.send(write_command(command))

    async def next(self) -> Command | Frame:
        """What comes next, PING apart, which is answered. Raises `LostConnectionError`."""
        while True:
            try:
                async with asyncio.timeout(SILENCE_S):
                    head = await self._reader.readexactly(8)
                    total, size = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")
                    data = await self._reader.readexactly(total - 4)
            except (EOFError, OSError, TimeoutError) as error:
                raise LostConnectionError from error
            found = read_frame(data, size)
            if found.kind == PING:
                self.send(frame(PONG, b""))
            elif found.kind in FROM_BROKERS:
                return read_answer(data[:size])
            elif found.kind != PONG:
                return found

    async def expect_success(self) -> None:
        """The answer to a command; another one ends the connection."""
        answer = await self.next()
        if isinstance(answer, Error) or (isinstance(answer, Frame) and answer.kind != MESSAGE):
            raise LostConnectionError

    def drop(self) -> None:
        """Ends it without a word."""
        self._writer.close()


class Entries:
    """The part."""

    def __init__(self, stage: Stage) -> None:
        self.notebook = Notebook()
        self._stage = stage
        self.devices = Devices(stage, TOPIC)
        self._senders = [_Sender(self, f"p{number}") for number in range(PRODUCERS)]
        self._subscribed = asyncio.Event()
        self.is_over = False

    async def begin(self) -> None:
        for name in SUBSCRIPTIONS:
            # Each is there before anything is sent: what has a receipt is then for all of them.
            await self._until_it_holds(lambda door, name=name: self._leave_behind(door, name))
        self.devices.begin()
        for sender in self._senders:
            self._stage.start(self.live(sender.work))
            self._stage.start(sender.send())
        for name, count in CONSUMERS.items():
            for number in range(count):
                self._stage.start(self.live(_Taker(self, name, number + 1).work))

    async def end(self) -> None:
        self.devices.end()
        waited_s = 0.0
        while self._is_lacking() and waited_s < DRAINED_WITHIN_S:
            await asyncio.sleep(5.0)
            waited_s += 5.0
        self.is_over = True
        self._judge()

    async def live(self, work: Callable[[Door], Awaitable[None]]) -> None:
        """Connected whenever that is possible, until the end."""
        while not self.is_over:
            try:
                await self._connected(work)
            except LostConnectionError:
                await self._stage.pause(0.2, 2.0)

    async def _until_it_holds(self, work: Callable[[Door], Awaitable[None]]) -> None:
        while True:
            try:
                return await self._connected(work)
            except LostConnectionError:
                await self._stage.pause(0.2, 2.0)

    async def _connected(self, work: Callable[[Door], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(ANSWERED_WITHIN_S):
                reader, writer = await asyncio.open_connection(self._stage.host, PULSAR_PORT)
        except (OSError, TimeoutError) as error:
            raise LostConnectionError from error
        door = Door(reader, writer, self.now_s())
        try:
            door.tell(connect())
            await door.expect_success()
            await work(door)
        except (LostConnectionError, asyncio.CancelledError):
            door.drop()
            raise
        door.drop()

    async def _leave_behind(self, door: Door, name: str) -> None:
        await self.subscribe(door, name, 1)
        door.tell(CloseConsumer(consumer_id=1, request_id=2))
        await door.expect_success()

    async def subscribe(self, door: Door, name: str, number: int) -> None:
        """The door has a consumer of this number, which begins with the first message there is."""
        asked = subscribe(
            TOPIC,
            name,
            number,
            sub_type=SUBSCRIPTIONS[name],
            initial_position=InitialPosition.EARLIEST,
        )
        door.tell(asked)
        answer = await door.next()
        if not isinstance(answer, Success):
            raise LostConnectionError

    @property
    def stage(self) -> Stage:
        """Where it plays."""
        return self._stage

    def now_s(self) -> float:
        """Virtual time."""
        return self._stage.history.clock()

    def _is_lacking(self) -> bool:
        is_sending = any(sender.unanswered for sender in self._senders)
        history = self._stage.history
        return (
            is_sending
            or self.devices.is_publishing()
            or any(self.notebook.lacking(name, history) for name in SUBSCRIPTIONS)
        )

    def _judge(self) -> None:
        notebook, history = self.notebook, self._stage.history
        for sender in self._senders:
            assert not sender.unanswered, f"{sender.name} never got a receipt"
        may_lose = any(isinstance(event, Damaged | QueueLimited) for event in history.events)
        for name in SUBSCRIPTIONS:
            lacking = sorted(notebook.lacking(name, history))
            assert may_lose or not lacking, f"{name} never got {lacking[:5]}, acknowledged before"
        assert not notebook.violations, notebook.violations[0]
        late = notebook.out_of_order("alone")
        assert not late, f"alone got {late[:5]} for the first time behind newer ones"


class _Sender:
    """A producer: what has no receipt when its connection ends it sends again, in order."""

    def __init__(self, part: Entries, name: str) -> None:
        self._part = part
        self.name = name
        self.unanswered: deque[tuple[int, int]] = deque()
        """First numbers and counts of entries."""
        self._sent = 0
        self._next = 0
        self._door: Door | None = None

    async def work(self, door: Door) -> None:
        """While the connection lasts."""
        self._door = None
        door.tell(producer(TOPIC, 1, producer_name=self.name, user_provided_producer_name=True))
        await door.expect_success()
        for first, count in self.unanswered:
            door.send(send(1, first, self._part.notebook.sent[self.name, first], count))
        self._door = door
        while not self._part.is_over:
            self._answered(await door.next())

    async def send(self) -> None:
        """Sends now and then, while it is connected."""
        stage, notebook = self._part.stage, self._part.notebook
        while self._sent < ENTRIES_MAXIMUM and not stage.calm:
            await stage.pause(0.0, 0.5)
            if self._door is None or len(self.unanswered) >= UNANSWERED_MAXIMUM:
                continue
            first, count = self._next, stage.random.choice(MESSAGES)
            messages = _messages(self.name, first, count)
            for message in messages:
                stage.history.add(Sent(message))
            payloads = [message.payload() for message in messages]
            made = entry(payloads, batch=count > 1, producer=self.name.encode(), sequence=first)
            notebook.sent[self.name, first] = made
            self.unanswered.append((first, count))
            self._sent, self._next = self._sent + 1, first + count
            self._door.send(send(1, first, made, count))

    def _answered(self, answer: Command | Frame) -> None:
        if not isinstance(answer, Frame) or answer.kind == SEND_ERROR:
            # It is sent again on a new connection.
            raise LostConnectionError
        assert answer.kind == SEND_RECEIPT, answer
        first, count = self.unanswered[0]
        if answer.fields[2] != first:
            self._part.notebook.violations.append(f"{self.name}: a receipt out of turn: {answer}")
            raise LostConnectionError
        self.unanswered.popleft()
        for message in _messages(self.name, first, count):
            self._part.stage.history.add(Acknowledged(message))


class _Taker:
    """A consumer, which acknowledges in every way there is, and comes and goes."""

    def __init__(self, part: Entries, name: str, number: int) -> None:
        self._part = part
        self._name = name
        self._number = number
        self._permits = 0
        self._request = 100
        self._asked: dict[int, list[tuple[int, int]]] = {}
        self._held: list[tuple[int, int]] = []

    async def work(self, door: Door) -> None:
        """While the connection lasts."""
        stage = self._part.stage
        await self._part.subscribe(door, self._name, self._number)
        self._permits, self._asked, self._held = 0, {}, []
        stays_until_s = self._part.now_s() + stage.random.choice((3.0, 20.0, 60.0))
        while not self._part.is_over:
            self._permit(door)
            answer = await door.next()
            if not isinstance(answer, Frame):
                raise LostConnectionError
            if answer.kind == MESSAGE:
                self._take(door, answer)
            elif answer.kind == ACK_RESPONSE:
                self._answered(answer)
            if not stage.calm and self._part.now_s() > stays_until_s:
                raise LostConnectionError

    def _permit(self, door: Door) -> None:
        while self._permits < 1:
            more = self._part.stage.random.choice((1, 5, 100))
            self._permits += more
            door.send(flow(self._number, more))

    def _take(self, door: Door, given: Frame) -> None:
        notebook, now = self._part.notebook, given.message_id
        messages = [parse_payload(TOPIC, payload) for payload in payloads_of(given.tail)]
        where = f"{self._name}: {now}"
        if self._permits < 1:
            notebook.violations.append(f"{where} came without a permit")
        if not self._is_as_sent(messages, given.tail):
            notebook.violations.append(f"{where} is not what was sent as {messages[0]}")
        answered_s = notebook.acknowledged[self._name].get(now)
        if answered_s is not None and answered_s < door.opened_at_s:
            notebook.violations.append(f"{where} came again, and its acknowledgement was answered")
        self._permits -= len(messages)
        notebook.delivered[self._name] += [(it.publisher, it.sequence) for it in messages]
        self._held.append(now)
        self._decide(door)

    def _is_as_sent(self, messages: list[Message], tail: bytes) -> bool:
        """An entry of a producer comes byte for byte, a message of a device alone in one."""
        first = messages[0]
        if first in self._part.devices.made:
            return len(messages) == 1
        return self._part.notebook.sent.get((first.publisher, first.sequence)) == tail

    def _decide(self, door: Door) -> None:
        random, is_shared = self._part.stage.random, self._name == "together"
        choice = random.choice(("one", "one", "all", "later", "again"))
        if self._part.stage.calm:
            choice = "all"
        if choice == "one":
            self._acknowledge(door, [self._held.pop(random.randrange(len(self._held)))])
        elif choice == "all" and is_shared:
            self._acknowledge(door, self._held)
            self._held = []
        elif choice == "all":
            self._acknowledge(door, self._held, up_to=True)
            self._held = []
        elif choice == "again" and is_shared:
            door.send(redeliver(self._number, *self._held))
            self._held = []

    def _acknowledge(self, door: Door, ids: list[tuple[int, int]], *, up_to: bool = False) -> None:
        request = None
        if self._part.stage.random.random() < 0.5:
            self._request += 1
            request = self._request
            self._asked[request] = ids
        named = [max(ids)] if up_to else ids
        door.send(acknowledge(self._number, *named, up_to=up_to, request=request))

    def _answered(self, answer: Frame) -> None:
        request = answer.fields[6]
        assert isinstance(request, int)
        now_s, known = self._part.now_s(), self._part.notebook.acknowledged[self._name]
        for one in self._asked.pop(request):
            known.setdefault(one, now_s)


def _messages(producer_name: str, first: int, count: int) -> list[Message]:
    """What an entry of a producer holds, as devices get it: with QoS 1."""
    numbers = range(first, first + count)
    return [Message(producer_name, TOPIC, number, CROSSES_WITH_QOS) for number in numbers]
