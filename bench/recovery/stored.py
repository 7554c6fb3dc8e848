"""A long log, written by the kernel itself at the speed of the disk."""

from collections.abc import Callable
from pathlib import Path

from holdfast import system
from holdfast.broker.data_directory import held
from holdfast.core.config import Config
from holdfast.core.layout import LOG_DIRECTORY
from holdfast.kernel import LIMITS, Arrivals, Inbox, Log, encode_packet

TOPIC_FAMILIES = 100
TOPICS_EACH = 10
PAYLOAD_BYTES = 1_024
PROTOCOL_VERSION = 4
"""Of the publisher: MQTT 3.1.1 knows no Receive Maximum, so nothing has to be answered."""

SAID_EVERY_BYTES = 1_000_000_000


def topic_filter(session: int) -> str:
    """What a session subscribes to: each message matches one in a hundred of them."""
    return f"fleet/{session % TOPIC_FAMILIES}/#"


def fill(
    data_directory: Path, config: Config, wanted_bytes: int, say: Callable[[str], None]
) -> int:
    """Appends messages of QoS 1 until the log has this size, with a checkpoint as often as a broker
    writes one and the longest tail behind the last of them. Returns the number of messages."""
    with held(data_directory):
        log, _ = Log.open(
            str(data_directory / LOG_DIRECTORY),
            segment_bytes=config.segment_bytes,
            cache_bytes=config.cache_bytes,
            reserve_bytes=config.reserve_bytes,
            durability="os",
            seed=1,
            now_us=system.now_us(),
        )
        _append(log, config, wanted_bytes, say)
        log.commit()
        # Not closed, which would write a checkpoint: the broker that has it next is killed.
        return log.end_offset()


def _append(log: Log, config: Config, wanted_bytes: int, say: Callable[[str], None]) -> None:
    packets = _packets()
    read_buffer = bytearray(max(len(batch) for batch in packets))
    inbox, arrivals = Inbox(read_buffer), Arrivals()
    introduce(inbox, arrivals, read_buffer)
    written = said = log.end_position()
    # The last checkpoint leaves as long a tail as there may be.
    last_checkpoint = wanted_bytes - config.checkpoint_bytes
    number = 0
    while written < wanted_bytes:
        batch = packets[number % len(packets)]
        number += 1
        read_buffer[: len(batch)] = batch
        inbox.feed(1, len(batch), system.now_us())
        inbox.decode(arrivals)
        log.append(arrivals, [], system.now_us())
        inbox.forget(arrivals)
        log.commit()
        written = log.end_position()
        if log.bytes_since_checkpoint() > config.checkpoint_bytes and written < last_checkpoint:
            log.checkpoint(system.now_us())
        if written - said > SAID_EVERY_BYTES:
            said = written
            say(f"{written / 1e9:.1f} of {wanted_bytes / 1e9:.1f} GB")


def introduce(inbox: Inbox, arrivals: Arrivals, read_buffer: bytearray) -> None:
    """A publisher connects, as connection 1."""
    connect = {"client_identifier": "filler", "protocol_version": PROTOCOL_VERSION}
    fields = {**connect, "clean_start": True, "keep_alive_s": 0, "properties": {}}
    data = encode_packet("connect", fields, protocol_version=PROTOCOL_VERSION)
    inbox.open(1)
    read_buffer[: len(data)] = data
    inbox.feed(1, len(data), 0)
    inbox.decode(arrivals)
    inbox.accept(
        1,
        party=1,
        protocol_version=PROTOCOL_VERSION,
        keep_alive_s=0,
        receive_maximum=65_535,
        maximum_packet_size_bytes=LIMITS["remaining_length_maximum"],
        topic_alias_maximum=0,
        unreleased=b"",
    )
    inbox.release(1)


def _packets() -> list[bytes]:
    """Batches of PUBLISH packets, each somewhat less than a turn takes from one connection; all
    topics occur."""
    batches, batch = [], bytearray()
    for number in range(TOPIC_FAMILIES * TOPICS_EACH * 5):
        family, topic = number % TOPIC_FAMILIES, number // TOPIC_FAMILIES % TOPICS_EACH
        fields = {
            "packet_identifier": number % 65_535 + 1,
            "qos": 1,
            "topic_name": f"fleet/{family}/reads/{topic}",
            "payload": bytes([number % 256]) * PAYLOAD_BYTES,
        }
        packet = encode_packet("publish", fields, protocol_version=PROTOCOL_VERSION)
        if len(batch) + len(packet) > LIMITS["turn_connection_bytes_maximum"] // 2:
            batches.append(bytes(batch))
            batch.clear()
        batch += packet
    return [*batches, bytes(batch)]
