"""Groups of APPLICATION and DEVICE clients in virtual time: who gets what, who waits for whom, and
what is left of a member that has gone."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.broker.chores import at_once
from holdfast.broker.store.questions import Inquiry
from tests.simulation.peer import Peer, Stand, sleep, with_broker
from tests.simulation.whole import CONFIG

APPLICATIONS = replace(CONFIG, application_client_identifiers=("app*",))
PACK = 200
TIMEOUT_S = 20
GROUP = "$share/g/reads/#"
BOTH_KINDS = pytest.mark.parametrize("kind", ["app", "device"])


def payloads(peer: Peer) -> list[bytes]:
    return [fields["payload"] for fields in peer.of_kind("publish")]


def numbers(count: int, since: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(since, since + count)]


async def member(
    stand: Stand, name: str, topic_filter: str = GROUP, qos: int = 1, **properties: Any
) -> Peer:
    peer = await stand.connect(name, **properties)
    await stand.subscribe(peer, topic_filter, qos)
    return peer


def acknowledge_all(peer: Peer) -> None:
    """Whatever came at QoS 1, and is forgotten then."""
    peer.acknowledge("puback", *(each["packet_identifier"] for each in peer.of_kind("publish")))
    peer.forget()


def packs(stand: Stand, client: str) -> dict[str, dict[str, Any] | None]:
    """The open packs of a client: of its own queue, and by group."""
    stages = stand.server.stages
    attached = stages.sessions.attached(client)
    assert attached is not None
    found = {"own": stages.kernel.deliveries.pack(attached.connection, 0)}
    for name, group in stages.groups._groups.items():
        found[name] = stages.kernel.deliveries.pack(attached.connection, group.record.party)
    return found


@pytest.mark.accepts("S0.69", "S0.70")
def test_applications_that_share_divide_the_messages_and_nobody_idles() -> None:
    async def body(stand: Stand) -> None:
        members = [await member(stand, f"app{n}") for n in range(7)]
        await stand.publish("reads/only-one-topic", *numbers(70))
        assert [len(payloads(each)) for each in members] == [10] * 7, "pain 5: nobody idles"
        got = [payload for each in members for payload in payloads(each)]
        assert sorted(got, key=int) == numbers(70)

    with_broker(body, APPLICATIONS)


@pytest.mark.accepts("S0.71", "S0.72")
def test_each_shared_subscription_of_a_client_has_a_pack_of_its_own() -> None:
    async def body(stand: Stand) -> None:
        app = await member(stand, "app", "own/#")
        await stand.subscribe(app, "$share/g/one/#", 1)
        await stand.subscribe(app, "$share/g/two/#", 1)
        for topic in ("own/1", "one/1", "two/1"):
            await stand.publish(topic, *numbers(PACK + 50))
        assert len(payloads(app)) == 3 * PACK
        found = packs(stand, "app")
        assert {name: pack and pack["pending"] for name, pack in found.items()} == {
            "own": PACK,
            "$share/g/one/#": PACK,
            "$share/g/two/#": PACK,
        }
        # One of them is stalled; the others go on, pack after pack.
        for other in ("own/1", "two/1"):
            done = [each for each in app.of_kind("publish") if each["topic_name"] == other]
            assert len(done) == PACK
            app.acknowledge("puback", *(each["packet_identifier"] for each in done))
        app.forget()
        await sleep(1)
        topics = [each["topic_name"] for each in app.of_kind("publish")]
        assert (topics.count("own/1"), topics.count("two/1"), len(topics)) == (50, 50, 100)

    with_broker(body, APPLICATIONS)


@pytest.mark.accepts("S3.1", "S3.2", "S3.3", "S3.6")
def test_each_group_gets_everything_and_divides_it_evenly_among_its_members() -> None:
    async def body(stand: Stand) -> None:
        sizes = {"prod": 3, "dev": 2, "laptop": 1}
        groups = {
            name: [
                await member(stand, f"{name}-{number}", f"$share/reads-{name}/reads/#")
                for number in range(size)
            ]
            for name, size in sizes.items()
        }
        await stand.publish("reads/1", *numbers(60))
        for name, members in groups.items():
            assert [len(payloads(each)) for each in members] == [60 // sizes[name]] * sizes[name]
            got = [payload for each in members for payload in payloads(each)]
            assert sorted(got, key=int) == numbers(60)

    with_broker(body)


def queued(stand: Stand) -> int:
    stages = stand.server.stages
    return at_once(stages.groups.queued(GROUP, Inquiry(stages.kernel.log)))


@pytest.mark.accepts("S0.82", "S3.5")
@BOTH_KINDS
def test_members_that_join_and_leave_share_what_there_is_at_once(kind: str) -> None:
    async def body(stand: Stand) -> None:
        members = [await member(stand, f"{kind}0")]
        await stand.publish("reads/1", *numbers(6))
        assert len(payloads(members[0])) == 6
        members.append(await member(stand, f"{kind}1"))
        members.append(await member(stand, f"{kind}2"))
        acknowledge_all(members[0])
        await stand.publish("reads/1", *numbers(30))
        assert [len(payloads(each)) for each in members] == [10, 10, 10]
        for each in members:
            acknowledge_all(each)
        members[0].send("unsubscribe", packet_identifier=2, topic_filters=[GROUP])
        await sleep(1)
        await stand.publish("reads/1", *numbers(30))
        assert [len(payloads(each)) for each in members] == [0, 15, 15]

    with_broker(body, APPLICATIONS)


@pytest.mark.accepts("S0.83")
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("subscribed", [0, 1, 2])
def test_an_application_gets_the_lower_qos_of_publish_and_subscription(
    published: int, subscribed: int
) -> None:
    async def body(stand: Stand) -> None:
        app = await member(stand, "app", qos=subscribed)
        await stand.publish("reads/1", b"x", qos=published)
        (got,) = app.of_kind("publish")
        assert (got["payload"], got["qos"]) == (b"x", min(published, subscribed))

    with_broker(body, APPLICATIONS)


def test_a_group_goes_on_by_itself_when_a_member_reads_again() -> None:
    """Pain 2: after backpressure the main consumer was resumed and the shared one was not."""

    async def body(stand: Stand) -> None:
        app = await member(stand, "app", "own/#")
        await stand.subscribe(app, GROUP, 1)
        app.forget()
        app.pause_reading()
        for _ in range(30):
            await stand.publish("own/1", *[b"x" * 20_000] * 3)
            await stand.publish("reads/1", *[b"y" * 20_000] * 3)
        assert len(payloads(app)) < 60
        app.resume_reading()
        got = []
        for _ in range(5):
            await sleep(1)
            got += [payload[:1] for payload in payloads(app)]
            acknowledge_all(app)
        assert (got.count(b"x"), got.count(b"y")) == (90, 90)

    with_broker(body, APPLICATIONS)


@BOTH_KINDS
def test_qos_0_leaves_no_backlog_and_goes_on_after_a_reconnect_without_subscribe(kind: str) -> None:
    """Pain 4."""

    async def body(stand: Stand) -> None:
        first = await member(stand, f"{kind}0", qos=0)
        for qos in (0, 1, 2):
            await stand.publish("reads/1", *numbers(5), qos=qos)
        assert payloads(first) == numbers(5) * 3
        assert queued(stand) == 0
        first.cut()
        await sleep(1)
        await stand.publish("reads/1", *numbers(5), qos=1)
        assert queued(stand) == 5
        again = await stand.connect(f"{kind}0")
        await stand.publish("reads/1", *numbers(5, 5), qos=1)
        assert payloads(again) == numbers(10), "nothing twice, and no SUBSCRIBE was needed"
        assert queued(stand) == 0

    with_broker(body, APPLICATIONS)


@pytest.mark.accepts("S4.130", "S4.220")
@BOTH_KINDS
def test_no_message_waits_for_a_member_that_is_away(kind: str) -> None:
    """Pain 14: neither what it had in flight nor what comes then."""

    async def body(stand: Stand) -> None:
        away, stays = await member(stand, f"{kind}0"), await member(stand, f"{kind}1")
        await stand.publish("reads/1", *numbers(10))
        held = payloads(away)
        assert len(held) == 5
        acknowledge_all(stays)
        await sleep(1)
        away.cut()
        await stand.publish("reads/1", *numbers(5, 10))
        got = payloads(stays)
        acknowledge_all(stays)
        await sleep(1)
        got += payloads(stays)
        assert got == [*held, *numbers(5, 10)], "what came back first, in order"
        acknowledge_all(stays)
        back = await stand.connect(f"{kind}0")
        assert payloads(back) == []
        await stand.publish("reads/1", *numbers(2))
        assert (len(payloads(back)), len(payloads(stays))) == (1, 1)

    with_broker(body, APPLICATIONS)


@pytest.mark.accepts("S3.4", "S4.1", "S4.2")
@BOTH_KINDS
def test_a_group_without_anybody_keeps_its_backlog_for_members_under_other_names(kind: str) -> None:
    """Pain 15: pods with random client identifiers, whose sessions end with their connections."""

    async def body(stand: Stand) -> None:
        pod = await member(stand, f"{kind}-7f3a", clean=True)
        await stand.publish("reads/1", *numbers(4))
        pod.acknowledge("puback", 1, 2)
        await sleep(1)
        pod.cut()
        await sleep(1)
        await stand.publish("reads/1", *numbers(4, 4))
        stand.cut_power()
        await sleep(2)
        other = await member(stand, f"{kind}-c01d", clean=True)
        await sleep(1)
        assert payloads(other) == numbers(6, 2)

    with_broker(body, replace(APPLICATIONS, shared_group_expiry_s=600))


def test_packs_of_members_are_shared_on_when_one_of_them_dies() -> None:
    """What a worker held of its pack goes to the others in order, ahead of what is new."""

    async def body(stand: Stand) -> None:
        workers = [await member(stand, f"app{n}") for n in range(3)]
        await stand.publish("reads/1", *numbers(600))
        assert [len(payloads(each)) for each in workers] == [PACK] * 3
        held = payloads(workers[0])[100:]
        workers[0].acknowledge("puback", *range(1, 101))
        await sleep(1)
        await stand.publish("reads/1", b"new")
        workers[0].cut()
        await sleep(1)
        for worker in workers[1:]:
            acknowledge_all(worker)
        await sleep(1)
        taken = [payload for each in workers[1:] for payload in payloads(each)]
        assert sorted(taken, key=lambda each: (each == b"new", each)) == [*sorted(held), b"new"]
        for each in workers[1:]:
            in_order = [int(payload) for payload in payloads(each) if payload != b"new"]
            assert in_order == sorted(in_order)
            assert b"new" not in payloads(each)[:-1]

    with_broker(body, APPLICATIONS)
