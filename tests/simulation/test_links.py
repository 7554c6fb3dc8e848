"""What a bridge does about a remote that says no, says nonsense, or says nothing; and that it does
what CONNACK says."""

import asyncio
from dataclasses import replace

import msgspec
import pytest

from holdfast.broker.bridge import backoff
from holdfast.broker.bridge.failure import Failure
from holdfast.broker.bridge.link import State
from holdfast.broker.bridge.queue import PACKET_IDENTIFIER_MAXIMUM
from holdfast.broker.bridge_commands import BridgeCommands
from holdfast.core.limits import CONNECT_TIMEOUT_S, DIALLED_ADDRESSES_MAXIMUM
from holdfast.kernel import encode_packet
from holdfast.protocols.mqtt.reason_code import ReasonCode
from tests.simulation.remote import (
    Bridged,
    Remote,
    Visit,
    assert_nobody_notices,
    names,
    topics,
    with_remote,
)
from tests.simulation.whole import CONFIG

sleep = asyncio.sleep
RECEIVE_MAXIMUM_EXCEEDED = 0x93


# --- CONNACK is obeyed ---------------------------------------------------------------------------


@pytest.mark.parametrize("maximum", [1, 3])
def test_no_more_is_in_flight_than_receive_maximum(maximum: int) -> None:
    async def body(bridged: Bridged) -> None:
        remote = bridged.remote
        await bridged.publish("up/x", *(b"%d" % number for number in range(10)), qos=1)
        assert len(remote.all("publish")) == maximum
        assert bridged.link.queue.in_flight() == maximum
        remote.silent_about.clear()
        for fields in remote.all("publish"):
            identifier = fields["packet_identifier"]
            remote.visit.send("puback", packet_identifier=identifier, reason_code=0)
        await sleep(2)
        got = [fields["payload"] for fields in remote.all("publish")]
        assert got == [b"%d" % number for number in range(10)]
        assert bridged.link.queue.in_flight() == 0

    remote = Remote()
    remote.properties = {"receive_maximum": maximum}
    remote.silent_about = {"publish"}
    with_remote(body, remote)


def test_a_packet_identifier_is_left_for_what_is_asked() -> None:
    async def body(bridged: Bridged) -> None:
        remote = bridged.remote
        for count in (PACKET_IDENTIFIER_MAXIMUM - 1, 1_000):
            await bridged.publish("up/x", *[b""] * count, qos=1)
        await sleep(2)
        assert bridged.link.queue.in_flight() == PACKET_IDENTIFIER_MAXIMUM - 1
        remote.connack = {"session_present": True}
        remote.visit.transport.abort()
        await sleep(5)
        assert len(remote.visits) == 2
        (asked,) = remote.visit.of_kind("subscribe")
        sent = {fields["packet_identifier"] for fields in remote.visits[0].of_kind("publish")}
        assert asked["packet_identifier"] not in sent

    remote = Remote()
    remote.silent_about = {"publish"}
    with_remote(body, remote, config=replace(CONFIG, receive_maximum=PACKET_IDENTIFIER_MAXIMUM))


@pytest.mark.parametrize("maximum", [0, 1])
@pytest.mark.accepts("S1.22")
def test_messages_are_carried_with_no_more_than_maximum_qos(maximum: int) -> None:
    async def body(bridged: Bridged) -> None:
        for qos in (0, 1, 2):
            await bridged.publish("up/x", b"%d" % qos, qos=qos)
        got = {fields["payload"]: fields["qos"] for fields in bridged.remote.all("publish")}
        assert got == {b"%d" % qos: min(qos, maximum) for qos in (0, 1, 2)}
        (asked,) = bridged.remote.all("subscribe")
        assert [item["qos"] for item in asked["subscriptions"]] == [maximum]

    remote = Remote()
    remote.properties = {"maximum_qos": maximum}
    with_remote(body, remote)


