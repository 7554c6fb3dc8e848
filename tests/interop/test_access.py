"""Who may connect, and what each may do, with the Paho client and with bare packets."""

from collections.abc import Iterator

import pytest

from tests.interop.conftest import MakeDevice
from tests.interop.device import Device, payloads
from tests.interop.users import Users
from tests.interop.wire import Wire
from tests.process import BrokerProcess

BAD_USER_NAME_OR_PASSWORD = 0x86
NOT_AUTHORIZED = 0x87
SERVER_BUSY = 0x89
BANNED = 0x8A
OPERATOR = ("operator", "all may")
GATE = ("gate", "open sesame")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with two users: one may do everything, one what it needs."""
    broker = BrokerProcess(
        tmp_path_factory.mktemp("guarded"), login_delay_s=0, login_failures_maximum=0
    )
    users = Users(broker)
    users.add(*OPERATOR, "--allow", "#")
    users.add(*GATE, "--allow", "own/%u/%c/#")
    users("allow", "gate", "publish", "in/#")
    users("deny", "gate", "receive", "out/secret")
    users("allow", "gate", "subscribe", "out/#")
    broker.start()
    yield broker
    assert broker.stop() == 0, broker.log()


@pytest.fixture
def users(guarded: BrokerProcess) -> Users:
    return Users(guarded)


@pytest.fixture
def guarded_device(guarded: BrokerProcess) -> Iterator[MakeDevice]:
    made: list[Device] = []

    def make(name: str, **options: object) -> Device:
        made.append(Device(guarded.port, name, **options))
        return made[-1].connect()

    yield make
    for each in made:
        each.close()


def refused_as(version: int, reason_code: int) -> int:
    """What an older client is told instead."""
    older = {BAD_USER_NAME_OR_PASSWORD: 4, NOT_AUTHORIZED: 5, BANNED: 5, SERVER_BUSY: 3}
    # Paho gives the return codes of older versions the reason codes of MQTT 5.
    codes = {3: 0x88, 4: 0x86, 5: 0x87}
    return reason_code if version == 5 else codes[older[reason_code]]


def test_the_right_password_lets_in(guarded_device: MakeDevice, prefix: str, version: int) -> None:
    assert guarded_device(prefix, version=version, user=GATE).reason_code == 0


@pytest.mark.parametrize(
    ("user", "reason_code"),
    [
        (("gate", "wrong"), BAD_USER_NAME_OR_PASSWORD),
        (("gate", ""), BAD_USER_NAME_OR_PASSWORD),
        (("nobody", "open sesame"), BAD_USER_NAME_OR_PASSWORD),
        (("gate", None), BAD_USER_NAME_OR_PASSWORD),
        (None, NOT_AUTHORIZED),
    ],
)
def test_everybody_else_is_refused(
    guarded_device: MakeDevice,
    prefix: str,
    version: int,
    user: tuple[str, str | None] | None,
    reason_code: int,
) -> None:
    device = guarded_device(prefix, version=version, user=user)
    assert device.reason_code == refused_as(version, reason_code)


def test_a_password_without_a_user_name_is_no_credential(guarded: BrokerProcess) -> None:
    with Wire(guarded.port) as wire:
        answer = wire.connect("lone", password=b"open sesame")
    assert answer["reason_code"] == BAD_USER_NAME_OR_PASSWORD


def test_a_message_goes_where_its_publisher_may_publish(
    guarded_device: MakeDevice, prefix: str, version: int
) -> None:
    operator = guarded_device(f"{prefix}o", user=OPERATOR, clean_start=True)
    operator.subscribe("#", 1)
    gate = guarded_device(f"{prefix}g", version=version, user=GATE, clean_start=True)
    topics = [
        ("in/1", True),
        ("out/1", False),
        (f"own/gate/{prefix}g/1", True),
        (f"own/gate/{prefix}x/1", False),
        (f"own/other/{prefix}g/1", False),
    ]
    for topic, _ in topics:
        for qos in (0, 1, 2):
            gate.publish(topic, topic.encode(), qos)
    gate.publish("in/last", b"last", 2)
    came: list[str] = []
    while (message := operator.receive()).topic != "in/last":
        came.append(message.topic)
    # QoS 0 may overtake; what was refused must not come at all.
    assert sorted(came) == sorted(topic for topic, allowed in topics if allowed for _ in range(3))


def test_a_publisher_is_told_what_it_may_not(guarded: BrokerProcess, prefix: str) -> None:
    with Wire(guarded.port) as wire:
        wire.connect(prefix, user_name=GATE[0], password=GATE[1].encode())
        message = {"retain": False, "dup": False, "payload": b"", "topic_name": "out/1"}
        wire.send("publish", qos=1, packet_identifier=1, **message)
        assert wire.receive("puback")["reason_code"] == NOT_AUTHORIZED
        wire.send("publish", qos=2, packet_identifier=2, **message)
        assert wire.receive("pubrec")["reason_code"] == NOT_AUTHORIZED


def test_a_subscription_has_to_be_covered(
    guarded_device: MakeDevice, prefix: str, version: int
) -> None:
    gate = guarded_device(prefix, version=version, user=GATE, clean_start=True)
    denied = [NOT_AUTHORIZED] if version == 5 else [0x80]
    assert gate.subscribe("out/#", 1) == [1]
    assert gate.subscribe("out/+/x", 1) == [1]
    assert gate.subscribe(f"own/gate/{prefix}/#", 1) == [1]
    assert gate.subscribe("#", 1) == denied
    assert gate.subscribe("own/#", 1) == denied
    assert gate.subscribe("own/gate/other/#", 1) == denied
    assert gate.subscribe("in/#", 1) == denied


def test_what_may_not_be_received_is_not_sent(
    guarded_device: MakeDevice, prefix: str, version: int
) -> None:
    operator = guarded_device(f"{prefix}o", user=OPERATOR, clean_start=True)
    operator.publish("out/secret", b"retained", 1, retain=True)
    operator.publish("out/open", b"retained", 1, retain=True)
    gate = guarded_device(f"{prefix}g", version=version, user=GATE, clean_start=True)
    gate.subscribe("out/#", 2)
    for qos in (0, 1, 2):
        operator.publish("out/secret", b"live", qos)
        operator.publish("out/open", b"live", qos)
    operator.publish("out/last", b"last", 2)
    came = []
    while (message := gate.receive()).topic != "out/last":
        came.append((message.topic, bytes(message.payload)))
    assert sorted(came) == [("out/open", b"live")] * 3 + [("out/open", b"retained")]
    for topic in ("out/secret", "out/open"):
        operator.publish(topic, b"", 1, retain=True)


def test_what_came_while_it_was_away_is_held_to_the_same_rules(
    guarded_device: MakeDevice, prefix: str
) -> None:
    options = {"user": GATE, "SessionExpiryInterval": 60}
    gate = guarded_device(f"{prefix}g", **options)
    gate.subscribe("out/#", 1)
    gate.disconnect()
    operator = guarded_device(f"{prefix}o", user=OPERATOR, clean_start=True)
    for topic in ("out/secret", "out/a", "out/secret", "out/b"):
        operator.publish(topic, topic.encode(), 1)
    gate = guarded_device(f"{prefix}g", **options)
    operator.publish("out/last", b"out/last", 1)
    assert payloads(gate.receive_many(3)) == [b"out/a", b"out/b", b"out/last"]


def test_a_client_identifier_with_wildcards_gains_nothing(
    guarded_device: MakeDevice, version: int
) -> None:
    gate = guarded_device("+", version=version, user=GATE, clean_start=True)
    denied = [NOT_AUTHORIZED] if version == 5 else [0x80]
    assert gate.subscribe("own/gate/+/#", 1) == denied
    assert gate.subscribe("own/gate/x/#", 1) == denied


def test_a_will_goes_where_its_client_may_publish(
    guarded_device: MakeDevice, prefix: str, version: int
) -> None:
    def connect(topic: str) -> int | None:
        will = {"topic": topic, "payload": b"gone"}
        return guarded_device(prefix, version=version, user=GATE, will=will).reason_code

    assert connect("in/will") == 0
    assert connect("out/will") == refused_as(version, NOT_AUTHORIZED)


def test_a_session_belongs_to_its_user(guarded_device: MakeDevice, prefix: str) -> None:
    gate = guarded_device(prefix, user=GATE, SessionExpiryInterval=60)
    assert guarded_device(prefix, user=OPERATOR).reason_code == NOT_AUTHORIZED
    gate.publish("in/1", b"still here", 1)
    gate.disconnect()
    assert guarded_device(prefix, user=OPERATOR).reason_code == NOT_AUTHORIZED
    assert guarded_device(prefix, user=GATE).session_present


def test_a_new_rule_holds_for_who_is_connected(
    guarded_device: MakeDevice, users: Users, prefix: str, version: int
) -> None:
    users.add(prefix, "word")
    changing = guarded_device(
        f"{prefix}c", version=version, user=(prefix, "word"), clean_start=True
    )
    operator = guarded_device(f"{prefix}o", user=OPERATOR, clean_start=True)
    assert changing.subscribe(f"{prefix}/#", 1) != [1]
    users("allow", prefix, "all", f"{prefix}/#")
    assert changing.subscribe(f"{prefix}/#", 1) == [1]
    operator.publish(f"{prefix}/1", b"one", 1)
    assert payloads([changing.receive()]) == [b"one"]

    users("deny", prefix, "receive", f"{prefix}/2", "--at", "1")
    operator.publish(f"{prefix}/2", b"two", 1)
    operator.publish(f"{prefix}/3", b"three", 1)
    assert payloads([changing.receive()]) == [b"three"]

    users("rules", prefix, "--remove", "2")
    operator.publish(f"{prefix}/4", b"four", 1)
    users("allow", prefix, "all", f"{prefix}/#")
    # The subscription has ended with the rule, and does not come back with another.
    operator.publish(f"{prefix}/5", b"five", 1)
    changing.publish(f"{prefix}/6", b"six", 1)
    changing.subscribe(f"{prefix}/6", 1)
    changing.publish(f"{prefix}/6", b"seven", 1)
    assert payloads([changing.receive()]) == [b"seven"]


def test_a_group_is_for_those_who_may_have_all_of_it(
    guarded_device: MakeDevice, users: Users, prefix: str
) -> None:
    users.add(prefix, "word", "--allow", f"{prefix}/a/#")
    operator = guarded_device(f"{prefix}o", user=OPERATOR, clean_start=True)
    member = guarded_device(f"{prefix}m", user=(prefix, "word"), clean_start=True)
    assert member.subscribe(f"$share/g/{prefix}/#", 1) == [NOT_AUTHORIZED]
    assert member.subscribe(f"$share/g/{prefix}/a/#", 1) == [1]
    operator.publish(f"{prefix}/a/1", b"one", 1)
    assert payloads([member.receive()]) == [b"one"]
    users("rules", prefix, "--remove", "1")
    users("allow", prefix, "all", "other/#")
    operator.publish(f"{prefix}/a/2", b"two", 1)
    member.subscribe("other/1", 1)
    member.publish("other/1", b"three", 1)
    assert payloads([member.receive()]) == [b"three"]


@pytest.mark.parametrize("change", ["remove", "disable", "password"])
def test_who_may_not_stay_is_disconnected_and_leaves_no_will(
    guarded_device: MakeDevice, users: Users, prefix: str, version: int, change: str
) -> None:
    users.add(prefix, "word", "--allow", f"{prefix}/#")
    operator = guarded_device(f"{prefix}o", user=OPERATOR, clean_start=True)
    operator.subscribe(f"{prefix}/#", 1)
    leaving = guarded_device(
        f"{prefix}c",
        version=version,
        user=(prefix, "word"),
        clean_start=True,
        will={"topic": f"{prefix}/will", "payload": b"gone"},
    )
    arguments = (change, prefix, *(["--password-stdin"] if change == "password" else []))
    users(*arguments, stdin="another\n")
    ended_with = leaving.wait_ended()
    if version == 5:
        assert ended_with == NOT_AUTHORIZED
    operator.publish(f"{prefix}/last", b"last", 1)
    assert payloads([operator.receive()]) == [b"last"]
    again = guarded_device(f"{prefix}c", version=version, user=(prefix, "word"))
    assert again.reason_code != 0
    if change == "password":
        again = guarded_device(f"{prefix}c", version=version, user=(prefix, "another"))
        assert again.reason_code == 0


def test_a_disabled_user_may_come_back_when_it_is_enabled(
    guarded_device: MakeDevice, users: Users, prefix: str
) -> None:
    users.add(prefix, "word")
    users("disable", prefix)
    assert guarded_device(prefix, user=(prefix, "word")).reason_code == NOT_AUTHORIZED
    users("enable", prefix)
    assert guarded_device(prefix, user=(prefix, "word")).reason_code == 0


def test_a_user_may_be_held_to_client_identifiers(
    guarded_device: MakeDevice, users: Users, prefix: str, version: int
) -> None:
    users.add(prefix, "word", "--client-identifiers", "%u-*")
    user = (prefix, "word")
    right = guarded_device(f"{prefix}-1", version=version, user=user)
    wrong = guarded_device(f"{prefix}x1", version=version, user=user)
    assert right.reason_code == 0
    assert wrong.reason_code == refused_as(version, NOT_AUTHORIZED)


def test_a_client_identifier_can_be_all_that_is_asked_for(
    guarded_device: MakeDevice, users: Users, prefix: str, version: int
) -> None:
    users("add", prefix, "--identifier", "--client-identifiers", "%u-*", "--allow", f"{prefix}/#")
    device = guarded_device(f"{prefix}-1", version=version, clean_start=True)
    assert device.reason_code == 0
    assert device.subscribe(f"{prefix}/#", 1) == [1]
    assert guarded_device(f"{prefix}x1", version=version).reason_code == refused_as(
        version, NOT_AUTHORIZED
    )
    users("remove", prefix)
    device.wait_ended()


def test_a_user_of_a_certificate_is_not_let_in_by_a_password(
    guarded_device: MakeDevice, users: Users, prefix: str
) -> None:
    users("add", prefix, "--certificate", "--allow", "#")
    refused = guarded_device(prefix, user=(prefix, "word"))
    assert refused.reason_code == BAD_USER_NAME_OR_PASSWORD


def test_a_client_that_sends_too_much_is_told_so(
    guarded_device: MakeDevice, users: Users, prefix: str
) -> None:
    users.add(prefix, "word", "--messages-per-second", "5", "--allow", "#")
    eager = guarded_device(prefix, user=(prefix, "word"), clean_start=True)
    for _ in range(100):
        eager.client.publish(f"{prefix}/1", b"more", 0)
    assert eager.wait_ended() == 0x96
