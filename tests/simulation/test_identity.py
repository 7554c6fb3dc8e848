"""Deliveries that tell which message each is, in virtual time: to whom, and over what."""

from typing import Any

import pytest

from holdfast.protocols.mqtt.identity import IDENTITY, IDENTITY_REQUEST
from tests.simulation.peer import Peer, Stand, sleep, with_broker

ON = {"user_property": [(IDENTITY_REQUEST, "on")]}
OFF = {"user_property": [(IDENTITY_REQUEST, "off")]}


def identity(fields: dict[str, Any]) -> str | None:
    """Of a PUBLISH."""
    found = [
        value for name, value in fields["properties"].get("user_property", ()) if name == IDENTITY
    ]
    assert len(found) < 2
    return found[0] if found else None


def identities(peer: Peer) -> dict[bytes, str | None]:
    """By payload."""
    return {fields["payload"]: identity(fields) for fields in peer.of_kind("publish")}


def offsets(stand: Stand, count: int) -> list[str]:
    """What the newest messages of the log are called, the log being what it is read as."""
    log = stand.server.stages.kernel.log
    end = log.end_offset()
    return [f"{log.epoch()}-{offset}" for offset in range(end - count, end)]


@pytest.mark.accepts("S3.66")
def test_a_message_is_called_the_same_in_each_session_and_group_and_again() -> None:
    async def body(stand: Stand) -> None:
        one, two = await stand.connect("one"), await stand.connect("two")
        await stand.subscribe(one, "reads/#", 1, **ON)
        await stand.subscribe(two, "$share/g/reads/#", 2, **ON)
        await stand.publish("reads/1", b"a", b"b", qos=2)
        expected = dict(zip([b"a", b"b"], offsets(stand, 2), strict=True))
        assert identities(one) == identities(two) == expected
        for peer, name in ((one, "one"), (two, "two")):
            peer.cut()
            await sleep(1)
            again = await stand.connect(name)
            assert identities(again) == expected
            assert all(fields["dup"] for fields in again.of_kind("publish"))

    with_broker(body)


@pytest.mark.accepts("S3.66")
def test_a_session_is_told_so_over_a_restart_and_a_power_cut_until_it_asks_for_the_end() -> None:
    async def body(stand: Stand) -> None:
        peer = await stand.connect("peer")
        await stand.subscribe(peer, "reads/#", 1, **ON)
        stand.cut_power()
        await sleep(2)
        await stand.publish("reads/1", b"a")
        peer = await stand.connect("peer")
        (first,) = offsets(stand, 1)
        assert identities(peer) == {b"a": first}
        await stand.restart()
        peer = await stand.connect("peer")
        assert identities(peer) == {b"a": first}
        # Another SUBSCRIBE that says nothing of it changes nothing.
        await stand.subscribe(peer, "other/#", 1)
        await stand.publish("other/1", b"b")
        assert identities(peer)[b"b"] == offsets(stand, 1)[0]
        await stand.subscribe(peer, "other/#", 1, **OFF)
        await stand.publish("other/1", b"c")
        await stand.restart()
        peer = await stand.connect("peer")
        await stand.publish("reads/1", b"d")
        assert identities(peer) == dict.fromkeys([b"a", b"b", b"c", b"d"])

    with_broker(body)


def test_a_session_that_ends_with_its_connection_takes_the_request_with_it() -> None:
    async def body(stand: Stand) -> None:
        peer = await stand.connect("peer", clean=True)
        await stand.subscribe(peer, "reads/#", 1, **ON)
        await stand.publish("reads/1", b"a")
        assert identities(peer) == {b"a": offsets(stand, 1)[0]}
        peer.cut()
        await sleep(1)
        peer = await stand.connect("peer", clean=True)
        await stand.subscribe(peer, "reads/#", 1)
        await stand.publish("reads/1", b"b")
        assert identities(peer) == {b"b": None}

    with_broker(body)


@pytest.mark.parametrize("value", ["", "yes", "On"])
def test_any_other_user_property_of_subscribe_is_ignored(value: str) -> None:
    async def body(stand: Stand) -> None:
        peer = await stand.connect("peer")
        asked = {"user_property": [(IDENTITY_REQUEST, value), ("other", "on")]}
        await stand.subscribe(peer, "reads/#", 1, **asked)
        await stand.publish("reads/1", b"a")
        assert identities(peer) == {b"a": None}

    with_broker(body)


def test_a_retained_message_is_told_and_what_passes_through_is_not() -> None:
    async def body(stand: Stand) -> None:
        publisher = await stand.connect("publisher", clean=True)
        publisher.send(
            "publish",
            packet_identifier=1,
            qos=1,
            retain=True,
            dup=False,
            topic_name="reads/1",
            payload=b"kept",
        )
        await sleep(1)
        (kept,) = offsets(stand, 1)
        peer = await stand.connect("peer")
        await stand.subscribe(peer, "reads/#", 0, **ON)
        claimed = {"user_property": [(IDENTITY, kept)]}
        await stand.publish("reads/1", b"live", qos=1, **claimed)
        await stand.publish("reads/1", b"fleeting", qos=0, **claimed)
        assert identities(peer) == {b"kept": kept, b"live": None, b"fleeting": None}

    with_broker(body)
