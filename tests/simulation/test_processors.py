"""A processor beside a broker in virtual time: what is in the sink, and what the broker has still,
after each thing that can go wrong."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from holdfast.client.mqtt import Client, ClientOptions, Publication
from holdfast.processors.dead_letters import read_letters
from holdfast.processors.message import Message
from holdfast.processors.poison import DeadLetter
from holdfast.processors.session import Session
from holdfast.processors.settings import ProcessorSettings
from holdfast.processors.sink import SinkAwayError, SinkUnfitError
from holdfast.processors.table import Row, Table
from holdfast.processors.work import Batch, Work
from holdfast.testing.link import Passing
from holdfast.testing.rehearsal import BROKER, Rehearsal, rehearse
from holdfast.testing.sink import MemorySink
from tests.builders.readings import Readings, reading
from tests.simulation.peer import Stand, sleep, with_broker
from tests.simulation.whole import CONFIG, HOST, PORT


def values(stage: Rehearsal) -> list[int]:
    return [row["value"] for row in stage.rows()]


def play(story: Any, **settings: Any) -> None:
    rehearse(Readings(), story, topics=("readings/+",), **settings)


@pytest.mark.accepts("S3.4", "S3.33")
@pytest.mark.parametrize("qos", [1, 2])
def test_what_came_is_committed_and_acknowledged(qos: int) -> None:
    async def story(stage: Rehearsal) -> None:
        await stage.publish("readings/7", *map(reading, range(100)), qos=qos)
        await stage.settle()
        assert values(stage) == list(range(100))
        assert stage.number("messages_received_total") == 100
        assert stage.number("messages_committed_total") == 100
        assert stage.number("rows_written_total") == 100
        # Nothing is the broker's any more.
        stage.kill()
        await stage.start()
        await stage.settle()
        assert stage.number("messages_received_total") == 100

    play(story, qos=qos)


def test_pubrec_leaves_after_the_commit() -> None:
    async def story(stage: Rehearsal) -> None:
        seen: list[int] = []
        stage.sink.committed = lambda: seen.append(stage.link.of_kind("pubrec"))
        await stage.publish("readings/7", *map(reading, range(20)))
        await stage.settle()
        assert seen[0] == 0
        assert stage.link.of_kind("pubrec") == 20

    play(story)


@pytest.mark.accepts("S3.36")
def test_a_row_is_there_once_although_the_process_is_killed_before_pubrec() -> None:
    async def story(stage: Rehearsal) -> None:
        stage.kill_before("pubrec")
        await stage.publish("readings/7", reading(1))
        await stage.start_again()
        assert values(stage) == [1]
        assert stage.number("rows_repeated_total") == 1

    play(story)


def test_a_row_is_there_once_although_the_process_is_killed_in_its_commit() -> None:
    async def story(stage: Rehearsal) -> None:
        stage.kill_after_commit()
        await stage.publish("readings/7", reading(1), reading(2))
        await stage.start_again()
        assert values(stage) == [1, 2]

    play(story)


def test_while_the_sink_is_away_the_broker_keeps_the_rest() -> None:
    async def story(stage: Rehearsal) -> None:
        stage.sink.fail(*(SinkAwayError("gone") for _ in range(8)))
        await stage.publish("readings/7", *map(reading, range(100)))
        await sleep(20)
        assert not stage.rows()
        assert stage.link.of_kind("publish") == 10
        assert stage.running is not None
        assert stage.running.waits_for() == "the sink is away: gone"
        # Its pauses have grown.
        assert stage.number("sink_away_total") < 9
        stage.running.measure()
        assert stage.number("open_messages") == 10
        assert 19 < stage.number("oldest_open_seconds") < 21
        await sleep(120)
        assert values(stage) == list(range(100))
        assert stage.link.of_kind("connect") == 1

    play(story, receive_maximum=10)


def test_what_a_sink_had_committed_when_it_went_away_is_there_once() -> None:
    async def story(stage: Rehearsal) -> None:
        stage.sink.fail_after_commit(SinkAwayError("no answer"))
        await stage.publish("readings/7", *map(reading, range(10)))
        await stage.settle()
        assert values(stage) == list(range(10))
        assert stage.number("rows_repeated_total") == 10

    play(story)


def test_batches_are_closed_by_number_and_by_bytes() -> None:
    async def story(stage: Rehearsal) -> None:
        await stage.publish("readings/7", *map(reading, range(100)))
        await stage.settle()
        assert max(stage.sink.commits) == 20
        await stage.stop()
        await stage.start(batch_messages=1_000, batch_bytes=5 * len(reading(100)))
        stage.sink.commits.clear()
        await stage.publish("readings/7", *map(reading, range(100, 200)))
        await stage.settle()
        assert max(stage.sink.commits) == 5
        assert values(stage) == list(range(200))

    play(story, batch_messages=20)


async def letters(stage: Rehearsal) -> list[DeadLetter]:
    """What the keeper's session has, as whoever looks at it sees it."""
    settings = replace(stage.settings, broker_host=BROKER[0])
    found = await read_letters(settings)
    return [letter for _, letter in found]


