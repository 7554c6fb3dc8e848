"""Packs of APPLICATION clients in virtual time: what is given, when it is sent again, and what
becomes of what nobody acknowledges."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from holdfast.core.config import Config
from tests.simulation.peer import Peer, Stand, sleep, with_broker
from tests.simulation.whole import CONFIG

APPLICATIONS = replace(CONFIG, application_client_identifiers=("app*",))
PATIENT = replace(APPLICATIONS, application_pack_timeout_s=3_600)
PACK = 200
TIMEOUT_S = 20
TOPIC = "reads"


def payloads(count: int, *, since: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(since, since + count)]


def published(peer: Peer) -> list[tuple[int, bool, bytes]]:
    """Packet identifier, DUP and payload of every PUBLISH, as they came."""
    return [
        (fields["packet_identifier"], fields["dup"], fields["payload"])
        for fields in peer.of_kind("publish")
    ]


def identifiers(peer: Peer, kind: str = "publish") -> list[int]:
    return [fields["packet_identifier"] for fields in peer.of_kind(kind)]


def pack(stand: Stand, group: str | None = None) -> dict[str, Any]:
    """The pack of `app` from its own queue, or from a group."""
    stages = stand.server.stages
    attached = stages.sessions.attached("app")
    assert attached is not None
    record = stages.groups.record(group) if group else None
    found = stages.kernel.deliveries.pack(attached.connection, record.party if record else 0)
    assert found is not None
    return found


async def with_backlog(
    stand: Stand, *batches: list[bytes], version: int = 4, qos: int = 1, **properties: Any
) -> Peer:
    """The client `app`, which finds these when it connects."""
    peer = await stand.connect("app", version)
    await stand.subscribe(peer, TOPIC)
    peer.cut()
    await sleep(1)
    for batch in batches:
        await stand.publish(TOPIC, *batch, qos=qos)
    return await stand.connect("app", version, **properties)


@pytest.mark.accepts("S0.20", "S0.22", "S0.23")
def test_the_next_pack_comes_at_once_when_all_of_one_is_acknowledged() -> None:
    async def body(stand: Stand) -> None:
        app = await with_backlog(stand, payloads(450))
        assert identifiers(app) == list(range(1, PACK + 1))
        app.acknowledge("puback", *range(2, PACK + 1))
        await sleep(5)
        await stand.publish(TOPIC, b"one more")
        assert len(published(app)) == PACK
        app.forget()
        app.acknowledge("puback", 1)
        await sleep(0.1)
        assert identifiers(app) == list(range(PACK + 1, 2 * PACK + 1))
        app.forget()
        app.acknowledge("puback", *range(PACK + 1, 2 * PACK + 1))
        await sleep(0.1)
        assert len(published(app)) == 51

    with_broker(body, APPLICATIONS)


@pytest.mark.accepts("S0.21", "S0.24", "S0.28")
def test_the_pack_stays_where_it_began_until_it_is_committed() -> None:
    async def body(stand: Stand) -> None:
        app = await with_backlog(stand, payloads(PACK + 3))
        before = pack(stand)
        assert before == {
            "first_offset": before["first_offset"],
            "taken": PACK,
            "pending": PACK,
            "open": False,
        }
        app.acknowledge("puback", *range(1, PACK))
        await sleep(1)
        assert pack(stand) == before | {"pending": 1}
        app.acknowledge("puback", PACK)
        await sleep(1)
        after = pack(stand)
        assert after["first_offset"] == before["first_offset"] + PACK
        assert (after["taken"], after["pending"]) == (3, 3)

    with_broker(body, APPLICATIONS)


@pytest.mark.accepts("S0.25", "S0.26", "S0.31", "S0.32", "S0.33", "S0.34")
def test_only_what_is_not_acknowledged_comes_again_with_dup_and_in_order() -> None:
    async def body(stand: Stand) -> None:
        app = await with_backlog(stand, payloads(6))
        app.acknowledge("puback", 1, 3, 4)
        app.forget()
        await sleep(TIMEOUT_S - 3)
        assert not published(app)
        await sleep(4)
        assert published(app) == [(2, True, b"1"), (5, True, b"4"), (6, True, b"5")]

    with_broker(body, APPLICATIONS)


@pytest.mark.accepts("S0.29", "S0.30", "S0.34")
def test_what_was_received_goes_on_with_pubrel_and_counts_when_that_is_answered() -> None:
    async def body(stand: Stand) -> None:
        app = await with_backlog(stand, payloads(PACK), payloads(1, since=PACK), qos=2)
        app.acknowledge("pubrec", *range(1, PACK))
        await sleep(1)
        assert identifiers(app, "pubrel") == list(range(1, PACK))
        app.acknowledge("pubcomp", *range(2, PACK))
        app.forget()
        await sleep(TIMEOUT_S + 1)
        assert pack(stand)["pending"] == 2
        assert identifiers(app, "pubrel") == [1]
        assert published(app) == [(PACK, True, b"%d" % (PACK - 1))]
        app.forget()
        app.acknowledge("pubrec", PACK)
        await sleep(1)
        app.acknowledge("pubcomp", PACK)
        await sleep(1)
        assert not published(app)
        app.acknowledge("pubcomp", 1)
        await sleep(0.1)
        assert published(app) == [(PACK + 1, False, b"%d" % PACK)]

    with_broker(body, APPLICATIONS)


@pytest.mark.accepts("S0.35", "S0.36", "S0.37", "S0.39")
@pytest.mark.parametrize("qos", [1, 2])
def test_each_pack_is_sent_four_times_and_then_committed_with_a_loss_on_record(qos: int) -> None:
    async def body(stand: Stand) -> None:
        app = await with_backlog(stand, payloads(PACK + 2), qos=qos)
        began = app.seconds("publish")[0]
        await sleep(8 * (TIMEOUT_S + 1))
        times: dict[bytes, int] = {}
        for _, dup, payload in published(app):
            assert dup == (payload in times)
            times[payload] = times.get(payload, 0) + 1
        assert times == dict.fromkeys(payloads(PACK + 2), 4)
        seconds = [second - began for second in app.seconds("publish")]
        rounds = [second // TIMEOUT_S for second in seconds]
        assert rounds == list(range(8))
        assert stand.losses() == [
            ("app", "retries_used_up", PACK),
            ("app", "retries_used_up", 2),
        ]
        assert stand.server.stages.losses.by_reason["retries_used_up"] == PACK + 2
        app.forget()
        await stand.publish(TOPIC, b"later")
        assert [payload for _, _, payload in published(app)] == [b"later"]

    with_broker(body, APPLICATIONS)


@pytest.mark.accepts("S0.26")
@pytest.mark.parametrize("timeout_s", [1, 2, 7])
@pytest.mark.parametrize("began_s", [0.0, 0.3, 0.95])
def test_a_round_is_as_long_as_configured(timeout_s: int, began_s: float) -> None:
    async def body(stand: Stand) -> None:
        await sleep(began_s)
        app = await with_backlog(stand, payloads(3))
        await sleep(4 * timeout_s)
        seconds = sorted(set(app.seconds("publish")))
        rounds_s = [later - earlier for earlier, later in pairwise(seconds)]
        assert len(rounds_s) == 3
        assert rounds_s == pytest.approx([timeout_s] * 3, rel=0.1)

    with_broker(body, with_settings(application_pack_timeout_s=timeout_s))


@pytest.mark.accepts("S0.37")
def test_who_acknowledges_late_begins_the_next_pack_with_all_its_rounds() -> None:
    async def body(stand: Stand) -> None:
        app = await with_backlog(stand, payloads(PACK + 1))
        await sleep(3 * TIMEOUT_S + 5)
        assert len(published(app)) == 4 * PACK
        app.forget()
        app.acknowledge("puback", *range(1, PACK + 1))
        await sleep(4 * TIMEOUT_S + 5)
        assert [identifier for identifier, _, _ in published(app)] == [PACK + 1] * 4
        assert stand.losses() == [("app", "retries_used_up", 1)]

    with_broker(body, APPLICATIONS)


@pytest.mark.accepts("S0.38")
def test_without_a_maximum_it_is_sent_again_for_ever() -> None:
    async def body(stand: Stand) -> None:
        app = await with_backlog(stand, payloads(3))
        await sleep(30 * (TIMEOUT_S + 1))
        assert len(published(app)) >= 3 * 30
        assert pack(stand)["pending"] == 3
        assert stand.losses() == []

    with_broker(body, replace(APPLICATIONS, application_retries=0))


@pytest.mark.accepts("S0.40")
def test_skip_all_gives_up_at_once_and_says_so() -> None:
    async def body(stand: Stand) -> None:
        app = await with_backlog(stand, payloads(PACK + 1))
        app.acknowledge("puback", *range(1, PACK - 4))
        await sleep(TIMEOUT_S + 1)
        assert identifiers(app) == list(range(1, PACK + 2))
        assert not any(dup for _, dup, _ in published(app))
        assert stand.losses() == [("app", "skipped", 5)]
        app.acknowledge("puback", PACK + 1)
        await sleep(TIMEOUT_S)
        app.cut()
        await sleep(1)
        again = await stand.connect("app", 4)
        await sleep(1)
        assert not published(again)

    with_broker(body, replace(APPLICATIONS, application_strategy="SKIP_ALL"))


@pytest.mark.accepts("S0.36", "S0.54")
def test_mqtt_5_gets_nothing_twice_on_one_connection_but_after_it() -> None:
    async def body(stand: Stand) -> None:
        app = await with_backlog(stand, payloads(4), version=5)
        app.acknowledge("puback", 1, 3)
        await sleep(3 * TIMEOUT_S + 5)
        assert published(app) == [(n + 1, False, b"%d" % n) for n in range(4)]
        assert stand.losses() == []
        app.cut()
        await sleep(1)
        again = await stand.connect("app", 5)
        assert published(again) == [(2, True, b"1"), (4, True, b"3")]
        # On this connection the rounds begin again.
        await sleep(3 * TIMEOUT_S + 5)
        assert stand.losses() == []
        await sleep(TIMEOUT_S)
        assert stand.losses() == [("app", "retries_used_up", 2)]
        assert len(published(again)) == 2

    with_broker(body, APPLICATIONS)


@pytest.mark.accepts("S0.36")
def test_the_operator_may_have_mqtt_5_sent_again_on_a_live_connection() -> None:
    async def body(stand: Stand) -> None:
        app = await with_backlog(stand, payloads(2), version=5)
        await sleep(4 * TIMEOUT_S + 5)
        assert published(app) == [(1, False, b"0"), (2, False, b"1")] + 3 * [
            (1, True, b"0"),
            (2, True, b"1"),
        ]
        assert stand.losses() == [("app", "retries_used_up", 2)]

    with_broker(body, replace(APPLICATIONS, resend_on_live_connection=True))


def test_what_is_given_up_counts_against_the_receive_maximum_until_it_is_acknowledged() -> None:
    async def body(stand: Stand) -> None:
        app = await with_backlog(stand, payloads(8), version=5, receive_maximum=3)
        app.acknowledge("puback", 1)
        await sleep(4 * TIMEOUT_S + 5)
        assert identifiers(app) == [1, 2, 3, 4]
        assert stand.losses() == [("app", "retries_used_up", 3)]
        app.acknowledge("puback", 3)
        await sleep(0.1)
        assert identifiers(app) == [1, 2, 3, 4, 5]
        app.cut()
        await sleep(1)
        again = await stand.connect("app", 5, receive_maximum=3)
        # What was given up does not come again.
        assert published(again) == [(5, True, b"4")]
        again.acknowledge("puback", 5)
        await sleep(1)
        assert identifiers(again) == [5, 6, 7, 8]

    with_broker(body, APPLICATIONS)


@pytest.mark.accepts("S0.27")
def test_qos_0_waits_for_no_pack_and_makes_none_wait() -> None:
    async def body(stand: Stand) -> None:
        app = await stand.connect("app", 4)
        await stand.subscribe(app, TOPIC)
        await stand.publish(TOPIC, b"first")
        await stand.publish(TOPIC, *payloads(PACK + 50), qos=0)
        assert [payload for _, _, payload in published(app)] == [b"first", *payloads(PACK + 50)]
        assert (pack(stand)["taken"], pack(stand)["pending"]) == (1, 1)
        app.acknowledge("puback", 1)
        app.forget()
        await stand.publish(TOPIC, b"second")
        assert [payload for _, _, payload in published(app)] == [b"second"]

    with_broker(body, APPLICATIONS)


@pytest.mark.accepts("S0.52", "S0.54", "S0.55", "S0.56", "S0.57")
def test_after_a_reconnect_the_first_pack_is_what_was_in_flight() -> None:
    async def body(stand: Stand) -> None:
        app = await with_backlog(stand, payloads(4), qos=2)
        app.acknowledge("pubrec", 1, 3, 4)
        await sleep(1)
        app.acknowledge("pubcomp", 1, 3)
        await sleep(1)
        app.cut()
        await stand.publish(TOPIC, b"new", qos=2)
        again = await stand.connect("app", 4)
        await sleep(TIMEOUT_S // 2)
        assert published(again) == [(2, True, b"1")]
        assert identifiers(again, "pubrel") == [4]
        again.acknowledge("pubrec", 2)
        await sleep(1)
        again.acknowledge("pubcomp", 2)
        again.forget()
        await sleep(1)
        assert not published(again)
        again.acknowledge("pubcomp", 4)
        await sleep(0.1)
        assert published(again) == [(5, False, b"new")]

    with_broker(body, APPLICATIONS)


@pytest.mark.accepts("S0.60", "S0.61", "S0.62")
def test_a_pack_of_expired_messages_holds_up_nothing() -> None:
    async def body(stand: Stand) -> None:
        app = await stand.connect("app", 5)
        await stand.subscribe(app, TOPIC)
        app.cut()
        await sleep(1)
        await stand.publish(TOPIC, *payloads(3 * PACK), message_expiry_interval=2)
        await stand.publish(TOPIC, b"lasting")
        await sleep(2)
        again = await stand.connect("app", 5)
        assert published(again) == [(1, False, b"lasting")]
        assert stand.server.stages.losses.by_reason["expired"] == 3 * PACK

    with_broker(body, APPLICATIONS)


@pytest.mark.accepts("S0.18")
def test_one_who_never_acknowledges_holds_up_no_other() -> None:
    async def body(stand: Stand) -> None:
        stuck = await stand.connect("app-stuck", 4)
        await stand.subscribe(stuck, TOPIC)
        quick = await stand.connect("app-quick", 4)
        await stand.subscribe(quick, TOPIC)
        for turn in range(5):
            await stand.publish(TOPIC, *payloads(10, since=10 * turn))
            came = quick.of_kind("publish")[10 * turn :]
            assert [fields["payload"] for fields in came] == payloads(10, since=10 * turn)
            quick.acknowledge("puback", *(fields["packet_identifier"] for fields in came))
        assert len(published(stuck)) < 50

    with_broker(body, APPLICATIONS)


@pytest.mark.accepts("S0.8", "S0.87")
@pytest.mark.parametrize(("client", "clean"), [("device", False), ("app", True)])
def test_who_is_no_persistent_application_waits_for_no_pack(client: str, clean: bool) -> None:
    async def body(stand: Stand) -> None:
        peer = await stand.connect(client, 4, clean=clean)
        await stand.subscribe(peer, TOPIC)
        await stand.publish(TOPIC, *payloads(PACK + 10))
        assert len(published(peer)) == PACK + 10
        await sleep(5 * TIMEOUT_S)
        assert len(published(peer)) == PACK + 10

    with_broker(body, APPLICATIONS)


@pytest.mark.accepts("S0.48")
def test_time_in_which_a_client_takes_no_bytes_does_not_count() -> None:
    async def body(stand: Stand) -> None:
        app = await stand.connect("app", 4)
        await stand.subscribe(app, TOPIC)
        await stand.publish(TOPIC, b"small")
        big = [b"%d " % number + bytes(100_000) for number in range(50)]
        await stand.publish(TOPIC, *big)
        app.pause_reading()
        app.acknowledge("puback", 1)
        await sleep(10 * TIMEOUT_S)
        assert 0 < pack(stand)["pending"] < len(big)
        assert stand.losses() == []
        app.resume_reading()
        await sleep(5)
        assert [payload for _, _, payload in published(app)] == [b"small", *big]
        assert not any(dup for _, dup, _ in published(app))

    with_broker(body, APPLICATIONS)


def with_settings(**settings: Any) -> Config:
    return replace(APPLICATIONS, **settings)


@pytest.mark.accepts("S0.20")
def test_a_pack_is_as_large_as_configured() -> None:
    async def body(stand: Stand) -> None:
        app = await with_backlog(stand, payloads(10))
        assert len(published(app)) == 7

    with_broker(body, with_settings(application_pack_messages_maximum=7))


@pytest.mark.accepts("S0.58", "S0.59")
def test_after_a_power_cut_everything_that_was_not_acknowledged_comes_again() -> None:
    async def body(stand: Stand) -> None:
        app = await with_backlog(stand, payloads(PACK + 20))
        app.acknowledge("puback", *range(1, 50))
        await sleep(3)
        stand.cut_power()
        await sleep(5)
        again = await stand.connect("app", 4)
        assert [payload for _, _, payload in published(again)] == payloads(PACK + 20)[
            49 : 49 + PACK
        ]

    with_broker(body, APPLICATIONS)


SHARED = "$share/workers/shared"
OTHER = "$share/others/other"


def payloads_of(peer: Peer, topic: str) -> list[bytes]:
    return [
        fields["payload"] for fields in peer.of_kind("publish") if fields["topic_name"] == topic
    ]


def acknowledge(peer: Peer, topic: str) -> None:
    """What has come of the topic and is not acknowledged yet."""
    for fields in peer.of_kind("publish"):
        if fields["topic_name"] == topic:
            peer.acknowledge("puback", fields["packet_identifier"])


async def with_three_queues(stand: Stand, version: int = 4) -> Peer:
    """The client `app` with a queue of its own and parts in two groups."""
    app = await stand.connect("app", version)
    for topic_filter in (TOPIC, SHARED, OTHER):
        await stand.subscribe(app, topic_filter)
    return app


@pytest.mark.accepts("S0.71", "S0.72", "S0.73")
@pytest.mark.parametrize("stalled", [TOPIC, "shared", "other"])
def test_one_queue_that_is_not_acknowledged_holds_up_no_other(stalled: str) -> None:
    async def body(stand: Stand) -> None:
        app = await with_three_queues(stand)
        topics = {TOPIC, "shared", "other"}
        for topic in topics:
            await stand.publish(topic, *payloads(3))
        going = topics - {stalled}
        for turn in range(1, 5):
            for topic in going:
                assert payloads_of(app, topic) == payloads(3 * turn)
                acknowledge(app, topic)
            for topic in topics:
                await stand.publish(topic, *payloads(3, since=3 * turn))
        assert payloads_of(app, stalled) == payloads(3)
        by_queue = {TOPIC: pack(stand), "shared": pack(stand, SHARED), "other": pack(stand, OTHER)}
        assert {topic: found["pending"] for topic, found in by_queue.items()} == dict.fromkeys(
            topics, 3
        )

    with_broker(body, PATIENT)


@pytest.mark.accepts("S0.36", "S0.37", "S0.71")
@pytest.mark.parametrize("qos", [1, 2])
def test_each_queue_is_sent_again_and_given_up_by_itself(qos: int) -> None:
    async def body(stand: Stand) -> None:
        app = await with_three_queues(stand)
        await stand.publish("shared", *payloads(4), qos=qos)
        await sleep(TIMEOUT_S // 2)
        await stand.publish(TOPIC, b"own", qos=qos)
        app.acknowledge("puback" if qos == 1 else "pubrec", 2)
        await sleep(1)
        app.acknowledge("pubcomp", *([2] if qos == 2 else []))
        await sleep(3 * TIMEOUT_S + 10)
        shared = [fields for fields in app.of_kind("publish") if fields["topic_name"] == "shared"]
        assert [(fields["packet_identifier"], fields["dup"]) for fields in shared] == [
            (1, False),
            (2, False),
            (3, False),
            (4, False),
        ] + 3 * [(1, True), (3, True), (4, True)]
        assert stand.losses() == [(SHARED, "retries_used_up", 3)]
        await sleep(TIMEOUT_S // 2)
        assert payloads_of(app, TOPIC) == 4 * [b"own"]
        assert stand.losses() == [(SHARED, "retries_used_up", 3), ("app", "retries_used_up", 1)]
        app.forget()
        await stand.publish("shared", b"later", qos=qos)
        assert payloads_of(app, "shared") == [b"later"]

    with_broker(body, APPLICATIONS)


@pytest.mark.accepts("S0.20", "S0.22", "S0.23")
def test_a_group_gives_each_member_its_packs() -> None:
    async def body(stand: Stand) -> None:
        app = await stand.connect("app", 4)
        await stand.subscribe(app, SHARED)
        app.cut()
        await stand.publish("shared", *payloads(PACK + 50))
        app = await stand.connect("app", 4)
        assert payloads_of(app, "shared") == payloads(PACK)
        app.acknowledge("puback", *range(1, PACK))
        await sleep(5)
        assert len(published(app)) == PACK
        app.acknowledge("puback", PACK)
        await sleep(0.1)
        assert payloads_of(app, "shared") == payloads(PACK + 50)

    with_broker(body, APPLICATIONS)


@pytest.mark.accepts("S0.70", "S0.82")
def test_what_a_stalled_member_may_not_take_goes_to_the_others() -> None:
    async def body(stand: Stand) -> None:
        stuck = await stand.connect("app-stuck", 4)
        await stand.subscribe(stuck, SHARED)
        quick = await stand.connect("app-quick", 4)
        await stand.subscribe(quick, SHARED)
        for turn in range(20):
            await stand.publish("shared", *payloads(10, since=10 * turn))
            acknowledge(quick, "shared")
        came = payloads_of(stuck, "shared") + payloads_of(quick, "shared")
        assert sorted(came, key=int) == payloads(200)
        assert len(published(stuck)) == 5
        quick.forget()
        stuck.cut()
        await sleep(1)
        again = [(dup, payload) for _, dup, payload in published(quick)]
        assert sorted(again) == sorted((False, payload) for payload in payloads_of(stuck, "shared"))

    with_broker(body, PATIENT)


@pytest.mark.accepts("S0.49", "S0.51", "S0.54", "S0.56")
def test_what_was_in_flight_from_each_queue_comes_again_after_a_reconnect() -> None:
    async def body(stand: Stand) -> None:
        app = await with_three_queues(stand)
        await stand.publish(TOPIC, *payloads(3), qos=2)
        await stand.publish("shared", *payloads(3), qos=2)
        app.acknowledge("pubrec", 2, 5)
        await sleep(1)
        app.cut()
        await stand.publish("shared", b"new", qos=2)
        again = await stand.connect("app", 4)
        came = {
            (fields["topic_name"], fields["packet_identifier"], fields["dup"])
            for fields in again.of_kind("publish")
        }
        assert came == {
            (TOPIC, 1, True),
            (TOPIC, 3, True),
            ("shared", 4, True),
            ("shared", 6, True),
        }
        assert identifiers(again, "pubrel") == [2, 5]
        assert pack(stand)["pending"] == pack(stand, SHARED)["pending"] == 3
        again.acknowledge("pubrec", 4, 6)
        await sleep(1)
        again.acknowledge("pubcomp", 4, 5, 6)
        await sleep(0.1)
        # The group goes on, its own queue does not wait for that.
        assert payloads_of(again, "shared")[-1] == b"new"
        assert pack(stand)["pending"] == 3

    with_broker(body, APPLICATIONS)
