"""Under which name the remote keeps the session of a bridge, and for how long: what counts is what
it grants, and not what it was asked for."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from holdfast.broker.bridge.link import State
from holdfast.protocols.mqtt.reason_code import ReasonCode
from tests.simulation.pair import Pair, with_pair
from tests.simulation.remote import (
    REMOTE_HOST,
    REMOTE_PORT,
    Bridged,
    Remote,
    names,
    with_remote,
)
from tests.simulation.whole import CONFIG

sleep = asyncio.sleep
OWN = "holdfast-b"
KEPT_S = 60


class Registrar(Remote):
    """Keeps a session under a name that it gives itself: a new one to whom it does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.known: list[str] = []
        self.refused: set[str] = set()

    def answer(self, connect: Mapping[str, Any]) -> dict[str, Any]:
        name = connect["client_identifier"]
        told = super().answer(connect)
        if name in self.refused:
            return told | {"reason_code": ReasonCode.CLIENT_IDENTIFIER_NOT_VALID}
        if name in self.known:
            return told | {"session_present": True}
        self.known.append(f"given-{len(self.known)}")
        return told | {"properties": {"assigned_client_identifier": self.known[-1]}}

    def names(self) -> list[str]:
        """Under which somebody has come, the first first."""
        return [fields["client_identifier"] for fields in self.all("connect")]


def told_otherwise(bridged: Bridged) -> list[str]:
    return [each.detail for each in bridged.link.events if each.kind == "granted otherwise"]


def test_a_bridge_comes_back_under_the_name_that_it_was_given_and_finds_its_session() -> None:
    async def body(bridged: Bridged) -> None:
        registrar.silent_about = {"pubrel"}
        await bridged.publish("up/x", b"half done", qos=2)
        registrar.visit.transport.abort()
        await sleep(2)
        assert registrar.names() == [OWN, "given-0"]
        assert bridged.link.counts.sessions_forgotten == 0
        assert registrar.visit.of_kind("pubrel"), "the exchange goes on where it was"
        assert len(registrar.all("publish")) == 1
        assert told_otherwise(bridged) == [f"the remote calls this client 'given-0', not '{OWN}'"]
        assert bridged.link.granted is not None
        assert bridged.link.granted.session_present

    registrar = Registrar()
    with_remote(body, registrar)


@pytest.mark.parametrize(
    ("version", "is_kept", "asked_again"),
    [(4, True, ["down/b"]), (4, False, ["down/a", "down/b"]), (5, True, ["down/a", "down/b"])],
)
def test_a_session_that_is_kept_is_not_asked_for_what_it_has_before_mqtt_5(
    version: int, is_kept: bool, asked_again: list[str]
) -> None:
    async def body(bridged: Bridged) -> None:
        for _ in range(2):
            remote.connack = {"session_present": is_kept}
            remote.suback = codes[-len(asked_again) :]
            remote.visit.transport.abort()
            await sleep(2)
            asked = [item for each in remote.visit.of_kind("subscribe") for item in items(each)]
            assert [item["topic_filter"] for item in asked] == asked_again
        await bridged.publish("up/x", b"goes", qos=1)
        assert len(remote.visit.of_kind("publish")) == 1

    # The second one is refused, so that it is asked for again.
    codes = [1, ReasonCode.UNSPECIFIED_ERROR.value]

    def items(subscribe: dict[str, Any]) -> list[dict[str, Any]]:
        return list(subscribe["subscriptions"])

    remote = Remote(version)
    remote.suback = codes
    with_remote(body, remote, remote_subscriptions=[{"filters": ["down/a", "down/b"]}])


@pytest.mark.parametrize("crashes", [False, True])
def test_the_name_that_it_was_given_is_not_forgotten_by_a_restart(*, crashes: bool) -> None:
    async def body(bridged: Bridged) -> None:
        registrar.silent_about = {"publish"}
        await bridged.publish("up/x", b"not acknowledged", qos=1)
        await bridged.restart(crashes=crashes)
        assert registrar.names() == [OWN, "given-0"]
        assert bridged.link.granted is not None
        assert bridged.link.granted.session_present
        first, again = registrar.all("publish")
        assert (first["dup"], again["dup"]) == (False, True)
        assert again["packet_identifier"] == first["packet_identifier"]

    registrar = Registrar()
    with_remote(body, registrar, replace(CONFIG, bridges_storage="FILE_NATIVE"))