def test_what_cannot_be_read_is_a_dead_letter_at_once_and_blocks_nobody() -> None:
    async def story(stage: Rehearsal) -> None:
        await stage.publish("readings/7", reading(1), b"21.5 degrees", reading(2))
        await stage.settle()
        assert values(stage) == [1, 2]
        (letter,) = await letters(stage)
        assert (letter.topic, letter.payload) == ("readings/7", b"21.5 degrees")
        assert (letter.reason, letter.attempts) == ("the payload is no JSON", 1)
        assert (letter.processor, letter.environment) == ("Rehearsed", "test")
        assert letter.time.startswith("2023-11-14T22:13:")
        assert letter.identity
        assert stage.number("dead_letters_total") == 1
        # It is not the processor's any more.
        stage.kill()
        await stage.start()
        await stage.settle()
        assert stage.number("messages_rejected_total") == 1
        assert len(await letters(stage)) == 1

    play(story)


def test_a_dead_letter_is_kept_although_the_session_of_those_before_has_expired() -> None:
    kept_s = 60

    async def story(stage: Rehearsal) -> None:
        await stage.publish("readings/7", b"the first")
        await stage.settle()
        await asyncio.sleep(2 * kept_s)
        await stage.publish("readings/7", b"the second")
        await stage.settle()
        assert [letter.payload for letter in await letters(stage)] == [b"the second"]

    play(story, broker_settings={"session_expiry_maximum_s": kept_s})


def test_what_fails_is_tried_again_and_is_a_dead_letter_in_the_end() -> None:
    async def story(stage: Rehearsal) -> None:
        await stage.publish("readings/7", reading(1), b"null", reading(2))
        await stage.settle()
        assert values(stage) == [1, 2]
        (letter,) = await letters(stage)
        assert (letter.payload, letter.attempts) == (b"null", 3)
        assert letter.reason.startswith("TypeError: ")
        assert stage.number("attempts_failed_total") == 2
        assert not stage.sink.attempts

    play(story, maximum_attempts=3)


def test_the_rows_that_a_sink_refuses_are_found_among_others() -> None:
    async def story(stage: Rehearsal) -> None:
        stage.sink.refuses = lambda row: row.row["value"] in (13, 14, 77)
        await stage.publish("readings/7", *map(reading, range(100)))
        await stage.settle()
        assert sorted(values(stage)) == [n for n in range(100) if n not in (13, 14, 77)]
        refused = [letter.payload for letter in await letters(stage)]
        assert sorted(refused) == [reading(13), reading(14), reading(77)]

    play(story)


class Plain(Readings):
    """The payload says what the rows are."""

    def parse(self, message: Message) -> Sequence[Row]:
        rows: Sequence[Row] = json.loads(message.payload)
        return rows


@pytest.mark.parametrize("payload", [b"[5]", b"[null]", b'["value"]', b'{"value": 1}', b"5"])
def test_what_a_payload_put_in_the_place_of_a_row_is_a_dead_letter(payload: bytes) -> None:
    async def story(stage: Rehearsal) -> None:
        row = b'[{"sensor": "7", "value": 1}]'
        await stage.publish("readings/7", row, payload, row)
        await stage.settle()
        assert values(stage) == [1, 1]
        (letter,) = await letters(stage)
        assert (letter.payload, letter.attempts) == (payload, 2)
        assert letter.reason.startswith("TypeError: ")

    rehearse(Plain(), story, topics=("readings/+",), maximum_attempts=2)


def test_a_dead_letter_has_as_many_properties_as_there_may_be() -> None:
    # The broker adds its own to as many as a publisher may send.
    pairs = [(f"own-{number}", "v") for number in range(1_024)]

    async def story(stage: Rehearsal) -> None:
        publisher = Client("labels", ClientOptions())
        await publisher.connect(*BROKER)
        letter = Publication("readings/7", b"warm", qos=1, properties={"user_property": pairs})
        publisher.publish(letter)
        await publisher.idle.wait()
        publisher.disconnect()
        await stage.publish("readings/7", b"21.5 degrees", reading(1))
        await stage.settle()
        assert values(stage) == [1]
        most, few = await letters(stage)
        # The last of its own make room for what the letter says.
        kept = most.properties["user_property"]
        assert kept == pairs[: len(kept)]
        assert len(kept) > 1_000
        assert few.payload == b"21.5 degrees"

    play(story)