def test_what_is_in_flight_goes_with_no_more_than_the_next_maximum_qos() -> None:
    async def body(bridged: Bridged) -> None:
        remote = bridged.remote
        await bridged.publish("up/x", b"1", b"2", qos=2)
        await bridged.publish("up/x", b"3", qos=1)
        remote.connack = {"session_present": True}
        remote.properties = {"maximum_qos": 1}
        remote.silent_about = set()
        remote.visit.transport.abort()
        await sleep(3)
        again = [(each["payload"], each["qos"]) for each in remote.visit.of_kind("publish")]
        assert again == [(b"1", 1), (b"2", 1), (b"3", 1)]
        assert bridged.link.queue.in_flight() == 0
        assert bridged.link.queue.acknowledged() == 3

    remote = Remote()
    remote.silent_about = {"publish"}
    with_remote(body, remote)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_larger_than_maximum_packet_size_is_on_the_ledger(qos: int) -> None:
    async def body(bridged: Bridged) -> None:
        await bridged.publish("up/x", b"before", b"x" * 300, b"after", qos=qos)
        await sleep(2)
        got = [fields["payload"] for fields in bridged.remote.all("publish")]
        assert got == [b"before", b"after"]
        assert bridged.losses() == [("b", "too_large", 1)]
        assert bridged.link.state is State.CONNECTED

    remote = Remote()
    remote.properties = {"maximum_packet_size": 200}
    with_remote(body, remote)


def test_topic_aliases_are_used_as_far_as_the_remote_takes_them() -> None:
    async def body(bridged: Bridged) -> None:
        await bridged.publish("up/a/long/topic", b"1", b"2")
        await bridged.publish("up/b/long/topic", b"3")
        aliases = [
            fields["properties"].get("topic_alias") for fields in bridged.remote.all("publish")
        ]
        assert set(aliases) <= {None, 1}
        assert aliases[:2] == [1, 1]
        assert topics(bridged.remote)[1] == ""

    remote = Remote()
    remote.properties = {"topic_alias_maximum": 1}
    with_remote(body, remote)


def test_without_retain_nothing_is_retained_there() -> None:
    async def body(bridged: Bridged) -> None:
        publisher = await bridged.connect("retaining", clean=True)
        publisher.send(
            "publish",
            packet_identifier=1,
            qos=1,
            retain=True,
            dup=False,
            topic_name="up/x",
            payload=b"1",
        )
        await sleep(1)
        (got,) = bridged.remote.all("publish")
        assert got["retain"] is is_available

    carried = [{"filters": ["up/#"], "preserve_retain": True}]
    for is_available in (True, False):
        remote = Remote()
        remote.properties = {} if is_available else {"retain_available": 0}
        with_remote(body, remote, local_subscriptions=carried)


@pytest.mark.parametrize(("server_keep_alive", "every_s"), [(None, 60), (7, 7)])
def test_the_remote_hears_of_us_as_often_as_it_asks(
    server_keep_alive: int | None, every_s: int
) -> None:
    async def body(bridged: Bridged) -> None:
        await sleep(10 * every_s)
        count = len(bridged.remote.all("pingreq"))
        assert 9 <= count <= 10
        assert len(bridged.remote.visits) == 1

    remote = Remote()
    if server_keep_alive is not None:
        remote.properties = {"server_keep_alive": server_keep_alive}
    with_remote(body, remote)


def test_a_remote_that_answers_no_ping_is_silent() -> None:
    async def body(bridged: Bridged) -> None:
        await sleep(100)
        assert len(bridged.remote.visits) >= 2
        assert set(bridged.link.counts.failures) == {Failure.SILENT}

    remote = Remote()
    remote.silent_about = {"pingreq"}
    with_remote(body, remote, keep_alive_s=10)


@pytest.mark.parametrize("code", [ReasonCode.NOT_AUTHORIZED, ReasonCode.PACKET_TOO_LARGE, 0xFF])
def test_what_the_remote_refuses_is_on_the_ledger_and_the_rest_goes_on(code: int) -> None:
    async def body(bridged: Bridged) -> None:
        for qos in (1, 2):
            await bridged.publish("up/x", b"%d" % qos, qos=qos)
        await sleep(2)
        assert bridged.losses() == [("b", "refused", 1), ("b", "refused", 1)]
        assert bridged.link.queue.in_flight() == 0
        bridged.remote.refusal = 0
        await bridged.publish("up/x", b"after", qos=2)
        await sleep(1)
        assert bridged.remote.all("publish")[-1]["payload"] == b"after"
        assert len(bridged.remote.visits) == 1

    remote = Remote()
    remote.refusal = code
    with_remote(body, remote)


