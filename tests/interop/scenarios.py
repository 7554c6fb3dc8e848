"""The conversation that every library holds with the broker, in pieces, and the table of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.kernel import decode_packets
from tests.interop.device import payloads
from tests.interop.driver import WITHIN_S, wait_for
from tests.interop.libraries import (
    ALIASES_SENT,
    ALIASES_TAKEN,
    DISCONNECT_REASON,
    RECONNECTS,
    RESUMES,
    SESSION_PRESENT,
    SUBSCRIPTION_IDENTIFIERS,
)
from tests.interop.relay import Passed, Relay
from tests.interop.talk import Talk

WAITING = 50
"""How many messages wait for a client that is away."""

IN_FLIGHT = 200
"""How many messages are on their way when the broker is killed."""

LARGE_BYTES = 512 * 1024

PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"


def publishes_at_each_qos(talk: Talk) -> None:
    other, client = talk.other(), talk.client()
    other.subscribe(talk.topic("a"), 2)
    for qos in (0, 1, 2):
        client.publish(talk.topic("a"), b"at %d" % qos, qos)
    # QoS 2 may be handed on later than what was sent after it.
    received = {(bytes(message.payload), message.qos) for message in other.receive_many(3)}
    assert received == {(b"at 0", 0), (b"at 1", 1), (b"at 2", 2)}


def receives_at_each_qos(talk: Talk) -> None:
    other, client = talk.other(), talk.client()
    client.subscribe(talk.topic("a"), 2)
    for qos in (0, 1, 2):
        other.publish(talk.topic("a"), b"at %d" % qos, qos)
    received = {(message.payload, message.qos) for message in client.receive_many(3)}
    assert received == {(b"at 0", 0), (b"at 1", 1), (b"at 2", 2)}


def says_whether_the_session_was_present(talk: Talk) -> None:
    assert talk.client().session_present is False
    client = talk.client("kept", persistent=True)
    assert client.session_present is False
    client.disconnect()
    client = talk.client("kept", persistent=True)
    assert client.session_present is True
    client.disconnect()
    assert talk.client("kept", clean_start=True).session_present is False


def gets_what_came_while_it_was_away(talk: Talk) -> None:
    client = talk.client(persistent=True)
    client.subscribe(talk.topic("one"), 1)
    client.subscribe(talk.topic("two"), 2)
    client.disconnect()
    other = talk.other()
    sent = [b"%d" % number for number in range(WAITING)]
    other.publish_all(talk.topic("one"), sent, 1)
    other.publish_all(talk.topic("two"), sent, 2)
    client = talk.client(persistent=True)
    messages = client.receive_many(2 * WAITING)
    for name, qos in (("one", 1), ("two", 2)):
        of_topic = [each for each in messages if each.topic == talk.topic(name)]
        assert [each.payload for each in of_topic] == sent
        assert {each.qos for each in of_topic} == {qos}


def forgets_with_a_clean_start(talk: Talk) -> None:
    client = talk.client(persistent=True)
    client.subscribe(talk.topic("a"), 1)
    client.disconnect()
    other = talk.other()
    other.publish(talk.topic("a"), b"while away")
    client = talk.client(clean_start=True)
    client.subscribe(talk.topic("b"), 1)
    other.publish(talk.topic("b"), b"while here")
    assert client.receive().payload == b"while here"


def retains(talk: Talk) -> None:
    client, other = talk.client(), talk.other()
    client.publish(talk.topic("a"), b"kept", 1, retain=True)
    client.publish(talk.topic("gone"), b"kept", 1, retain=True)
    client.publish(talk.topic("gone"), b"", 1, retain=True)
    client.subscribe(talk.topic("+"), 1)
    message = client.receive()
    assert (message.topic, message.payload, message.retain) == (talk.topic("a"), b"kept", True)
    other.subscribe(talk.topic("+"), 1)
    assert other.receive().retain
    assert other.all_received() == []


def is_mourned_when_it_is_lost(talk: Talk) -> None:
    other = talk.other()
    other.subscribe(talk.topic("will"), 2)
    with talk.relay() as relay:
        client = talk.client(relay=relay, will=_will(talk, b"lost"))
        relay.cut()
        message = other.receive()
        assert (message.payload, message.qos) == (b"lost", 1)
        client.is_connected = False
    other.subscribe(talk.topic("will"), 2)
    assert other.receive().retain
    talk.client("parts", will=_will(talk, b"never comes")).disconnect()
    assert payloads(other.all_received()) == []


def _will(talk: Talk, payload: bytes, **properties: Any) -> dict[str, Any]:
    return {
        "topic": talk.topic("will"),
        "payload": payload,
        "qos": 1,
        "retain": True,
        "properties": properties,
    }


def comes_back_to_its_session(talk: Talk) -> None:
    other = talk.other()
    with talk.relay() as relay:
        client = talk.client(relay=relay, persistent=True, reconnects=True)
        client.subscribe(talk.topic("a"), 1)
        relay.cut()
        other.publish(talk.topic("a"), b"while away")
        assert client.receive().payload == b"while away"
        if talk.version > 3 and talk.shows_packets:  # MQTT 3.1 does not say it.
            assert _connack(relay.connections[-1], talk.version)["session_present"]
        client.publish(talk.topic("a"), b"from here")
        assert client.receive().payload == b"from here"
        client.disconnect()


def _connack(passed: Passed, version: int) -> dict[str, Any]:
    packets, _ = decode_packets(bytes(passed.to_client), protocol_version=version, role="client")
    assert packets[0].kind == "connack"
    return dict(packets[0].fields)


def passes_large_payloads(talk: Talk) -> None:
    client, other = talk.client(), talk.other()
    payload = bytes(range(256)) * (LARGE_BYTES // 256)
    client.subscribe(talk.topic("down"), 2)
    other.subscribe(talk.topic("up"), 2)
    for qos in (1, 2):
        client.publish(talk.topic("up"), payload, qos)
        other.publish(talk.topic("down"), payload, qos)
        assert other.receive().payload == payload
        assert client.receive().payload == payload


def writes_topics_in_any_script(talk: Talk) -> None:
    client, other = talk.client(), talk.other()
    for name in ("Größe", "温度/北京", "Ωμέγα/😀", "a b"):
        topic = talk.topic(name)
        client.subscribe(topic, 1)
        other.subscribe(topic, 1)
        client.publish(topic, b"x")
        assert other.receive().topic == topic
        assert client.receive().topic == topic


def subscribes_with_wildcards(talk: Talk) -> None:
    client, other = talk.client(), talk.other()
    client.subscribe(talk.topic("+/x"), 1)
    client.subscribe(talk.topic("deep/#"), 1)
    for name in ("1/x", "1/y", "2/x/z", "deep", "deep/1/2/3", "end"):
        other.publish(talk.topic(name))
        if name == "deep":
            client.unsubscribe(talk.topic("+/x"))
            other.publish(talk.topic("3/x"))
    topics = [message.topic for message in client.receive_many(3)]
    assert topics == [talk.topic(name) for name in ("1/x", "deep", "deep/1/2/3")]


def passes_properties(talk: Talk) -> None:
    client, other = talk.client(), talk.other()
    ours = {
        "payload_format_indicator": 1,
        "content_type": "text/plain; charset=utf-8",
        "user_properties": [["b", "1"], ["a", "zwei ✓"]],
    }
    other.subscribe(talk.topic("up"), 1)
    client.publish(talk.topic("up"), b"x", **ours)
    came = other.receive().properties
    assert came.UserProperty == [("b", "1"), ("a", "zwei ✓")]
    assert (came.ContentType, came.PayloadFormatIndicator) == ("text/plain; charset=utf-8", 1)
    client.subscribe(talk.topic("down"), 1)
    other.publish(
        talk.topic("down"),
        UserProperty=[("b", "1"), ("a", "zwei ✓")],
        ContentType="text/plain; charset=utf-8",
        PayloadFormatIndicator=1,
    )
    properties = client.receive().properties
    pairs = [tuple(pair) for pair in properties["user_properties"]]
    assert pairs == [("b", "1"), ("a", "zwei ✓")]
    assert properties["content_type"] == ours["content_type"]
    assert properties["payload_format_indicator"] == 1


def says_how_long_a_message_lives(talk: Talk) -> None:
    client, other = talk.client(), talk.other()
    other.subscribe(talk.topic("up"), 1)
    client.publish(talk.topic("up"), b"x", message_expiry_interval=100)
    assert 0 < other.receive().properties.MessageExpiryInterval <= 100
    client.subscribe(talk.topic("down"), 1)
    other.publish(talk.topic("down"), MessageExpiryInterval=100)
    assert 0 < client.receive().properties["message_expiry_interval"] <= 100


def asks_and_answers(talk: Talk) -> None:
    asks, answers, other = talk.client("asks"), talk.client("answers"), talk.other()
    answers.subscribe(talk.topic("question"), 1)
    asks.subscribe(talk.topic("answer"), 1)
    other.subscribe(talk.topic("question"), 1)
    correlation = b"\x00\xff\x80number 7"
    asks.publish(
        talk.topic("question"),
        b"?",
        response_topic=talk.topic("answer"),
        correlation_data=correlation,
    )
    assert other.receive().properties.CorrelationData == correlation
    question = answers.receive()
    answers.publish(
        question.properties["response_topic"],
        b"!",
        correlation_data=question.properties["correlation_data"],
    )
    answer = asks.receive()
    assert (answer.topic, answer.payload) == (talk.topic("answer"), b"!")
    assert answer.properties["correlation_data"] == correlation


def sends_topic_aliases(talk: Talk) -> None:
    other = talk.other()
    topic = talk.topic("a topic that is long enough to be worth an alias")
    other.subscribe(topic, 1)
    with talk.relay() as relay:
        client = talk.client(relay=relay)
        if talk.library.aliases_itself:
            client.publish(topic, b"1")
            client.publish(topic, b"2")
        else:
            client.publish(topic, b"1", topic_alias=1)
            client.publish("", b"2", topic_alias=1)
        assert payloads(other.receive_many(2)) == [b"1", b"2"]
        assert relay.connections[0].to_broker.count(topic.encode()) == 1
        client.disconnect()


def takes_topic_aliases(talk: Talk) -> None:
    topics = [talk.topic(f"a topic worth an alias, {name}") for name in "abc"]
    client, other = talk.client(topic_alias_maximum=2), talk.other()
    client.subscribe(talk.topic("+"), 1)
    sent = [(topic, turn) for turn in (b"1", b"2", b"3") for topic in topics]
    for topic, turn in sent:
        other.publish(topic, turn)
    received = [(message.topic, message.payload) for message in client.receive_many(len(sent))]
    assert received == sent


def chooses_subscription_identifiers(talk: Talk) -> None:
    client, other = talk.client(), talk.other()
    client.subscribe(talk.topic("a"), 1, identifier=7)
    client.subscribe(talk.topic("+"), 1, identifier=268_435_455)
    other.publish(talk.topic("b"), b"x")
    assert client.receive().properties["subscription_identifiers"] == [268_435_455]


def gives_a_reason_with_disconnect(talk: Talk) -> None:
    other = talk.other()
    other.subscribe(talk.topic("will"), 1)
    will = _will(talk, b"left with a Will", content_type="text/plain", user_properties=[["a", "1"]])
    talk.client(will=will).disconnect(reason_code=4)
    message = other.receive()
    assert message.payload == b"left with a Will"
    assert message.properties.ContentType == "text/plain"
    assert message.properties.UserProperty == [("a", "1")]


def respects_receive_maximum(talk: Talk) -> None:
    client, other = talk.client(receive_maximum=2), talk.other()
    client.subscribe(talk.topic("a"), 2)
    sent = [b"%d" % number for number in range(WAITING)]
    other.publish_all(talk.topic("a"), sent, 2)
    assert [message.payload for message in client.receive_many(WAITING)] == sent


def shares_a_subscription(talk: Talk) -> None:
    members, other = [talk.client("one"), talk.client("two")], talk.other()
    for member in members:
        member.subscribe(f"$share/group/{talk.topic('#')}", 1)
    sent = [b"%d" % number for number in range(WAITING)]
    other.publish_all(talk.topic("a"), sent)
    received = [member.receive_many(WAITING // 2) for member in members]
    assert sorted((each.payload for part in received for each in part), key=int) == sent


def keeps_itself_alive(talk: Talk) -> None:
    with talk.relay() as relay:
        client = talk.client(relay=relay, keep_alive_s=talk.library.keep_alive_s)
        passed = relay.connections[0]
        _wait_until(relay, lambda: PINGREQ in passed.to_broker and PINGRESP in passed.to_client)
        client.publish(talk.topic("a"), b"still here")
        client.disconnect()


def _wait_until(relay: Relay, holds: Callable[[], bool]) -> None:
    with relay.changed:
        assert relay.changed.wait_for(holds, WITHIN_S)


def goes_on_after_the_broker_was_killed(talk: Talk) -> None:
    topic = talk.topic("up")
    other = talk.other("reader", persistent=True)
    other.subscribe(topic, 2)
    other.disconnect()
    with talk.relay(patient=talk.library.forgets_releases) as relay:
        client = talk.client(relay=relay, persistent=True, reconnects=True)
        client.subscribe(talk.topic("down"), 1)
        sent = [(b"%d" % number, 1 + number % 2) for number in range(IN_FLIGHT)]
        answers = [client.begin_publish(topic, payload, qos) for payload, qos in sent]
        wait_for(answers[0])
        talk.broker.kill()
        talk.broker.start()
        for answer in answers:
            wait_for(answer)
        other = talk.other("reader", persistent=True)
        other.publish(talk.topic("down"), b"and still hears")
        assert client.receive().payload == b"and still hears"
        client.disconnect()
    messages = other.all_received()
    assert {bytes(message.payload) for message in messages} == {payload for payload, _ in sent}
    at_qos_2 = sorted(int(message.payload) for message in messages if message.qos == 2)
    assert at_qos_2 == [int(payload) for payload, qos in sent if qos == 2]


ALL = (3, 4, 5)
SINCE_3_1_1 = (4, 5)
SINCE_5 = (5,)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A piece of the conversation."""

    run: Callable[[Talk], None]
    versions: tuple[int, ...] = ALL
    needs: str | None = None
    """What a library may lack."""
    over_websocket: bool = False
    """Tried over WebSocket too."""
    kills: bool = False
    """Needs a broker that may be killed."""
    newest_only: bool = False
    """Tried with a library's newest version only, for the time it takes."""

    @property
    def name(self) -> str:
        """As a sentence that begins with the library."""
        return self.run.__name__.replace("_", " ")