def test_a_name_that_is_not_given_any_more_is_forgotten_by_a_restart_too() -> None:
    async def body(bridged: Bridged) -> None:
        registrar.known.append(OWN)
        registrar.refused = {"given-0"}
        registrar.visit.transport.abort()
        await sleep(160)
        await bridged.restart(crashes=True)
        assert registrar.names() == [OWN, "given-0", OWN, OWN]

    registrar = Registrar()
    with_remote(body, registrar)


@pytest.mark.parametrize(
    "changed", [{"client_identifier": "other"}, {"address": f"remote.example:{REMOTE_PORT}"}]
)
def test_one_that_calls_itself_otherwise_or_somewhere_else_has_no_other_name(
    changed: dict[str, str],
) -> None:
    async def body(bridged: Bridged) -> None:
        names(bridged)["remote.example"] = [REMOTE_HOST]
        bridges = bridged.server.stages.bridges
        made = structs.replace(bridged.link.bridge, name="made")
        for bridge in (made, made, structs.replace(made, **changed)):
            bridges.put(bridge, 0)
            await sleep(1)
        own = "holdfast-made"
        assert registrar.names()[1:] == [own, "given-1", changed.get("client_identifier", own)]

    registrar = Registrar()
    with_remote(body, registrar)


def test_a_name_that_is_given_again_takes_the_place_of_the_first() -> None:
    async def body(bridged: Bridged) -> None:
        registrar.known = ["another"]
        for _ in range(2):
            registrar.visit.transport.abort()
            await sleep(2)
        assert registrar.names() == [OWN, "given-0", "given-1"]
        assert bridged.link.counts.sessions_forgotten == 1
        assert told_otherwise(bridged)[1:] == [
            "the remote calls this client 'given-1', not 'given-0'"
        ]

    registrar = Registrar()
    with_remote(body, registrar)


def test_a_name_that_is_not_taken_any_more_is_given_up() -> None:
    async def body(bridged: Bridged) -> None:
        registrar.refused = {"given-0"}
        registrar.visit.transport.abort()
        await sleep(160)
        assert registrar.names() == [OWN, "given-0", OWN]
        assert bridged.link.state is State.CONNECTED

    registrar = Registrar()
    with_remote(body, registrar)


def test_an_empty_name_is_none() -> None:
    async def body(bridged: Bridged) -> None:
        bridged.remote.visit.transport.abort()
        await sleep(2)
        names = [fields["client_identifier"] for fields in bridged.remote.all("connect")]
        assert names == [OWN, OWN]
        assert told_otherwise(bridged) == []

    remote = Remote()
    remote.properties = {"assigned_client_identifier": ""}
    with_remote(body, remote)


@pytest.mark.parametrize(("away_s", "forgotten"), [(KEPT_S / 2, 0), (3 * KEPT_S, 1)])
def test_a_session_is_there_for_as_long_as_the_remote_has_granted(
    away_s: float, forgotten: int
) -> None:
    async def body(pair: Pair) -> None:
        assert [each.detail for each in pair.link.events if each.kind == "granted otherwise"] == [
            f"the remote keeps the session for {KEPT_S} s, 3600 s were asked for: after a longer"
            " outage it may get again what it had said it had"
        ]
        await pair.cut_off()
        await pair.publish("1", "2", qos=2)
        await sleep(away_s)
        await pair.wire.open()
        await pair.until(pair.near.is_drained)
        assert pair.link.counts.sessions_forgotten == forgotten
        await sleep(1)
        assert pair.collector.payloads(qos=2) == [b"1", b"2"]

    with_pair(body, far={"session_expiry_maximum_s": KEPT_S})


@pytest.mark.parametrize("crashes", [False, True])
def test_a_session_that_is_gone_after_a_restart_was_forgotten(*, crashes: bool) -> None:
    async def body(bridged: Bridged) -> None:
        for is_kept in (True, False):
            bridged.remote.connack = {"session_present": is_kept}
            await bridged.restart(crashes=crashes)
            assert bridged.link.state is State.CONNECTED
            assert bridged.link.counts.sessions_forgotten == (not is_kept)

    with_remote(body, config=replace(CONFIG, bridges_storage="FILE_NATIVE"))


def test_a_session_that_is_begun_anew_is_not_forgotten() -> None:
    async def body(bridged: Bridged) -> None:
        bridged.remote.visit.transport.abort()
        await sleep(2)
        assert len(bridged.remote.visits) == 2
        assert bridged.link.counts.sessions_forgotten == 0

    with_remote(body, clean_start=True)