def test_what_the_remote_grants_otherwise_is_said_and_obeyed() -> None:
    async def body(bridged: Bridged) -> None:
        said = [each.detail for each in bridged.link.events if each.kind == "granted otherwise"]
        assert said == [
            "the remote keeps the session for 60 s, 3600 s were asked for: after a longer outage it"
            " may get again what it had said it had",
            "the remote calls this client 'other', not 'holdfast-b'",
        ]
        await assert_nobody_notices(bridged)
        assert topics(bridged.remote) == ["up/noticed"] * 2

    remote = Remote()
    remote.properties = {"session_expiry_interval": 60, "assigned_client_identifier": "other"}
    with_remote(body, remote)


@pytest.mark.accepts("S1.14")
def test_what_waits_is_read_in_batches_and_not_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[int] = []
    take = Visit.data_received

    def noted(visit: Visit, data: bytes) -> None:
        pieces.append(len(data))
        take(visit, data)

    async def body(bridged: Bridged) -> None:
        link, remote = bridged.link, bridged.remote
        remote.ends_at_once = True
        remote.visit.transport.abort()
        payloads = [b"%d" % number for number in range(200)]
        await bridged.publish("up/x", *payloads, qos=1)
        assert link.state is not State.CONNECTED
        remote.ends_at_once = False
        pieces.clear()
        await sleep(130)
        assert [fields["payload"] for fields in remote.all("publish")] == payloads
        # CONNECT, SUBSCRIBE, a few pieces of messages, and signs of life.
        assert len(pieces) < 20, pieces

    monkeypatch.setattr(Visit, "data_received", noted)
    with_remote(body)


# --- refusals wait -------------------------------------------------------------------------------


@pytest.mark.accepts("S1.53")
def test_wrong_credentials_do_not_become_a_flood() -> None:
    async def body(bridged: Bridged) -> None:
        await sleep(3_600)
        assert 24 <= len(bridged.remote.visits) <= 31
        assert bridged.link.counts.refusals == len(bridged.remote.visits)
        assert bridged.link.counts.failures == {Failure.REFUSED: len(bridged.remote.visits)}
        waits = [
            after.began_at - before.began_at
            for before, after in zip(bridged.remote.visits, bridged.remote.visits[1:], strict=False)
        ]
        assert all(120 <= wait <= 151 for wait in waits)
        assert bridged.link.last_error == "the remote refused: bad_user_name_or_password"
        await assert_nobody_notices(bridged)

    remote = Remote()
    remote.connack = {"reason_code": ReasonCode.BAD_USER_NAME_OR_PASSWORD}
    with_remote(body, remote)


@pytest.mark.accepts("S1.53")
def test_a_remote_that_accepts_and_closes_at_once_a_thousand_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As long as it is, it makes this test as long: sweeps go on while nothing happens.
    monkeypatch.setattr(backoff, "WAIT_MAXIMUM_S", 2.0)

    async def body(bridged: Bridged) -> None:
        link = bridged.link
        while link.counts.failures[Failure.CLOSED] < 1_000:
            await sleep(60)
        loop = asyncio.get_running_loop()
        assert loop.time() > 990 * 2
        assert len(link.events) <= 100
        assert len(bridged.server.stages.connections.all()) <= 1
        await assert_nobody_notices(bridged)
        bridged.remote.ends_at_once = False
        await sleep(3)
        assert link.state is State.CONNECTED
        assert topics(bridged.remote) == ["up/noticed"] * 2

    remote = Remote()
    remote.ends_at_once = True
    with_remote(body, remote)


# --- who obeys nothing is ended ------------------------------------------------------------------

