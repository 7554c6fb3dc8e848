"""Environments on one broker, in virtual time: each gets everything, and who takes another one's
messages is found."""

from dataclasses import replace
from typing import Any, cast

import pytest

from holdfast.broker.chores import Chores, Pieces
from holdfast.broker.commands import CommandRefusedError, Refusal
from holdfast.broker.counts import Event
from holdfast.broker.group_commands import GroupCommands
from holdfast.broker.observe.clients import ClientsSeen
from holdfast.broker.observe.thefts import Thefts
from holdfast.broker.state.broker import Broker, look_at
from holdfast.core.config import Config
from holdfast.core.loss_reason import LossReason
from tests.simulation.peer import Peer, Stand, sleep, with_broker
from tests.simulation.test_retention import fill, until
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
        await sleep(1)

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


def test_what_is_taken_of_a_group_that_was_quiet_counts_from_its_first_message() -> None:
    group = f"$share/bbu-azure-prod/{READS}"

    async def body(stand: Stand) -> None:
        thefts, consumers = watched(stand), Pods(stand)
        await consumers.join(group, "bbu-azure-dev-1")
        # Longer than a window: what comes then is the first in a new one.
        await sleep(600)
        await consumers.publish(10)
        await sleep(3)
        assert [(it.environment, it.messages) for it in thefts.takers(group)] == [("azure-dev", 10)]
        await sleep(12)
        (theft,) = thefts.going_on()
        assert theft.taken == 10

    with_broker(body, settings(environments_names=KNOWN))


ORIGINAL = f"$share/bbu-azure-prod/{READS}"
FORK = f"$share/bbu-azure-qa/{READS}"


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


async def refused(stand: Stand, *arguments: Any) -> Refusal:
    with pytest.raises(CommandRefusedError) as caught:
        await stand.server.group_commands.fork(*arguments)
    return caught.value.refusal


@pytest.mark.parametrize("restart", [False, True])
def test_a_fork_gets_exactly_what_its_original_had_since_a_time_and_moves_nobody(
    restart: bool,
) -> None:
    async def body(stand: Stand) -> None:
        pods = Pods(stand)
        await pods.join(ORIGINAL, "bbu-azure-prod-1")
        await pods.publish(10)
        since_us = stand.server.now_us()
        await pods.publish(20)
        await sleep(2)
        mark = stand.server.stages.groups
        before = mark.describe(ORIGINAL, lambda _: "")["mark"]
        made = await stand.server.group_commands.fork(ORIGINAL, "bbu-azure-qa", since_us)
        assert (made.group, made.place, made.messages) == (FORK, 10, 20)
        await pods.publish(5)
        if restart:
            await stand.restart()
        else:
            after = stand.server.stages.groups.describe(ORIGINAL, lambda _: "")["mark"]
            assert after == before + 5
        late = Pods(stand)
        await late.join(FORK, "bbu-azure-qa-1")
        await late.publish(0)
        assert late.got("bbu-azure-qa-1") == numbers(10, 35)
        again = Pods(stand)
        await again.join(ORIGINAL, "bbu-azure-prod-1")
        await again.publish(0)
        assert again.got("bbu-azure-prod-1") == []
        assert pods.got("bbu-azure-prod-1") == numbers(0, 35)

    with_broker(body, settings(environments_names=KNOWN))


def test_a_fork_without_a_time_gets_what_its_original_has_not_had_yet() -> None:
    async def body(stand: Stand) -> None:
        pods = Pods(stand)
        await pods.join(ORIGINAL, "bbu-azure-prod-1")
        await pods.publish(10)
        pods.peers.pop("bbu-azure-prod-1").cut()
        await pods.publish(5)
        now_us = stand.server.now_us()
        for name, at_us in (("bbu-azure-qa", None), ("bbu-azure-later", now_us)):
            made = await stand.server.group_commands.fork(ORIGINAL, name, at_us)
            assert (made.place, made.messages) == (10, 5)

    with_broker(body)


def test_a_fork_whose_place_goes_while_it_is_counted_is_refused() -> None:
    async def body(stand: Stand) -> None:
        pods = Pods(stand)
        await pods.join(ORIGINAL, "bbu-azure-prod-1")
        pods.peers.pop("bbu-azure-prod-1").cut()
        await pods.publish(5)
        stages = stand.server.stages
        kept_log, place = stages.kernel.log, stages.groups.describe(ORIGINAL, lambda _: "")["mark"]
        assert kept_log.whole_from() <= place

        class LateChores:
            """Retention is faster than they are."""

            async def outcome(self, pieces: Pieces[int]) -> int:
                counted = await stages.chores.outcome(pieces)
                await fill(stand, "elsewhere")
                await until(lambda: kept_log.whole_from() > place)
                return counted

        late = replace(stages, chores=cast(Chores, LateChores()))
        commands = GroupCommands(late, stand.server.now_us, lambda: retained)
        with pytest.raises(CommandRefusedError) as caught:
            await commands.fork(ORIGINAL, "bbu-azure-qa", None)
        assert caught.value.refusal is Refusal.GONE
        assert FORK not in stages.groups

    retained = settings(retention_bytes=3 * CONFIG.segment_bytes)
    with_broker(body, retained)


