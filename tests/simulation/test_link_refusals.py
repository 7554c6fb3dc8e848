"""What a remote ends the connection at: it is not asked or sent for ever, and the rest goes."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from holdfast.broker.bridge.link import State
from holdfast.broker.bridge_commands import BridgeCommands
from holdfast.protocols.mqtt.reason_code import ReasonCode
from tests.simulation.remote import Bridged, Inquisitive, Visit, topics, with_remote

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