CONNACK = encode_packet("connack", {"session_present": False, "reason_code": 0}, protocol_version=5)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the remote broke the protocol: "),
        (b"\x00" * 64, "the remote broke the protocol: "),
        (b"\xff" * 64, "the remote broke the protocol: "),
        (b"\x20\xff\xff\xff\x7f", "the remote broke the protocol: "),
        # CONNACK of MQTT 3.1.1 has no properties.
        (b"\x20\x02\x00\x00", "the remote broke the protocol: "),
        (b"\xe0\x00", "the remote broke the protocol: "),
        (b"\xd0\x00", "the remote broke the protocol: "),
        (CONNACK + CONNACK, "the remote sent connack"),
        (CONNACK + b"\xf0\x00", "the remote sent auth"),
        (CONNACK + b"\xc0\x00", "the remote broke the protocol: "),
        (b"", "the remote did not answer CONNECT in time"),
        (CONNACK[:-1], "the remote did not answer CONNECT in time"),
    ],
)
def test_nonsense_ends_the_connection_with_its_reason(words: bytes, reason: str) -> None:
    async def body(bridged: Bridged) -> None:
        await sleep(CONNECT_TIMEOUT_S)
        is_silent = reason.endswith("in time")
        failure = Failure.SILENT if is_silent else Failure.PROTOCOL
        assert set(bridged.link.counts.failures) == {failure}
        details = [event.detail for event in bridged.link.events if event.kind != "connected"]
        assert details
        assert all(detail.startswith(reason) for detail in details), details
        await assert_nobody_notices(bridged)
        assert all(visit.ended_at is not None for visit in bridged.remote.visits[:-1])
        bridged.remote.first_words = None
        await sleep(130)
        assert bridged.link.state is State.CONNECTED
        assert topics(bridged.remote) == ["up/noticed"] * 2

    remote = Remote()
    remote.first_words = words
    with_remote(body, remote)


def test_more_than_our_receive_maximum_is_too_much() -> None:
    async def body(bridged: Bridged) -> None:
        bridged.remote.silent_about = {"pubrec"}
        for number in range(1, 5):
            bridged.remote.visit.publish("down/x", b"", 2, number)
        await sleep(0.5)
        assert "Receive Maximum" in bridged.link.last_error
        assert bridged.link.counts.failures == {Failure.PROTOCOL: 1}
        assert bridged.remote.visit.of_kind("disconnect")[-1]["reason_code"] == (
            RECEIVE_MAXIMUM_EXCEEDED
        )
        await assert_nobody_notices(bridged)

    with_remote(body, config=replace(CONFIG, receive_maximum=3))


@pytest.mark.parametrize("kind", ["puback", "pubrec", "pubrel", "pubcomp"])
def test_acknowledgements_of_nothing_change_nothing(kind: str) -> None:
    async def body(bridged: Bridged) -> None:
        bridged.remote.visit.send(kind, packet_identifier=4_711, reason_code=0)
        await sleep(1)
        await assert_nobody_notices(bridged)
        await sleep(10)
        assert topics(bridged.remote) == ["up/noticed"] * 2
        assert bridged.losses() == []

    with_remote(body)


def test_an_acknowledgement_of_another_kind_ends_the_connection() -> None:
    async def body(bridged: Bridged) -> None:
        await bridged.publish("up/x", b"1", qos=1)
        (sent,) = bridged.remote.all("publish")
        bridged.remote.silent_about.clear()
        bridged.remote.visit.send(
            "pubcomp", packet_identifier=sent["packet_identifier"], reason_code=0
        )
        await sleep(5)
        assert len(bridged.remote.visits) == 2
        assert [fields["payload"] for fields in bridged.remote.all("publish")] == [b"1", b"1"]
        assert bridged.link.queue.in_flight() == 0

    remote = Remote()
    remote.silent_about = {"publish"}
    with_remote(body, remote)


