"""What a remote ends the connection at: it is not asked or sent for ever, and the rest goes."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from holdfast.broker.bridge.link import State
from holdfast.broker.bridge.suspicion import QUIET_S, SOON_S
from holdfast.broker.bridge_commands import BridgeCommands
from holdfast.core.units import MIB
from holdfast.protocols.mqtt.reason_code import ReasonCode
from tests.simulation.remote import Bridged, Inquisitive, Visit, topics, with_remote
from tests.simulation.whole import CONFIG

sleep = asyncio.sleep


# --- subscriptions --------------------------------------------------------------------------------


class WithoutWildcards(Inquisitive):
    """Ends the connection at a filter with wildcards (MQTT 5 section 3.2.2.3.11)."""

    def __init__(self) -> None:
        super().__init__()
        self.properties = {"wildcard_subscription_available": 0}

    def look(self, visit: Visit, kind: str, fields: Mapping[str, Any]) -> None:
        """A packet has come."""
        if not self.properties:
            return
        asked = [item["topic_filter"] for item in fields.get("subscriptions", ())]
        if any("#" in text or "+" in text for text in [*asked, *fields.get("topic_filters", ())]):
            code = ReasonCode.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED
            visit.send("disconnect", reason_code=code)
            visit.transport.close()


@pytest.mark.parametrize("session_present", [False, True])
def test_a_remote_without_wildcards_is_asked_for_the_rest_and_gets_everything(
    session_present: bool,
) -> None:
    async def body(bridged: Bridged) -> None:
        remote, link = bridged.remote, bridged.link
        await bridged.publish("up/x", b"1", qos=1)
        remote.connack = {"session_present": session_present}
        remote.visit.transport.abort()
        await sleep(3)
        await bridged.publish("up/x", b"2", qos=1)
        assert topics(remote) == ["up/x"] * 2
        for asked in remote.all("subscribe"):
            assert [item["topic_filter"] for item in asked["subscriptions"]] == ["down/x"]
        assert (len(remote.visits), link.state) == (2, State.CONNECTED)
        said = [each.detail for each in link.events if each.kind == "subscription refused"]
        assert said[:2] == [
            "down/#: wildcard_subscriptions_not_supported",
            "down/+/y: wildcard_subscriptions_not_supported",
        ]
        assert link.counts.subscriptions_refused == len(said) == 4
        checked = await BridgeCommands(bridged.server.stages, lambda: 1).check(link.bridge)
        (doubt,) = checked.doubts
        assert doubt.startswith("the remote takes no wildcards, and remote_subscriptions has some")

    filters = ["down/#", "down/x", "down/+/y"]
    with_remote(body, WithoutWildcards(), remote_subscriptions=[{"filters": filters}])


def test_what_a_remote_with_wildcards_was_asked_for_is_not_withdrawn_at_one_without() -> None:
    async def body(bridged: Bridged) -> None:
        remote = bridged.remote
        remote.connack = {"session_present": True}
        remote.properties = {"wildcard_subscription_available": 0}
        remote.visit.transport.abort()
        await sleep(3)
        await bridged.publish("up/x", b"1", qos=1)
        assert remote.all("unsubscribe") == []
        assert topics(remote) == ["up/x"]

    remote = WithoutWildcards()
    remote.properties = {}
    with_remote(body, remote)


# --- messages -------------------------------------------------------------------------------------

BAD = "up/bad"
QUOTA_EXCEEDED = ReasonCode.QUOTA_EXCEEDED
KEEPING = replace(CONFIG, retention_bytes=64 * MIB)
HALF_AN_HOUR_S = 1_800
FEW_MINUTES_S = 300


class Choosy(Inquisitive):
    """Ends the connection at each message to a topic, and says nothing, or why."""

    def __init__(self, version: int = 5, code: int | None = None, bad: str = BAD) -> None:
        super().__init__(version)
        self.code = code
        self.bad = bad
        self.taken: list[bytes] = []
        """The payloads of what it has answered, or would have."""

    def look(self, visit: Visit, kind: str, fields: Mapping[str, Any]) -> None:
        """A packet has come."""
        if kind != "publish" or visit.transport.is_closing():
            return
        if not fields["topic_name"].startswith(self.bad):
            self.taken.append(fields["payload"])
            return
        if self.code is not None:
            visit.send("disconnect", reason_code=self.code)
        visit.transport.close()


def events(bridged: Bridged, kind: str) -> list[str]:
    return [each.detail for each in bridged.link.events if each.kind == kind]


async def publish_around(bridged: Bridged, qos: int, bad: int = 1) -> None:
    """Messages that the remote takes before, between and behind those that it does not, and others
    that are not for it."""
    await bridged.publish("up/x", b"1", qos=qos)
    for _ in range(bad):
        await bridged.publish("other", b"", qos=qos)
        await bridged.publish(BAD, b"bad", qos=qos)
    await bridged.publish("up/x", b"2", b"3", qos=qos)
    await bridged.publish("up/late", b"0", qos=0)


@pytest.mark.parametrize("session_present", [False, True])
@pytest.mark.parametrize(
    ("version", "qos", "code"),
    [(5, 1, None), (5, 2, None), (5, 1, QUOTA_EXCEEDED), (5, 2, QUOTA_EXCEEDED), (4, 1, None)],
)
def test_a_message_at_which_the_remote_ends_each_connection_is_on_the_ledger_and_the_rest_goes_on(
    version: int, qos: int, code: int | None, session_present: bool
) -> None:
    async def body(bridged: Bridged) -> None:
        remote, link = bridged.remote, bridged.link
        assert isinstance(remote, Choosy)
        remote.connack = {"session_present": session_present}
        await publish_around(bridged, qos)
        await sleep(FEW_MINUTES_S)
        assert list(dict.fromkeys(remote.taken)) == [b"1", b"0", b"2", b"3"]
        assert bridged.losses() == [("b", "refused", 1)]
        why = "connection_lost" if code is None else "the remote ended it: quota_exceeded"
        said = f"offset 2: the remote ends each connection at it: {why}"
        assert events(bridged, "message refused") == [said]
        assert [event.offset for event in link.events if event.offset is not None] == [2]
        assert (link.state, link.queue.in_flight()) == (State.CONNECTED, 0)
        assert qos == 1 or len(remote.taken) == 4
        await bridged.publish("up/x", *[b"more"] * 10, qos=qos)
        assert remote.taken.count(b"more") == 10

    with_remote(body, Choosy(version, code))


def test_one_after_another_that_the_remote_cannot_take_is_found() -> None:
    async def body(bridged: Bridged) -> None:
        remote = bridged.remote
        assert isinstance(remote, Choosy)
        await publish_around(bridged, 1, bad=3)
        await sleep(HALF_AN_HOUR_S)
        assert sorted(set(remote.taken)) == [b"0", b"1", b"2", b"3"]
        assert [reason for _, reason, _ in bridged.losses()] == ["refused"] * 3
        assert len(events(bridged, "message refused")) == 3

    with_remote(body, Choosy(), config=KEEPING)


def test_what_it_cannot_take_at_qos_0_costs_no_message_of_qos_1() -> None:
    async def body(bridged: Bridged) -> None:
        remote = bridged.remote
        assert isinstance(remote, Choosy)
        device = await bridged.connect("device", clean=True)
        for number in range(1, 301):
            device.publish(BAD, b"bad", qos=0)
            device.publish("up/x", b"%d" % number, identifier=number)
            await sleep(1)
        await sleep(FEW_MINUTES_S)
        assert set(remote.taken) == {b"%d" % number for number in range(1, 301)}
        assert bridged.losses() == []

    with_remote(body, Choosy(), config=KEEPING)


@pytest.mark.parametrize(
    "code",
    [
        ReasonCode.SERVER_SHUTTING_DOWN,
        ReasonCode.SERVER_BUSY,
        ReasonCode.SESSION_TAKEN_OVER,
        ReasonCode.SERVER_MOVED,
    ],
)
def test_a_remote_that_ends_it_for_another_reason_costs_no_message(code: int) -> None:
    async def body(bridged: Bridged) -> None:
        remote = bridged.remote
        assert isinstance(remote, Choosy)
        await publish_around(bridged, 1)
        await sleep(HALF_AN_HOUR_S)
        assert len(remote.visits) > 12
        remote.bad = "none"
        await sleep(FEW_MINUTES_S)
        assert [*dict.fromkeys(remote.taken)] == [b"1", b"0", b"bad", b"2", b"3"]
        assert bridged.losses() == []

    with_remote(body, Choosy(code=code), config=KEEPING)


class Failing(Choosy):
    """Answers no message, and ends each connection some time after it was accepted."""

    def __init__(self, after_s: float) -> None:
        super().__init__(bad="none")
        self.after_s: float | None = after_s

    def look(self, visit: Visit, kind: str, fields: Mapping[str, Any]) -> None:
        """A packet has come."""
        super().look(visit, kind, fields)
        if kind == "subscribe" and self.after_s is not None:
            asyncio.get_running_loop().call_later(self.after_s, visit.transport.abort)


@pytest.mark.parametrize("after_s", [0.1, QUIET_S - 1, QUIET_S + SOON_S + 3])
def test_a_remote_or_a_network_that_fails_all_the_time_costs_no_message(after_s: float) -> None:
    async def body(bridged: Bridged) -> None:
        remote = bridged.remote
        assert isinstance(remote, Failing)
        await publish_around(bridged, 1)
        await sleep(HALF_AN_HOUR_S)
        assert len(remote.visits) > 12
        remote.after_s = None
        remote.silent_about.clear()
        await sleep(FEW_MINUTES_S)
        assert {fields["payload"] for fields in remote.visit.of_kind("publish")} <= {
            *(b"%d" % number for number in range(4)),
            b"bad",
        }
        assert (bridged.link.queue.in_flight(), bridged.losses()) == (0, [])
        assert bridged.link.queue.acknowledged() == 4

    remote = Failing(after_s)
    remote.silent_about = {"publish"}
    with_remote(body, remote, config=KEEPING)
