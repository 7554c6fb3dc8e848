"""Users and the life of a broker: the first one, restarts, guessing, and what its log says."""

from pathlib import Path

import pytest

from holdfast import system
from tests.interop.device import Device
from tests.interop.users import Users
from tests.interop.wire import Wire
from tests.process import BrokerProcess

GATE = ("gate", "open sesame")
BANNED = 0x8A


def connect(broker: BrokerProcess, name: str, user: tuple[str, str] | None) -> int | None:
    device = Device(broker.port, name, user=user).connect()
    device.close()
    return device.reason_code


def stopped(broker: BrokerProcess) -> None:
    assert broker.stop() == 0, broker.log()


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_users_and_rules_outlive_the_broker(tmp_path: Path, ending: str) -> None:
    broker = BrokerProcess(tmp_path, login_delay_s=0)
    broker.start()
    users = Users(broker)
    assert connect(broker, "first", None) == 0
    users.add(*GATE, "--allow", "zebra/#")
    users("deny", "everyone", "publish", "zebra/x")
    getattr(broker, ending)()
    broker.start()
    assert connect(broker, "second", None) == 0x87
    assert connect(broker, "second", GATE) == 0
    assert [user["name"] for user in users.all()] == ["gate"]
    assert users("rules").splitlines() == [
        "everyone  1  deny   publish  zebra/x",
        "gate      1  allow  all      zebra/#",
    ]
    stopped(broker)


def test_the_view_of_users_can_be_deleted(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    users = Users(broker)
    users.add(*GATE)
    before = users.all()
    for file in broker.data_directory.glob("view.sqlite*"):
        file.unlink()
    assert users.all() == before


def test_the_first_user_ends_who_came_without(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    device = Device(broker.port, "open").connect()
    assert device.reason_code == 0
    Users(broker).add(*GATE)
    assert device.wait_ended() == 0x87
    stopped(broker)


def test_anonymous_clients_are_taken_where_they_are_wanted(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, anonymous="true", login_delay_s=0)
    broker.start()
    users = Users(broker)
    users.add(*GATE)
    device = Device(broker.port, "open", clean_start=True).connect()
    assert device.reason_code == 0
    assert device.subscribe("a/#", 0) == [0]
    users("allow", "anonymous", "all", "b/#")
    assert device.subscribe("a/#", 0) == [0x87]
    assert device.subscribe("b/#", 0) == [0]
    assert connect(broker, "guess", ("gate", "wrong")) == 0x86
    device.close()
    stopped(broker)


def test_guessing_is_slowed_down_counted_and_then_not_looked_at(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, login_failures_maximum=3, login_ban_s=3_600, login_delay_s=0)
    users = Users(broker)
    users.add(*GATE)
    users.add("other", "word")
    broker.start()
    assert connect(broker, "known", GATE) == 0
    for guess in range(3):
        assert connect(broker, "guess", ("gate", f"guess {guess}")) == 0x86
    assert connect(broker, "guess", ("gate", "guess 4")) == BANNED
    # Its password is right, but from this address nobody is listened to...
    assert connect(broker, "other", ("other", "word")) == BANNED
    # ... except for whom the broker knows already.
    assert connect(broker, "known", GATE) == 0
    log = broker.log()
    assert log.count('"login failed"') == 3
    assert '"address banned for a while"' in log
    stopped(broker)


def test_a_wrong_password_is_answered_late(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, login_delay_s=1)
    Users(broker).add(*GATE)
    broker.start()
    with Wire(broker.port) as hasty, Wire(broker.port) as other:
        began_s = system.monotonic_s()
        hasty.send_connect("hasty", user_name="gate", password=b"wrong")
        # Meanwhile whoever has the right password is let in.
        answer = other.connect("other", user_name="gate", password=GATE[1].encode())
        assert answer["reason_code"] == 0
        assert hasty.receive("connack")["reason_code"] == 0x86
        assert system.monotonic_s() - began_s >= 1
    stopped(broker)


def test_the_log_has_no_secret_in_it(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, logging_level="debug", login_delay_s=0)
    users = Users(broker)
    users.add(*GATE)
    broker.start()
    assert connect(broker, "a", GATE) == 0
    assert connect(broker, "b", ("gate", "shibboleth")) == 0x86
    assert connect(broker, "c", ("mistyped secret", "word")) == 0x86
    stopped(broker)
    written = broker.log_file.read_text()
    for secret in ("open sesame", "shibboleth", "mistyped secret", "argon2"):
        assert secret not in written
    stored = b"".join(
        file.read_bytes() for file in broker.data_directory.rglob("*") if file.is_file()
    )
    assert b"open sesame" not in stored
    assert b"$argon2id$" in stored


def test_new_connections_have_a_rate(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, connections_per_second=2)
    broker.start()
    codes = []
    wires = [Wire(broker.port) for _ in range(10)]
    for number, wire in enumerate(wires):
        wire.send_connect(f"c{number}")
    for wire in wires:
        with wire:
            codes.append(wire.receive("connack")["reason_code"])
    assert set(codes) == {0, 0x9F}
    stopped(broker)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("remove", "nobody"), 'there is no user "nobody"'),
        (("allow", "nobody", "all", "#"), 'there is no user "nobody"'),
        (("allow", "everyone", "all", "a/#/b"), '"a/#/b" is not a topic filter'),
        (("allow", "everyone", "all", "a", "--at", "2"), "as number 1 to 1"),
        (("rules", "everyone", "--remove", "1"), "no rule number 1"),
        (("add", "everyone", "--password-stdin"), "cannot be a user name"),
        (("add", "x", "--identifier"), "needs a pattern"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    shared_broker: BrokerProcess, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    at_rest = BrokerProcess(tmp_path / "rest")
    for broker in (shared_broker, at_rest):
        code, printed, refusal = Users(broker).run(*arguments, stdin="word\n")
        assert code == 1, printed
        assert sentence in refusal
        assert refusal.count("\n") == 1