@pytest.mark.parametrize("codes", [[0], [0, 0, 0]])
def test_a_suback_with_too_few_or_too_many_codes_is_no_answer(codes: list[int]) -> None:
    async def body(bridged: Bridged) -> None:
        await sleep(1)
        assert bridged.link.last_error == (
            f"the remote broke the protocol: SUBACK with {len(codes)} codes for 2 subscriptions"
        )
        assert set(bridged.link.counts.failures) == {Failure.PROTOCOL}
        await assert_nobody_notices(bridged)

    remote = Remote()
    remote.suback = codes
    with_remote(body, remote, remote_subscriptions=[{"filters": ["down/a", "down/b"]}])


def test_a_suback_that_nobody_asked_for_ends_the_connection() -> None:
    async def body(bridged: Bridged) -> None:
        bridged.remote.visit.send("suback", packet_identifier=1, reason_codes=[0])
        await sleep(0.5)
        assert bridged.link.last_error == "the remote sent suback, which nobody asked for"

    with_remote(body)


LONG = [f"down/{number:030}" for number in range(5)]
TOO_LONG = "down/" + "x" * 80
TWO_LONG_ONES_BYTES = 81
"""A SUBSCRIBE with two of them."""


def test_a_subscribe_is_divided_into_packets_that_the_remote_takes() -> None:
    async def body(bridged: Bridged) -> None:
        asked = [fields["subscriptions"] for fields in bridged.remote.all("subscribe")]
        texts = [[item["topic_filter"] for item in subscriptions] for subscriptions in asked]
        assert texts == [LONG[:2], LONG[2:4], LONG[4:]]
        assert bridged.link.counts.subscriptions_refused == 1
        (event,) = [each for each in bridged.link.events if each.kind == "subscription refused"]
        assert event.detail == f"{TOO_LONG}: packet_too_large"
        await bridged.publish("up/x", b"goes", qos=1)
        assert topics(bridged.remote) == ["up/x"]
        assert len(bridged.remote.visits) == 1
        checked = await BridgeCommands(bridged.server.stages, lambda: 1).check(bridged.link.bridge)
        (doubt,) = checked.doubts
        assert doubt.startswith("the remote takes packets of 81 bytes at most, and no SUBSCRIBE")
        assert "for 1 of the filters" in doubt

    remote = Remote()
    remote.properties = {"maximum_packet_size": TWO_LONG_ONES_BYTES}
    with_remote(body, remote, remote_subscriptions=[{"filters": [*LONG[:2], TOO_LONG, *LONG[2:]]}])


def test_messages_go_when_the_last_subscribe_is_answered() -> None:
    async def body(bridged: Bridged) -> None:
        remote = bridged.remote
        await bridged.publish("up/x", b"1", qos=1)
        for codes in ([0, 0], [0, 0], [0]):
            assert bridged.link.state is State.DRAINING
            assert topics(remote) == []
            identifier = remote.all("subscribe")[-1]["packet_identifier"]
            remote.visit.send("suback", packet_identifier=identifier, reason_codes=codes)
            await sleep(1)
        assert topics(remote) == ["up/x"]
        assert len(remote.all("subscribe")) == 3

    remote = Remote()
    remote.properties = {"maximum_packet_size": TWO_LONG_ONES_BYTES}
    remote.silent_about = {"subscribe"}
    with_remote(body, remote, remote_subscriptions=[{"filters": LONG}])


def test_a_subscription_that_is_refused_is_said_and_the_rest_goes_on() -> None:
    async def body(bridged: Bridged) -> None:
        assert bridged.link.counts.subscriptions_refused == 1
        (event,) = [each for each in bridged.link.events if each.kind == "subscription refused"]
        assert event.detail == "down/#: not_authorized"
        await assert_nobody_notices(bridged)
        assert topics(bridged.remote) == ["up/noticed"] * 2

    remote = Remote()
    remote.suback = [ReasonCode.NOT_AUTHORIZED]
    with_remote(body, remote)


