"""Environments on one broker, in virtual time: each gets everything, and who takes another one's
messages is found."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.broker.counts import Event
from holdfast.broker.state.broker import Broker, look_at
from holdfast.core.config import Config
from tests.simulation.peer import Peer, Stand, with_broker
from tests.simulation.whole import CONFIG

READS = "zebra/fx/+/reads"
PROPERTY = "holdfast-environment"


def settings(**fields: Any) -> Config:
    return replace(CONFIG, **fields)


def said(environment: str) -> dict[str, Any]:
    """What a client says in CONNECT."""
    return {"user_property": [(PROPERTY, environment)]}


def seen(stand: Stand) -> Broker:
    return look_at(stand.server, ":memory:")


async def suback(stand: Stand, peer: Peer, topic_filter: str) -> dict[str, Any]:
    peer.forget()
    await stand.subscribe(peer, topic_filter)
    (answer,) = peer.of_kind("suback")
    return answer


def test_a_client_says_its_environment_or_its_identifier_tells_it() -> None:
    async def body(stand: Stand) -> None:
        await stand.connect("bbu-processor-azure-prod-pod-1")
        environments, sessions = seen(stand).environments, stand.server.stages.sessions
        assert environments.names() == ("azure-prod",)
        await stand.connect("anything", **said("azure-dev"))
        await stand.connect("bbu-azure-prod-1", **said("no/name"))
        assert environments.names() == ("azure-dev", "azure-prod")

        def told(client: str) -> str | None:
            attached = sessions.attached(client)
            assert attached is not None
            return environments.of_session(attached.session)

        assert told("bbu-processor-azure-prod-pod-1") == "azure-prod"
        assert told("anything") == "azure-dev"
        assert told("bbu-azure-prod-1") == "azure-prod"
        assert environments.of_group(f"$share/a-azure-dev/{READS}") == "azure-dev"
        # What a client has said is on record, and outlasts its connection and the broker.
        await stand.restart()
        assert seen(stand).environments.of_owner("anything") == "azure-dev"
        await stand.connect("anything", **said("azure-qa"))
        assert seen(stand).environments.of_owner("anything") == "azure-qa"

    with_broker(body, settings(environments_names=("azure-prod",)))


def test_a_group_whose_name_tells_nothing_is_of_the_environment_that_used_it_first() -> None:
    async def body(stand: Stand) -> None:
        dev = await stand.connect("one", **said("azure-dev"))
        prod = await stand.connect("two", **said("azure-prod"))
        group = f"$share/bbu-processors/{READS}"
        await stand.subscribe(dev, group)
        await stand.subscribe(prod, group)
        assert seen(stand).environments.of_group(group) == "azure-dev"
        own = f"$share/bbu-processors-azure-prod/{READS}"
        await stand.subscribe(dev, own)
        assert seen(stand).environments.of_group(own) == "azure-prod"

    with_broker(body)


def test_as_many_environments_are_known_as_may_be_labels() -> None:
    async def body(stand: Stand) -> None:
        for number in range(70):
            await stand.connect(f"c{number}", clean=True, **said(f"env-{number}"))
        assert len(seen(stand).environments.names()) == 64

    with_broker(body)


@pytest.mark.accepts("S3.7")
def test_a_group_that_several_environments_could_share_is_refused_if_so_set() -> None:
    async def body(stand: Stand) -> None:
        peer = await stand.connect("pod", **said("azure-prod"))
        answer = await suback(stand, peer, f"$share/bbu-processors/{READS}")
        assert answer["reason_codes"] == [0x83]
        assert "environment" in answer["properties"]["reason_string"]
        for allowed in (f"$share/bbu-processors-azure-prod/{READS}", READS):
            answer = await suback(stand, peer, allowed)
            assert (answer["reason_codes"], answer["properties"]) == ([2], {})
        quiet = await stand.connect("quiet", request_problem_information=0)
        answer = await suback(stand, quiet, f"$share/bbu-processors/{READS}")
        assert (answer["reason_codes"], answer["properties"]) == ([0x83], {})
        small = await stand.connect("small", maximum_packet_size=64)
        answer = await suback(stand, small, f"$share/bbu-processors/{READS}")
        assert (answer["reason_codes"], answer["properties"]) == ([0x83], {})
        old = await stand.connect("old", version=4)
        answer = await suback(stand, old, f"$share/bbu-processors/{READS}")
        assert answer["reason_codes"] == [0x80]

    with_broker(body, settings(environments_groups_without_environment="refuse"))


@pytest.mark.accepts("S3.7")
@pytest.mark.parametrize(("demand", "told"), [("warn", 1), ("allow", 0)])
def test_such_a_group_is_told_of_once_environments_are_known(
    caplog: pytest.LogCaptureFixture, demand: str, told: int
) -> None:
    async def body(stand: Stand) -> None:
        peer = await stand.connect("pod")
        group = f"$share/bbu-processors/{READS}"
        assert (await suback(stand, peer, group))["reason_codes"] == [2]
        # Nobody speaks of environments here yet, so none is missed.
        assert stand.server.counts.total(Event.GROUPS_WITHOUT_ENVIRONMENT) == 0
        prod = await stand.connect("prod", **said("azure-prod"))
        assert (await suback(stand, prod, group))["reason_codes"] == [2]
        own = f"$share/bbu-processors-azure-prod/{READS}"
        assert (await suback(stand, prod, own))["reason_codes"] == [2]
        assert stand.server.counts.total(Event.GROUPS_WITHOUT_ENVIRONMENT) == told

    with_broker(body, settings(environments_groups_without_environment=demand))
    lines = [line for line in caplog.messages if line.startswith("group without")]
    assert len(lines) == told