SCENARIOS = (
    Scenario(publishes_at_each_qos, over_websocket=True),
    Scenario(receives_at_each_qos, over_websocket=True),
    Scenario(says_whether_the_session_was_present, SINCE_3_1_1, SESSION_PRESENT),
    Scenario(gets_what_came_while_it_was_away, over_websocket=True),
    Scenario(forgets_with_a_clean_start),
    Scenario(retains, over_websocket=True),
    Scenario(is_mourned_when_it_is_lost, over_websocket=True),
    Scenario(comes_back_to_its_session, needs=RECONNECTS, over_websocket=True),
    Scenario(passes_large_payloads, over_websocket=True),
    Scenario(writes_topics_in_any_script, over_websocket=True),
    Scenario(subscribes_with_wildcards),
    Scenario(passes_properties, SINCE_5, over_websocket=True),
    Scenario(says_how_long_a_message_lives, SINCE_5),
    Scenario(asks_and_answers, SINCE_5),
    Scenario(sends_topic_aliases, SINCE_5, ALIASES_SENT),
    Scenario(takes_topic_aliases, SINCE_5, ALIASES_TAKEN),
    Scenario(chooses_subscription_identifiers, SINCE_5, SUBSCRIPTION_IDENTIFIERS),
    Scenario(gives_a_reason_with_disconnect, SINCE_5, DISCONNECT_REASON),
    Scenario(respects_receive_maximum, SINCE_5),
    Scenario(shares_a_subscription, SINCE_3_1_1),
    Scenario(keeps_itself_alive, newest_only=True),
    Scenario(goes_on_after_the_broker_was_killed, needs=RESUMES, kills=True, newest_only=True),
)