def test_a_message_that_is_too_large_for_a_dead_letter_blocks_nobody() -> None:
    async def story(stage: Rehearsal) -> None:
        await stage.publish("readings/7", bytes(2**20 - 60), reading(1))
        await sleep(300)
        assert values(stage) == [1]
        assert stage.number("reconnects_total") == 0
        assert stage.running is not None
        assert stage.running.open_count() == 1

    play(story)


@pytest.mark.parametrize("named", [7, "a\0b", "\ud800", "x" * 65_536, ["a"]])
def test_what_no_text_has_room_for_is_no_identity(named: Any) -> None:
    class Named(Readings):
        def identity(self, message: Message) -> str | None:
            del message
            unfit: str = named
            return unfit

    message = Message("readings/7", b"7", 1, False, False, (), None, 0)
    plain, unfit = Batch([message]), Batch([message])
    for batch, processor in ((plain, Readings()), (unfit, Named())):
        Work(processor, MemorySink(), 5).do(batch)
    assert unfit.identities == plain.identities
    assert len(plain.identities[0]) == 64


def test_a_message_is_acknowledged_after_the_broker_has_its_dead_letter() -> None:
    async def story(stage: Rehearsal) -> None:
        # The broker's PUBACK does not come; so the message is not acknowledged either.
        stage.link.cut_before("puback")
        await stage.publish("readings/7", b"21.5 degrees")
        await stage.settle()
        kinds = [packet.kind for packet in stage.link.passed]
        assert kinds.index("puback") < kinds.index("pubrec")
        assert "cut at puback" in kinds[: kinds.index("pubrec")]
        assert stage.number("dead_letters_total") == 1
        assert {letter.payload for letter in await letters(stage)} == {b"21.5 degrees"}

    play(story)


def test_a_sink_that_never_opened_is_not_closed() -> None:
    class Strict(MemorySink):
        is_open = False

        def open(self, table: Table) -> None:
            if not self.is_open:
                raise OSError("another process has the file")

        def close(self) -> None:
            assert self.is_open

    work = Work(Readings(), sink := Strict(), 5)
    with pytest.raises(OSError, match="another process"):
        work.open()
    work.close()
    sink.is_open = True
    work.open()
    sink.is_open = False
    with pytest.raises(AssertionError):
        work.close()


class Deadly(Readings):
    """One message ends the process."""

    def __init__(self) -> None:
        self.kill: Any = None
        self.deaths = 0

    def parse(self, message: Message) -> Sequence[Row]:
        if message.payload == b"666":
            self.deaths += 1
            self.kill()
            # Nothing of a process that is gone goes on.
            raise SinkAwayError("the process has ended")
        return super().parse(message)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_ends_the_process_is_found_and_no_neighbour_is_blamed(qos: int) -> None:
    deadly = Deadly()

    async def story(stage: Rehearsal) -> None:
        deadly.kill = stage.kill
        payloads = [reading(n) for n in range(20)]
        await stage.publish("readings/7", *payloads[:10], b"666", *payloads[10:])
        for _ in range(12):
            await stage.settle()
            if stage.running is None:
                await stage.start()
        assert sorted(values(stage)) == list(range(20))
        (letter,) = await letters(stage)
        assert letter.payload == b"666"
        assert letter.reason == "the process ended while it was worked on"
        assert deadly.deaths <= 8
        assert not stage.sink.attempts

    rehearse(deadly, story, topics=("readings/+",), qos=qos, maximum_attempts=3)


def test_when_it_stops_it_finishes_what_is_open() -> None:
    async def story(stage: Rehearsal) -> None:
        await stage.publish("readings/7", *map(reading, range(50)))
        await stage.stop()
        # Far sooner than the batch's age.
        assert values(stage) == list(range(50))
        assert stage.ended_with is None
        assert stage.link.passed[-1].kind == "disconnect"
        assert stage.link.of_kind("pubrec") == 50
        await stage.start()
        await stage.settle()
        assert stage.number("rows_repeated_total") == 0

    play(story, batch_age_s=3_000.0)


def test_when_it_stops_and_the_sink_is_away_it_gives_back_what_is_open() -> None:
    async def story(stage: Rehearsal) -> None:
        stage.sink.fail(*(SinkAwayError("gone") for _ in range(5)))
        await stage.publish("readings/7", *map(reading, range(50)))
        await sleep(1)
        began_s = asyncio.get_running_loop().time()
        await stage.stop()
        assert asyncio.get_running_loop().time() - began_s < stage.settings.stop_within_s
        assert not stage.rows()
        await stage.start()
        await stage.settle()
        assert values(stage) == list(range(50))

    play(story)


