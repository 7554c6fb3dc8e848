"""Build the log of a data directory, from messages, by the way that a broker takes."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.layout import LOG_DIRECTORY
from holdfast.core.subscription import Subscription
from holdfast.kernel import Arrivals, Inbox, Job, Log, encode_packet

START_US = 1_700_000_000_000_000
FORGOTTEN_US = START_US * 2
STEP_US = 1_000
"""Each message is appended one step after the one before, beginning with START_US."""
CONNECTION = 1
GROUP = 500
WINDOW = 60_000
"""Messages of one connection, which nobody answers here: fewer than its Receive Maximum."""
SEGMENT_BYTES = 4 << 20


@dataclass(frozen=True)
class Message:
    """One message to be stored."""

    topic: str
    value: bytes
    qos: int = 1
    properties: tuple[tuple[str, str], ...] = ()


def store(data_dir: Path, messages: Sequence[Message], *, at: int = 0, seed: int = 1) -> None:
    """Appends the messages durably; `at` is how many are in the log already.

    A new log is known by its seed: two with the same are taken for one."""
    (data_dir / LOG_DIRECTORY).mkdir(parents=True, exist_ok=True)
    read_buffer = bytearray(1 << 20)
    inbox, arrivals = Inbox(read_buffer), Arrivals()
    log = _opened(data_dir, seed)
    try:
        for number, message in enumerate(messages):
            if number % WINDOW == 0:
                accept(inbox, arrivals, read_buffer)
            feed(inbox, read_buffer, publish(message, number), START_US)
            inbox.decode(arrivals)
            log.append(arrivals, [], START_US + (at + number) * STEP_US)
            inbox.forget(arrivals)
            if number % GROUP == GROUP - 1:
                log.commit()
        log.commit()
    finally:
        log.close()


def accept(inbox: Inbox, arrivals: Arrivals, read_buffer: bytearray) -> None:
    """A publisher of MQTT 5 connects."""
    connect = {
        "protocol_version": 5,
        "client_identifier": "builder",
        "clean_start": True,
        "keep_alive_s": 0,
        "user_name": None,
        "password": None,
        "will": None,
        "properties": {},
    }
    inbox.open(CONNECTION)
    feed(inbox, read_buffer, encode_packet("connect", connect, protocol_version=5), START_US)
    [(_, packet)] = inbox.decode(arrivals)
    assert packet.kind == "connect"
    inbox.accept(
        CONNECTION,
        party=7,
        protocol_version=5,
        keep_alive_s=0,
        receive_maximum=65_535,
        maximum_packet_size_bytes=1 << 20,
        topic_alias_maximum=0,
        unreleased=b"",
    )
    inbox.release(CONNECTION)


def feed(inbox: Inbox, read_buffer: bytearray, data: bytes, now_us: int) -> None:
    read_buffer[: len(data)] = data
    inbox.feed(CONNECTION, len(data), now_us)


def publish(message: Message, number: int) -> bytes:
    fields = {
        "packet_identifier": number % 65_535 + 1,
        "qos": message.qos,
        "retain": False,
        "dup": False,
        "topic_name": message.topic,
        "payload": message.value,
        "properties": {"user_property": list(message.properties)} if message.properties else {},
    }
    return encode_packet("publish", fields, protocol_version=5)


def forget(data_dir: Path) -> None:
    """Retention takes all that it may: every closed segment."""
    with closing(_opened(data_dir)) as log:
        _forget(log, [])


def forget_slowly(data_dir: Path) -> None:
    """The same, but somebody waits for all of it at first, and only then for nothing any more: what
    is left is a file without a record."""
    everything = Subscription(
        topic_filter="#",
        qos=1,
        no_local=False,
        retain_as_published=True,
        identifier=None,
        from_offset=0,
    )
    waiting = {
        "party": 1 << 16,
        "mark": 0,
        "subscriptions": (everything,),
        "keep_from": 0,
        "messages_maximum": 1 << 40,
    }
    with closing(_opened(data_dir)) as log:
        _forget(log, [waiting])
        assert log.begin_thinning(FORGOTTEN_US)
        _carry(log, [])


def _opened(data_dir: Path, seed: int = 1) -> Log:
    log, _ = Log.open(
        str(data_dir / LOG_DIRECTORY),
        segment_bytes=SEGMENT_BYTES,
        cache_bytes=1 << 20,
        reserve_bytes=1 << 20,
        durability="fsync",
        seed=seed,
        now_us=START_US,
    )
    return log


def _forget(log: Log, waiting: list[dict[str, Any]]) -> None:
    assert log.begin_retention(maximum_age_us=1, maximum_bytes=1, now_us=FORGOTTEN_US)
    _carry(log, waiting)


def _carry(log: Log, waiting: list[dict[str, Any]]) -> None:
    """What has begun is done, for these queues."""
    _run(log, log.survey_job())
    while not log.renew_piece(1_000, FORGOTTEN_US):
        pass
    log.checkpoint(FORGOTTEN_US)
    log.visit(waiting)
    while not log.visit_piece(1_000)[1]:
        pass
    while not log.find_piece(1_000):
        pass
    _run(log, log.carry_job(FORGOTTEN_US))


def _run(log: Log, job: Job | None) -> None:
    """Does a job, and what follows from it."""
    while job is not None:
        while job.step():
            pass
        _, _, job = log.finish(job)
