"""What a group has sent to a member whose session ends, in virtual time: nothing waits for a pod
that never comes back, and nothing is lost with it."""

import logging
import random
from dataclasses import replace
from typing import Any

import pytest

from holdfast.broker.chores import at_once
from holdfast.broker.state.broker import look_at
from holdfast.core.loss_reason import LossReason
from holdfast.protocols.mqtt.identity import IDENTITY, IDENTITY_REQUEST, REDELIVERED
from tests.simulation.peer import Peer, Stand, sleep, with_broker
from tests.simulation.whole import CONFIG

GROUP = "$share/g/reads/#"
EXPIRY_S = 60
STANDARD = replace(CONFIG, shared_group_expiry_s=86_400)
REDELIVER = replace(STANDARD, shared_session_ended="redeliver")
BOTH = pytest.mark.parametrize("qos", [1, 2])


def payloads(peer: Peer) -> list[bytes]:
    return [fields["payload"] for fields in peer.of_kind("publish")]


def marked(peer: Peer) -> list[bytes]:
    """What came as something that somebody else may have."""
    return [
        fields["payload"]
        for fields in peer.of_kind("publish")
        if REDELIVERED in fields["properties"].get("user_property", ())
    ]


def rows(peer: Peer) -> dict[str, bytes]:
    """What a table that keeps a row for each identity makes of what has come."""
    return {
        value: fields["payload"]
        for fields in peer.of_kind("publish")
        for name, value in fields["properties"]["user_property"]
        if name == IDENTITY
    }


async def let_die(stand: Stand, pods: list[Peer], draw: random.Random) -> None:
    """Some of the pods, or the broker with all of them."""
    while len(pods) > draw.randrange(0, 4):
        pods.pop(draw.randrange(len(pods))).cut()
    if draw.random() < 0.15:
        stand.cut_power()
        pods.clear()
        await sleep(2)
    elif draw.random() < 0.1:
        await stand.restart()
        pods.clear()


def numbers(count: int, since: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(since, since + count)]


async def pod(stand: Stand, name: str, qos: int = 2, *, is_kept: bool = True) -> Peer:
    """A member whose session outlives its connection by a minute, or ends with it."""
    lasts: dict[str, Any] = {"session_expiry_interval": EXPIRY_S} if is_kept else {"clean": True}
    peer = await stand.connect(name, **lasts)
    await stand.subscribe(peer, GROUP, qos, user_property=[(IDENTITY_REQUEST, "on")])
    return peer


def answer(peer: Peer) -> None:
    """Everything that has come, to the end."""
    for fields in peer.of_kind("publish"):
        kind = "puback" if fields["qos"] == 1 else "pubrec"
        peer.acknowledge(kind, fields["packet_identifier"])
    for fields in peer.of_kind("pubrel"):
        peer.acknowledge("pubcomp", fields["packet_identifier"])
    peer.forget()


@pytest.mark.accepts("S3.4", "S3.36")
def test_what_a_session_has_not_received_goes_back_to_its_group_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def body(stand: Stand) -> None:
        gone, stays = await pod(stand, "pod-7f3a"), await pod(stand, "pod-c01d")
        await stand.publish("reads/1", *numbers(8), qos=2)
        held = payloads(gone)
        assert len(held) == 4
        gone.acknowledge("pubrec", gone.of_kind("publish")[0]["packet_identifier"])
        answer(stays)
        await sleep(1)
        stays.forget()
        gone.cut()
        await sleep(EXPIRY_S - 10)
        assert payloads(stays) == [], "it may still come back for them"
        await sleep(20)
        assert payloads(stays) == marked(stays) == held[1:]
        assert not any(fields["dup"] for fields in stays.of_kind("publish"))
        assert stand.losses() == []
        (told,) = [line for line in caplog.records if "go back to their group" in line.message]
        fields = {"group": GROUP, "client_identifier": "pod-7f3a", "messages": 3}
        assert fields.items() <= vars(told)["fields"].items()

    with_broker(body, REDELIVER)


