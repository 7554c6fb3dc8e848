"""Environments on one broker, in virtual time: each gets everything, and who takes another one's
messages is found."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.broker.counts import Event
from holdfast.broker.observe.thefts import Thefts
from holdfast.broker.state.broker import Broker, look_at
from holdfast.core.config import Config
from tests.simulation.peer import Peer, Stand, sleep, with_broker
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


class Pods:
    """Consumers of groups that acknowledge what they get."""

    def __init__(self, stand: Stand) -> None:
        self._stand = stand
        self.peers: dict[str, Peer] = {}
        self._got: dict[str, list[bytes]] = {}
        self._published = 0

    async def join(self, group: str, *names: str) -> None:
        for name in names:
            self.peers[name] = await self._stand.connect(name)
            await self._stand.subscribe(self.peers[name], group)

    async def publish(self, count: int) -> None:
        payloads = [b"%d" % (self._published + number) for number in range(count)]
        self._published += count
        await self._stand.publish("zebra/fx/7/reads", *payloads)
        for name, peer in self.peers.items():
            came = peer.of_kind("publish")
            peer.forget()
            peer.acknowledge("puback", *(fields["packet_identifier"] for fields in came))
            self._got.setdefault(name, []).extend(fields["payload"] for fields in came)

    def got(self, name: str) -> list[bytes]:
        return self._got[name]


def watched(stand: Stand) -> Thefts:
    """What looks on as it does in a whole broker: once a second."""
    thefts = Thefts(seen(stand))
    stand.server.observe("thefts", thefts.look)
    return thefts


PODS = {
    "azure-prod": ["bbu-azure-prod-pod-1", "bbu-azure-prod-pod-2", "bbu-azure-prod-pod-3"],
    "azure-dev": ["bbu-azure-dev-pod-1", "bbu-azure-dev-pod-2"],
    "local-daves-macbook": ["bbu-local-daves-macbook-daves-macbook"],
}
KNOWN = tuple(PODS)


@pytest.mark.accepts("S3.1", "S3.2", "S3.3", "S3.6", "S3.13")
def test_each_environment_gets_everything_and_its_pods_share_it() -> None:
    async def body(stand: Stand) -> None:
        thefts, pods = watched(stand), Pods(stand)
        for environment, names in PODS.items():
            await pods.join(f"$share/bbu-{environment}/{READS}", *names)
        for _ in range(10):
            await pods.publish(60)
        await sleep(20)
        for environment, names in PODS.items():
            everything = sorted(payload for name in names for payload in pods.got(name))
            assert everything == sorted(b"%d" % number for number in range(600))
            shares = [len(pods.got(name)) / 600 for name in names]
            assert shares == pytest.approx([1 / len(names)] * len(names), abs=0.01)
            (taker,) = thefts.takers(f"$share/bbu-{environment}/{READS}")
            assert (taker.environment, taker.share) == (environment, 1.0)
        assert thefts.going_on() == thefts.over() == []

    with_broker(body, settings(environments_names=KNOWN))


@pytest.mark.accepts("S3.7")
def test_a_group_of_all_environments_is_found_within_a_minute_with_names_and_shares(
    caplog: pytest.LogCaptureFixture,
) -> None:
    group = f"$share/bbu-processors/{READS}"
    pods = ["bbu-azure-prod-1", "bbu-azure-prod-2", "bbu-azure-dev-1", "bbu-local-daves-macbook-1"]

    async def body(stand: Stand) -> None:
        thefts, consumers = watched(stand), Pods(stand)
        await consumers.join(group, *pods)
        for _ in range(6):
            await consumers.publish(40)
        await sleep(30)
        for name in pods:
            assert len(consumers.got(name)) / 240 == pytest.approx(0.25, abs=0.01)
        (theft,) = thefts.going_on()
        assert (theft.group, theft.environment, theft.taken) == (group, "azure-prod", 120)
        shares = {taker.environment: taker.share for taker in theft.takers}
        expected = {"azure-prod": 0.5, "azure-dev": 0.25, "local-daves-macbook": 0.25}
        assert shares == pytest.approx(expected)
        assert theft.told().startswith("azure-dev takes 25%")
        assert thefts.taken == {
            ("azure-prod", "azure-dev"): 60,
            ("azure-prod", "local-daves-macbook"): 60,
        }

    with_broker(body, settings(environments_names=KNOWN))
    assert caplog.messages.count("group is used by several environments") == 1


def test_a_theft_by_whoever_is_alone_is_found_and_is_over_a_window_after_its_last_message() -> None:
    group = f"$share/bbu-azure-prod/{READS}"

    async def body(stand: Stand) -> None:
        thefts, consumers = watched(stand), Pods(stand)
        await consumers.join(group, "bbu-azure-dev-1")
        await consumers.publish(10)
        await sleep(8)
        assert not thefts.going_on(), "one second of a mistake is not yet a share"
        await sleep(10)
        (theft,) = thefts.going_on()
        assert [(it.environment, it.share) for it in theft.takers] == [("azure-dev", 1.0)]
        consumers.peers.pop("bbu-azure-dev-1").cut()
        await sleep(60)
        assert not thefts.going_on()
        (over,) = thefts.over()
        assert (over.since_us, over.taken) == (theft.since_us, 10)
        assert over.until_us is not None
        assert 0 < over.until_us - over.since_us <= 61_000_000
        assert thefts.found == 1
        # Nobody's environment is known here, so nobody can be said to take another one's.
        await consumers.join(group, "somebody")
        await consumers.publish(10)
        await sleep(30)
        assert not thefts.going_on()
        assert [taker.environment for taker in thefts.takers(group)] == [""]

    with_broker(body, settings(environments_names=KNOWN))
