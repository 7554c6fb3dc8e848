"""After which ends of a connection a bridge comes back in a second, and after which later."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from holdfast.broker.bridge.backoff import LASTING_S
from holdfast.broker.bridge.failure import Failure
from holdfast.broker.bridge.link import State
from holdfast.broker.bridge.suspicion import FRUITLESS_MAXIMUM, TRIES
from holdfast.kernel import encode_packet
from holdfast.protocols.mqtt.reason_code import ReasonCode
from tests.simulation.remote import Bridged, Inquisitive, Remote, Visit, with_remote
from tests.simulation.whole import CONFIG

sleep = asyncio.sleep
QUARTER_OF_AN_HOUR_S = 900
MANY = 10
GROWING = [1, 2, 4, 8, 16, 32, 64, 120, 120]
CONNACK = encode_packet("connack", {"session_present": False, "reason_code": 0}, protocol_version=5)
PINGREQ = encode_packet("pingreq", {}, protocol_version=5)
"""Which no server sends."""
TOO_LARGE = encode_packet(
    "disconnect", {"reason_code": ReasonCode.PACKET_TOO_LARGE}, protocol_version=5
)
SMALLEST = replace(CONFIG, maximum_packet_size_bytes=1024)


class Leaving(Inquisitive):
    """Ends the connection without a word at each packet of a kind, as servers of 3.1.1 have to."""

    def __init__(self, kind: str) -> None:
        super().__init__(version=4)
        self.kind = kind

    def look(self, visit: Visit, kind: str, fields: Mapping[str, Any]) -> None:
        """A packet has come."""
        if kind == self.kind:
            visit.transport.abort()


class Particular(Inquisitive):
    """Refuses each message that is too large for it, and leaves, as Mosquitto does."""

    def look(self, visit: Visit, kind: str, fields: Mapping[str, Any]) -> None:
        """A packet has come."""
        if kind == "publish" and len(fields["payload"]) > 1:
            answer = {"packet_identifier": fields["packet_identifier"]}
            visit.send("puback", **answer, reason_code=ReasonCode.PACKET_TOO_LARGE)
            visit.transport.close()


class Overwhelming(Inquisitive):
    """Has a small message and one that is too large for this side, and sends both in one piece."""

    def look(self, visit: Visit, kind: str, fields: Mapping[str, Any]) -> None:
        """A packet has come."""
        if kind == "subscribe":
            visit.send_bytes(self.message(b"small", 1) + self.message(b"x" * 2_000, 2))

    def message(self, payload: bytes, identifier: int) -> bytes:
        """A message of QoS 1 for this side."""
        fields = {
            "packet_identifier": identifier,
            "qos": 1,
            "retain": False,
            "dup": False,
            "topic_name": "down/x",
            "payload": payload,
            "properties": {},
        }
        return encode_packet("publish", fields, protocol_version=self.version)


def waits_of(remote: Remote) -> list[float]:
    """Between the end of each connection and the next one."""
    return [
        after.began_at - before.ended_at
        for before, after in pairwise(remote.visits)
        if before.ended_at is not None
    ]


def assert_waits_grow(remote: Remote, count: int = len(GROWING)) -> None:
    waits = waits_of(remote)
    assert len(waits) >= count, waits
    for wait, least in zip(waits[:count], GROWING, strict=False):
        assert least <= wait <= least * 1.25 + 0.1, waits


# --- nothing has come of it ----------------------------------------------------------------------


@pytest.mark.parametrize("words", [PINGREQ, TOO_LARGE])
def test_a_remote_that_accepts_and_then_ends_it_each_time_is_tried_ever_more_seldom(
    words: bytes,
) -> None:
    async def body(bridged: Bridged) -> None:
        await sleep(QUARTER_OF_AN_HOUR_S)
        assert_waits_grow(bridged.remote)
        assert bridged.link.counts.connections == len(bridged.remote.visits)

    remote = Remote()
    remote.first_words = CONNACK + words
    with_remote(body, remote)


@pytest.mark.parametrize(
    ("kind", "count"),
    # A message is given up by then.
    [("subscribe", len(GROWING)), ("publish", FRUITLESS_MAXIMUM + TRIES - 1)],
)
def test_a_remote_that_leaves_without_a_word_at_what_it_is_sent_is_tried_ever_more_seldom(
    kind: str, count: int
) -> None:
    async def body(bridged: Bridged) -> None:
        await bridged.publish("up/x", b"too large for it", qos=1)
        await sleep(QUARTER_OF_AN_HOUR_S)
        assert_waits_grow(bridged.remote, count)

    with_remote(body, Leaving(kind))


@pytest.mark.parametrize("version", [5, 4])
def test_what_is_too_large_for_this_side_does_not_become_a_flood_and_says_what_to_raise(
    version: int,
) -> None:
    async def body(bridged: Bridged) -> None:
        await sleep(QUARTER_OF_AN_HOUR_S)
        assert_waits_grow(bridged.remote)
        link = bridged.link
        assert set(link.counts.failures) == {Failure.PROTOCOL}
        assert link.last_error == (
            "the remote has a packet of more than 1024 bytes for this broker, which takes no larger"
            " ones: raise mqtt.maximum_packet_size_bytes here"
        )

    with_remote(body, Overwhelming(version), config=SMALLEST)


# --- something has --------------------------------------------------------------------------------


@pytest.mark.accepts("S1.55")
@pytest.mark.parametrize("success", ["acknowledged", "taken over", "lasting", "nobody's fault"])
def test_after_a_connection_that_got_somewhere_the_first_wait_is_a_second_again(
    success: str,
) -> None:
    async def body(bridged: Bridged) -> None:
        remote = bridged.remote
        await sleep(100)
        assert len(remote.visits) == 7
        remote.first_words = None
        while bridged.link.state is not State.CONNECTED:
            await sleep(0.5)
        if success == "acknowledged":
            await bridged.publish("up/x", b"1", qos=1)
        if success == "taken over":
            remote.visit.publish("down/x", b"1", 1, 1)
            await sleep(0.5)
        if success == "lasting":
            await sleep(LASTING_S)
        count, remote.first_words = len(remote.visits), CONNACK + PINGREQ
        if success == "nobody's fault":
            remote.visit.transport.abort()
        else:
            remote.visit.send_bytes(TOO_LARGE)
        await sleep(1.5)
        assert len(remote.visits) == count + 1

    remote = Remote()
    remote.first_words = CONNACK + PINGREQ
    with_remote(body, remote)


def test_a_remote_that_leaves_after_each_refusal_is_there_again_soon() -> None:
    async def body(bridged: Bridged) -> None:
        await bridged.publish("up/x", *[b"large"] * MANY, b"-", qos=1)
        await sleep(MANY * 1.5)
        assert bridged.remote.all("publish")[-1]["payload"] == b"-"
        assert len(bridged.remote.visits) == MANY + 1
        assert [reason for _, reason, _ in bridged.losses()] == ["refused"] * MANY
        assert bridged.link.state is State.CONNECTED

    with_remote(body, Particular())