@pytest.mark.accepts("S3.4")
def test_it_is_seen_how_many_messages_wait_for_whom_and_since_when() -> None:
    async def body(stand: Stand) -> None:
        gone, stays = await pod(stand, "pod-7f3a"), await pod(stand, "pod-c01d")
        await stand.publish("reads/1", *numbers(8), qos=2)
        groups = look_at(stand.server, "view").groups
        assert at_once(groups.awaited(GROUP)) == [], "both are there"
        gone.acknowledge("pubrec", gone.of_kind("publish")[0]["packet_identifier"])
        await sleep(1)
        cut_at_us = stand.server.now_us()
        gone.cut()
        await sleep(5)
        (awaited,) = at_once(groups.awaited(GROUP))
        assert (awaited.client_identifier, awaited.messages) == ("pod-7f3a", 3)
        assert awaited.first_offset == 2, "the first one was received"
        assert awaited.since_us is not None
        assert 0 <= awaited.since_us - cut_at_us < 1_000_000
        assert awaited.ends_at_us == awaited.since_us + EXPIRY_S * 1_000_000
        answer(stays)
        await sleep(EXPIRY_S)
        assert at_once(groups.awaited(GROUP)) == []
        # What came back is the group's again, though a queue beside its own has handed it on.
        assert len(payloads(stays)) == 3
        stays.cut()
        await sleep(1)
        (awaited,) = at_once(groups.awaited(GROUP))
        assert (awaited.client_identifier, awaited.messages) == ("pod-c01d", 3)

    with_broker(body, REDELIVER)


def test_by_the_standard_nobody_else_gets_it_and_the_ledger_names_it() -> None:
    async def body(stand: Stand) -> None:
        gone, stays = await pod(stand, "pod-7f3a"), await pod(stand, "pod-c01d")
        await stand.publish("reads/1", *numbers(8), qos=2)
        assert len(payloads(gone)) == 4
        answer(stays)
        gone.cut()
        await sleep(EXPIRY_S + 10)
        assert payloads(stays) == []
        assert stand.losses() == [(GROUP, LossReason.SESSION_ENDED, 4)]

    with_broker(body, STANDARD)


@pytest.mark.accepts("S3.4", "S3.36")
@pytest.mark.parametrize("between", ["nothing", "restart", "power"])
def test_what_came_back_comes_back_again_from_pod_to_pod(between: str) -> None:
    """Each takes everything, answers for nothing and dies; the last one works."""

    async def body(stand: Stand) -> None:
        sent = numbers(5)
        first = await pod(stand, "pod-0")
        await stand.publish("reads/1", *sent, qos=2)
        assert (payloads(first), marked(first)) == (sent, [])
        first.cut()
        for number in range(1, 4):
            if between == "restart":
                await stand.restart()
            elif between == "power":
                stand.cut_power()
                await sleep(2)
            await sleep(EXPIRY_S + 10)
            another = await pod(stand, f"pod-{number}")
            await sleep(1)
            assert payloads(another) == marked(another) == sent
            if number < 3:
                another.cut()
        answer(another)
        await sleep(1)
        answer(another)
        await sleep(EXPIRY_S + 10)
        assert stand.losses() == []
        assert len(stand.server.stages.redrives) == 0, "nothing is left of it"
        assert payloads(another) == []

    with_broker(body, REDELIVER)


@pytest.mark.accepts("S3.4")
@BOTH
@pytest.mark.parametrize("ends", ["cut", "power"])
def test_what_a_session_has_that_ends_with_its_connection_goes_back_at_once(
    qos: int, ends: str
) -> None:
    async def body(stand: Stand) -> None:
        sent = numbers(4)
        gone = await pod(stand, "pod-7f3a", qos, is_kept=False)
        await stand.publish("reads/1", *sent, qos=qos)
        kind = "puback" if qos == 1 else "pubrec"
        assert payloads(gone) == sent
        gone.acknowledge(kind, gone.of_kind("publish")[0]["packet_identifier"])
        await sleep(2)
        if ends == "cut":
            gone.cut()
            await sleep(1)
        else:
            stand.cut_power()
            await sleep(2)
        other = await pod(stand, "pod-c01d", qos, is_kept=False)
        await sleep(1)
        assert payloads(other) == sent[1:]
        assert marked(other) == sent[1:], "a group remembers it without members, and over its end"
        assert stand.losses() == []

    with_broker(body, REDELIVER)