def test_a_fork_that_nobody_subscribes_to_ends_and_what_cannot_be_forked_is_refused() -> None:
    async def body(stand: Stand) -> None:
        pods = Pods(stand)
        await pods.join(ORIGINAL, "bbu-azure-prod-1")
        await pods.publish(60)
        for name in ("", "a/b", "a+", "#", "a" * 1_025):
            assert await refused(stand, ORIGINAL, name, None) is Refusal.WRONG_NAME
        assert await refused(stand, ORIGINAL, "bbu-azure-prod", None) is Refusal.NAME_TAKEN
        assert await refused(stand, FORK, "a", None) is Refusal.NO_SUCH_GROUP
        assert await refused(stand, ORIGINAL, "bbu-azure-qa", 0) is Refusal.BEYOND_QUOTA
        await stand.server.group_commands.fork(ORIGINAL, "bbu-azure-qa", None)
        await sleep(58)
        assert FORK in stand.server.stages.groups
        await sleep(5)
        assert FORK not in stand.server.stages.groups

    with_broker(body, settings(environments_fork_expiry_s=60, queue_messages_maximum=50))


@pytest.mark.parametrize(
    ("since_us", "way_out"), [(0, "take a later time, or raise it"), (None, "raise it")]
)
def test_who_forks_a_group_that_is_too_far_behind_is_told_what_helps(
    since_us: int | None, way_out: str
) -> None:
    async def body(stand: Stand) -> None:
        pods = Pods(stand)
        await pods.join(ORIGINAL, "bbu-azure-prod-1")
        if since_us is None:
            pods.peers.pop("bbu-azure-prod-1").cut()
        await pods.publish(60)
        with pytest.raises(CommandRefusedError) as caught:
            await stand.server.group_commands.fork(ORIGINAL, "bbu-azure-qa", since_us)
        assert str(caught.value).endswith(f"queue.messages_maximum lets 50 wait; {way_out}")

    with_broker(body, settings(queue_messages_maximum=50))


@pytest.mark.accepts("S3.64")
@pytest.mark.parametrize("limit", [7, 4])
def test_how_much_waits_for_a_session_is_limited_as_it_is_set_and_shown(limit: int) -> None:
    async def body(stand: Stand) -> None:
        peer = await stand.connect("reader-7")
        await stand.subscribe(peer, READS)
        peer.cut()
        await stand.publish("zebra/fx/7/reads", *numbers(0, 9))
        shown = await ClientsSeen(seen(stand)).show("reader-7")
        assert shown is not None
        assert (shown.waiting_maximum, shown.length.messages) == (limit, limit)
        again = await stand.connect("reader-7")
        assert [fields["payload"] for fields in again.of_kind("publish")] == numbers(9 - limit, 9)
        await sleep(2)
        assert stand.losses() == [("reader-7", "overflow", 9 - limit)]

    with_broker(body, settings(queue_messages_maximum=limit))


def test_losses_are_counted_for_each_environment() -> None:
    async def body(stand: Stand) -> None:
        for name, topic_filter in (("bbu-azure-dev-1", READS), ("pod", ORIGINAL), ("else", READS)):
            peer = await stand.connect(name)
            await stand.subscribe(peer, topic_filter)
            peer.cut()
        await stand.publish("zebra/fx/7/reads", *numbers(0, 9))
        for name in ("bbu-azure-dev-1", "pod", "else"):
            await stand.connect(name)
        lost = stand.server.stages.losses.by_environment
        assert lost == {
            ("azure-dev", LossReason.OVERFLOW): 2,
            ("azure-prod", LossReason.OVERFLOW): 2,
        }

    with_broker(body, settings(queue_messages_maximum=7, environments_names=KNOWN))


@pytest.mark.accepts("S3.4", "S3.5")
def test_pods_that_come_share_from_then_on_and_what_one_leaves_the_others_get() -> None:
    async def body(stand: Stand) -> None:
        pods = Pods(stand)
        await pods.join(ORIGINAL, "bbu-azure-prod-x7k2p")
        await pods.publish(12)
        await pods.join(ORIGINAL, "bbu-azure-prod-9fq3z", "bbu-azure-prod-m4n8c")
        await pods.publish(12)
        assert [len(pods.got(name)) for name in pods.peers] == [16, 4, 4]
        for peer in pods.peers.values():
            peer.cut()
        everything = [payload for name in pods.peers for payload in pods.got(name)]
        await stand.publish("zebra/fx/7/reads", *numbers(24, 30))
        await stand.restart()
        late = Pods(stand)
        await late.join(ORIGINAL, "bbu-azure-prod-under-another-name")
        await late.publish(0)
        everything += late.got("bbu-azure-prod-under-another-name")
        assert sorted(everything, key=int) == numbers(0, 30)

    with_broker(body)


def test_a_reload_takes_other_names_rules_and_demands_over() -> None:
    async def body(stand: Stand) -> None:
        peer = await stand.connect("probe-1", **said("azure-qa"))
        group = f"$share/bbu-processors/{READS}"
        environments = seen(stand).environments
        assert environments.of_owner("probe-2") is None
        stand.server.reconfigure(
            settings(
                environments_names=("azure-dev",),
                environments_clients=("probe-*=azure-prod",),
                environments_user_property="stage",
                environments_groups_without_environment="refuse",
            )
        )
        assert environments.names() == ("azure-dev", "azure-prod", "azure-qa")
        assert environments.of_owner("probe-2") == "azure-prod"
        assert environments.of_group(f"$share/bbu-azure-dev/{READS}") == "azure-dev"
        assert (await suback(stand, peer, group))["reason_codes"] == [0x83]
        await stand.connect("other", user_property=[("stage", "azure-dev"), (PROPERTY, "no")])
        assert environments.of_owner("other") == "azure-dev"

    with_broker(body)