def test_a_sink_that_cannot_be_used_ends_it_with_the_reason() -> None:
    async def story(stage: Rehearsal) -> None:
        stage.sink.fail(SinkUnfitError("the table is of a newer version"))
        await stage.publish("readings/7", reading(1))
        await stage.until(lambda: stage.ended_with is not None)
        assert "newer version" in repr(stage.ended_with)

    play(story)


@pytest.mark.accepts("S3.31", "S3.34")
def test_after_the_session_has_expired_it_subscribes_again_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(stage: Rehearsal) -> None:
        stage.link.cut_if = lambda _packet: True
        stage.link.cut()
        await sleep(3_700)
        stage.link.cut_if = lambda _packet: False
        await stage.until(lambda: stage.running is not None and stage.running.waits_for() is None)
        assert stage.number("sessions_lost_total") == 1
        assert stage.number("reconnects_total") == 1
        assert "the broker has lost the session: subscribing again" in caplog.text
        await stage.publish("readings/7", reading(1))
        await stage.settle()
        assert values(stage) == [1]

    play(story)


@pytest.mark.accepts("S3.32", "S3.33")
def test_within_the_hour_the_broker_has_kept_everything() -> None:
    async def story(stage: Rehearsal) -> None:
        stage.link.cut_if = lambda _packet: True
        stage.link.cut()
        await stage.publish("readings/7", *map(reading, range(100)))
        await sleep(3_500)
        stage.link.cut_if = lambda _packet: False
        await stage.settle()
        assert stage.number("sessions_lost_total") == 0
        assert values(stage) == list(range(100))

    play(story)


def test_the_pause_before_a_connection_is_fixed_and_jitters() -> None:
    async def story(stage: Rehearsal) -> None:
        tried: list[float] = []
        loop = asyncio.get_running_loop()

        def note(packet: Passing) -> bool:
            tried.append(loop.time())
            return True

        stage.link.cut_if = note
        stage.link.cut()
        await sleep(600)
        pauses = [after - before for before, after in pairwise(tried)]
        assert all(4 <= pause <= 6.1 for pause in pauses)
        assert len({round(pause, 2) for pause in pauses}) > 10

    play(story)


def test_wrong_credentials_make_no_flood() -> None:
    async def body(_stand: Stand) -> None:
        settings = ProcessorSettings(
            name="p",
            broker_host=HOST,
            broker_port=PORT,
            tls=False,
            environment="test",
            client_identifier="p",
            topics=("a",),
            user_name="who",
            password="wrong",
            sink="memory",
        )
        assert "wrong" not in repr(settings)
        watcher = Watching()
        session = Session(settings, watcher, Random(1))
        with suppress(TimeoutError):
            async with asyncio.timeout(3_600):
                await session.keep()
        assert 5 < watcher.connects < 25

    class Watching:
        connects = 0

        def arrived(self, arrivals: Any) -> None: ...
        def reconnected(self) -> None: ...
        def session_lost(self) -> None: ...

    made = Session.connection_made

    def counted(self: Any, transport: Any) -> None:
        self._watcher.connects += 1
        made(self, transport)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "connection_made", counted)
        with_broker(body, replace(CONFIG, anonymous=False))


@pytest.mark.parametrize("qos", [0, 1])
def test_what_gathers_while_the_sink_is_away_has_a_bound(qos: int) -> None:
    async def story(stage: Rehearsal) -> None:
        assert stage.running is not None
        stage.sink.fail(*(SinkAwayError("gone") for _ in range(1_000)))
        most = 0
        for first in range(0, 2_000, 20):
            await stage.publish("readings/7", *map(reading, range(first, first + 20)), qos=qos)
            if qos:
                # All that is open comes again, and is others then.
                stage.link.cut()
            await sleep(10)
            most = max(most, stage.running.gathered_count())
        assert 20 <= most <= 4 * 10 + 50
        stage.calm()
        if qos:
            await stage.until(lambda: len(values(stage)) == 2_000)
            assert sorted(values(stage)) == list(range(2_000))

    play(story, qos=qos, batch_messages=10, receive_maximum=50)


def test_a_repeated_rehearsal_is_the_same() -> None:
    async def story(stage: Rehearsal) -> None:
        await stage.publish("readings/7", *map(reading, range(10)))
        await stage.settle()

    digests = {rehearse(Readings(), story, topics=("readings/+",), seed=7) for _ in range(2)}
    assert len(digests) == 1