def test_a_subscription_at_less_than_was_asked_for_is_said() -> None:
    async def body(bridged: Bridged) -> None:
        assert bridged.link.counts.subscriptions_refused == 0
        (event,) = [each for each in bridged.link.events if each.kind == "granted otherwise"]
        assert event.detail == "down/b: no more than QoS 0"
        await assert_nobody_notices(bridged)

    remote = Remote()
    remote.suback = [1, 0]
    subscriptions = [{"filters": ["down/a", "down/b"], "max_qos": 1}]
    with_remote(body, remote, remote_subscriptions=subscriptions)


def test_a_remote_that_says_goodbye_is_quoted() -> None:
    async def body(bridged: Bridged) -> None:
        bridged.remote.visit.send(
            "disconnect",
            reason_code=ReasonCode.SERVER_SHUTTING_DOWN,
            properties={"reason_string": "at night"},
        )
        await sleep(0.5)
        error = bridged.link.last_error
        assert error == "the remote ended it: server_shutting_down: at night"
        assert bridged.link.counts.failures == {Failure.DISCONNECTED: 1}

    with_remote(body)


@pytest.mark.parametrize("address", ["mqtts://10.0.0.2:1883", "ws://10.0.0.2:1883"])
def test_a_handshake_that_never_ends_is_ended(address: str) -> None:
    async def body(bridged: Bridged) -> None:
        await sleep(CONNECT_TIMEOUT_S + 2)
        (event,) = bridged.link.events
        assert event.detail == "the remote did not shake hands in time"
        assert bridged.link.counts.failures == {Failure.SILENT: 1}
        await assert_nobody_notices(bridged)

    with_remote(body, DeafRemote(), address=address)


class DeafRemote(Remote):
    """Takes bytes, whatever they are, and says nothing."""

    async def listen(self) -> None:
        """Takes connections from now on."""
        loop = asyncio.get_running_loop()
        await loop.create_server(asyncio.Protocol, "10.0.0.2", 1883)


def test_a_name_that_nobody_knows_is_asked_for_again_and_again() -> None:
    async def body(bridged: Bridged) -> None:
        (event,) = bridged.link.events
        assert event.detail == "remote.example is no name of a host: Name or service not known"
        assert bridged.link.counts.failures == {Failure.UNREACHABLE: 1}
        names(bridged)["remote.example"] = ["10.0.0.2"]
        await sleep(2)
        assert bridged.link.state is State.CONNECTED

    with_remote(body, address="remote.example:1883")


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example"])
def test_a_name_that_cannot_be_one_is_an_error_of_the_attempt(host: str) -> None:
    async def body(bridged: Bridged) -> None:
        assert bridged.link.state is State.WAITING
        assert bridged.link.last_error.startswith(f"{host} is no name of a host: ")

    with_remote(body, address=f"{host}:1883")


def test_the_first_of_a_names_addresses_that_answers_is_taken() -> None:
    async def body(bridged: Bridged) -> None:
        names(bridged)["remote.example"] = ["10.0.0.7", "10.0.0.8", "10.0.0.2", "10.0.0.9"]
        await sleep(2)
        assert bridged.link.state is State.CONNECTED

    with_remote(body, address="remote.example:1883")


def test_of_many_addresses_few_are_tried() -> None:
    async def body(bridged: Bridged) -> None:
        names(bridged)["remote.example"] = [f"10.0.1.{number}" for number in range(250)]
        await sleep(2)
        tried = bridged.link.last_error.split("; ")
        assert len(tried) == DIALLED_ADDRESSES_MAXIMUM
        assert tried[0] == "10.0.1.0:1883: Connection refused"

    with_remote(body, address="remote.example:1883")


def test_what_a_bridge_has_brought_does_not_go_back_when_it_brings_nothing_any_more() -> None:
    async def body(bridged: Bridged) -> None:
        bridges = bridged.server.stages.bridges
        both_ways = msgspec.structs.replace(bridged.link.bridge, name="c")
        for bridge in (both_ways, msgspec.structs.replace(both_ways, remote_subscriptions=())):
            bridges.put(bridge, 1)
            await sleep(2)
            record = bridges.record("c")
            assert record is not None
            assert [item.no_local for item in record.reads] == [True]

    with_remote(body)
