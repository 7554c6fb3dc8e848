"""What topics, words and names do that a bridge cannot do anything with: a bounded cost, a counter
with a reason, and clients of this side do not notice."""

import asyncio
import logging
from random import Random

import pytest

from holdfast.broker.bridge.failure import Failure
from holdfast.broker.bridge.link import State
from holdfast.kernel import encode_packet
from holdfast.protocols.mqtt.reason_code import ReasonCode
from tests.simulation.remote import (
    Bridged,
    Remote,
    assert_nobody_notices,
    names,
    topics,
    with_remote,
)

sleep = asyncio.sleep
MANY = 20
SWEEPS_MAXIMUM = 2
"""One ends a row of the ledger each second, and may come in the middle."""
CONNACK_OF_5 = encode_packet(
    "connack", {"session_present": False, "reason_code": 0}, protocol_version=5
)
PINGREQ = encode_packet("pingreq", {}, protocol_version=5)
"""Which no server sends."""


# --- topics that cannot be ----------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(
    ("destination", "topic"),
    [
        ("site7/{3}", "up/x"),
        ("{2}", "up//x"),
        ("{#}/{#}", "up/" + "x" * 40_000),
    ],
    ids=["lacks a level", "empty", "too long"],
)
def test_what_has_no_topic_there_is_on_the_ledger_with_one_warning_for_a_row(
    destination: str, topic: str, qos: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(bridged: Bridged) -> None:
        with caplog.at_level(logging.WARNING):
            await bridged.publish(topic, *[b"lost"] * MANY, qos=qos)
            await sleep(3)
        losses = bridged.losses()
        assert {(name, reason) for name, reason, _ in losses} == {("b", "topic")}
        assert sum(count for _, _, count in losses) == MANY
        said = [record for record in caplog.records if record.message == "messages lost"]
        assert len(said) == len(losses) <= SWEEPS_MAXIMUM
        assert bridged.remote.all("publish") == []
        await bridged.publish("up/level/x", b"goes", qos=qos)
        await sleep(1)
        assert [fields["payload"] for fields in bridged.remote.all("publish")] == [b"goes"]
        assert len(bridged.remote.visits) == 1
        assert bridged.link.queue.in_flight() == 0

    carried = [{"filters": ["up/#"], "destination": destination}]
    with_remote(body, local_subscriptions=carried)


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(
    ("destination", "topic"),
    [("in/{3}", "down/x"), ("{2}/{3}", "down/$SYS/x"), ("{2}", "down/$SYS")],
    ids=["lacks a level", "below $SYS", "$SYS"],
)
def test_what_has_no_topic_here_is_counted_and_acknowledged(
    destination: str, topic: str, qos: int
) -> None:
    async def body(bridged: Bridged) -> None:
        visit = bridged.remote.visit
        for number in range(1, 4):
            visit.publish(topic, b"lost", qos, number if qos else 0)
        await sleep(1)
        assert bridged.link.inbound() == (0, 3)
        answer = {0: "none", 1: "puback", 2: "pubcomp"}[qos]
        assert len(visit.of_kind(answer)) == (3 if qos else 0)
        assert len(bridged.remote.visits) == 1

    with_remote(body, remote_subscriptions=[{"filters": ["down/#"], "destination": destination}])


# --- words that are none ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_garbage_in_the_middle_of_messages_costs_connections_and_no_message(seed: int) -> None:
    random = Random(seed)

    async def body(bridged: Bridged) -> None:
        remote = bridged.remote
        remote.silent_about = {"publish"}
        payloads = [b"%d" % number for number in range(20)]
        await bridged.publish("up/x", *payloads, qos=1)
        remote.visit.send_bytes(PINGREQ + random.randbytes(1_000))
        await sleep(0.5)
        assert bridged.link.counts.failures == {Failure.PROTOCOL: 1}
        assert bridged.link.last_error.startswith("the remote broke the protocol: ")
        remote.silent_about = set()
        await sleep(5)
        assert [fields["payload"] for fields in remote.visit.of_kind("publish")] == payloads
        assert bridged.link.queue.in_flight() == 0
        await assert_nobody_notices(bridged)

    with_remote(body)


def test_an_answer_of_mqtt_5_to_a_bridge_of_3_1_1_is_a_broken_protocol() -> None:
    async def body(bridged: Bridged) -> None:
        assert bridged.link.counts.failures == {Failure.PROTOCOL: 1}
        assert bridged.link.last_error.startswith("the remote broke the protocol: ")
        await assert_nobody_notices(bridged)
        bridged.remote.first_words = None
        await sleep(5)
        assert bridged.link.state is State.CONNECTED
        assert topics(bridged.remote) == ["up/noticed"] * 2

    remote = Remote(version=4)
    remote.first_words = CONNACK_OF_5
    with_remote(body, remote)


@pytest.mark.parametrize("version", [5, 4])
def test_a_remote_that_does_not_speak_the_version_is_asked_seldom(version: int) -> None:
    async def body(bridged: Bridged) -> None:
        link = bridged.link
        assert link.state is State.REFUSED
        assert link.last_error == "the remote refused: unsupported_protocol_version"
        assert link.counts.failures == {Failure.REFUSED: 1}
        await sleep(1_200)
        assert 8 <= len(bridged.remote.visits) <= 11

    remote = Remote(version)
    remote.connack = {"reason_code": ReasonCode.UNSUPPORTED_PROTOCOL_VERSION}
    with_remote(body, remote)


def test_a_name_that_leads_to_no_address_is_asked_for_again() -> None:
    async def body(bridged: Bridged) -> None:
        names(bridged)["remote.example"] = []
        await sleep(2)
        assert bridged.link.last_error == "remote.example is no name of a host: it has no address"
        assert set(bridged.link.counts.failures) == {Failure.UNREACHABLE}
        names(bridged)["remote.example"] = ["10.0.0.2"]
        await sleep(5)
        assert bridged.link.state is State.CONNECTED

    with_remote(body, address="remote.example:1883")