@pytest.mark.parametrize("way", ["administrator", "clean start"])
def test_a_session_that_is_removed_gives_back_at_once(way: str) -> None:
    async def body(stand: Stand) -> None:
        gone, stays = await pod(stand, "pod-7f3a"), await pod(stand, "pod-c01d")
        await stand.publish("reads/1", *numbers(8), qos=2)
        held = payloads(gone)
        answer(stays)
        if way == "administrator":
            gone.cut()
            await sleep(1)
            await stand.server.commands.end_session("pod-7f3a")
        else:
            await stand.connect("pod-7f3a", clean=True)
        await sleep(1)
        assert payloads(stays) == marked(stays) == held

    with_broker(body, REDELIVER)


def test_what_goes_back_to_a_group_that_ends_is_in_the_ledger() -> None:
    async def body(stand: Stand) -> None:
        gone = await pod(stand, "pod-7f3a")
        await stand.publish("reads/1", *numbers(3), qos=2)
        assert len(payloads(gone)) == 3
        gone.cut()
        await sleep(EXPIRY_S + 10)
        assert stand.losses() == [(GROUP, LossReason.SESSION_ENDED, 3)]

    with_broker(body, replace(REDELIVER, shared_group_expiry_s=0))


def test_nothing_is_told_of_what_comes_for_the_first_time_or_by_the_standard() -> None:
    async def body(stand: Stand) -> None:
        gone, stays = await pod(stand, "pod-7f3a", 1), await pod(stand, "pod-c01d", 1)
        await stand.publish("reads/1", *numbers(8))
        assert marked(stays) == []
        gone.cut()
        await sleep(1)
        assert len(payloads(stays)) == 8
        assert marked(stays) == []

    with_broker(body, STANDARD)


@pytest.mark.accepts("S3.4", "S3.36", "S3.66")
@BOTH
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("strategy", ["round_robin", "key:client"])
def test_pods_of_random_names_lose_nothing_and_leave_nothing_waiting(
    qos: int, seed: int, strategy: str
) -> None:
    """They come under a new name each time, work for a while and die, and so does the broker."""
    draw = random.Random(seed)

    async def body(stand: Stand) -> None:
        sent, table, unmarked = list[bytes](), dict[str, bytes](), list[bytes]()
        pods, keeps_all = list[Peer](), seed % 2 == 0

        def work(peer: Peer) -> None:
            """Commits, answers for what it has committed, and forgets."""
            again = marked(peer)
            table.update(rows(peer))
            unmarked.extend(each for each in payloads(peer) if each not in again)
            answer(peer)

        for number in range(25):
            is_kept = keeps_all or draw.random() < 0.5
            pods.append(await pod(stand, f"pod-{draw.getrandbits(32):x}", qos, is_kept=is_kept))
            new = numbers(draw.randrange(1, 12), len(sent))
            sent += new
            await stand.publish("reads/1", *new, qos=qos)
            for peer in pods:
                if draw.random() < 0.6:
                    work(peer)
            await sleep(1)
            await let_die(stand, pods, draw)
            if number % 8 == 7:
                await sleep(EXPIRY_S)
        for peer in pods:
            peer.cut()
        await sleep(EXPIRY_S + 10)
        last = await pod(stand, "the-last", qos)
        for _ in range(6):
            await sleep(1)
            work(last)
        assert sorted(table.values(), key=int) == sent, "each row once, whatever came twice"
        assert stand.losses() == []
        groups = stand.server.stages.groups
        party = groups.party_of(GROUP)
        queue = groups.queue_of(party)
        assert queue is not None
        deliveries = stand.server.stages.kernel.deliveries
        assert (deliveries.backlog(queue)[1], deliveries.in_flight(queue)) == (0, 0)
        if qos == 2 and keeps_all:
            assert len(unmarked) == len(set(unmarked)), "what comes again says so"

    with_broker(body, replace(REDELIVER, shared_strategy=strategy))


def test_the_setting_holds_from_a_reload_on() -> None:
    async def body(stand: Stand) -> None:
        first, second = await pod(stand, "pod-1"), await pod(stand, "pod-2")
        await stand.publish("reads/1", *numbers(4), qos=2)
        stand.server.reconfigure(REDELIVER)
        first.cut()
        await sleep(EXPIRY_S + 10)
        assert marked(second) == [b"0", b"2"]
        stand.server.reconfigure(STANDARD)
        second.cut()
        await sleep(EXPIRY_S + 10)
        assert [(reason, count) for _, reason, count in stand.losses()] == [
            (LossReason.SESSION_ENDED, 4)
        ]

    with_broker(body, STANDARD)
