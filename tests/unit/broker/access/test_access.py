"""Logins and identities: who is let in as whom, what it costs, and what changes."""

import asyncio
from typing import Any

import pytest

from holdfast.broker.access import passwords, rules
from holdfast.broker.access.access import Denial, Identity, Login
from holdfast.broker.access.denial_reason import DenialReason
from holdfast.broker.access.login_outcome import LoginOutcome
from holdfast.broker.counts import Event
from holdfast.core.errors import BrokerBusyError
from holdfast.core.limits import PASSWORD_CHECKS_AT_ONCE
from tests.unit.broker.access.builders import PEER, Doorway

WRONG = Denial(reason=DenialReason.WRONG_CREDENTIALS, slowly=True)
NOT_AUTHORIZED = Denial(reason=DenialReason.NOT_AUTHORIZED)
BANNED = Denial(reason=DenialReason.BANNED)
BUSY = Denial(reason=DenialReason.BUSY)


def name_of(decision: Identity | Denial) -> str | None:
    assert isinstance(decision, Identity)
    return decision.user_name


@pytest.fixture
def door() -> Doorway:
    doorway = Doorway()
    doorway.add("gate", "open sesame")
    return doorway


def test_a_broker_without_users_is_open_on_loopback() -> None:
    assert name_of(Doorway().log_in()) is None
    assert name_of(Doorway().log_in("gate", "anything")) is None


def test_a_broker_without_users_is_open_elsewhere_only_by_the_explicit_word() -> None:
    assert Doorway(host="0.0.0.0").log_in() == NOT_AUTHORIZED
    assert name_of(Doorway(host="0.0.0.0", anonymous=True).log_in()) is None


def test_removing_the_last_user_does_not_open_a_broker() -> None:
    door = Doorway(host="0.0.0.0")
    door.add("gate", "open sesame")
    door.users.remove("gate")
    assert not door.access.required
    assert door.log_in() == NOT_AUTHORIZED


def test_a_user_is_let_in_by_its_password(door: Doorway) -> None:
    assert name_of(door.log_in("gate", "open sesame")) == "gate"
    assert door.log_in("gate", "wrong") == WRONG
    assert door.log_in("nobody", "open sesame") == WRONG
    assert door.log_in("gate") == WRONG
    assert door.log_in(None, "open sesame") == WRONG


def test_who_shows_nothing_is_let_in_where_anonymous_clients_are_wanted() -> None:
    assert door_with_user(anonymous=False).log_in() == NOT_AUTHORIZED
    assert name_of(door_with_user(anonymous=True).log_in()) is None
    assert door_with_user(anonymous=True).log_in("gate", "wrong") == WRONG


def door_with_user(*, anonymous: bool) -> Doorway:
    door = Doorway(anonymous=anonymous)
    door.add("gate", "open sesame")
    return door


def test_an_unknown_user_costs_a_hash_like_a_known_one(door: Doorway) -> None:
    for name in ("nobody", "gate"):
        before = door.world.made.done
        door.log_in(name, "wrong", peer=f"{name}:1")
        assert door.world.made.done == before + 1


def test_a_password_that_was_right_is_recognised_without_a_hash(door: Doorway) -> None:
    door.log_in("gate", "open sesame")
    for _ in range(10):
        assert name_of(door.log_in("gate", "open sesame")) == "gate"
    assert door.world.made.done == 1
    assert door.counts.total(Event.LOGINS, LoginOutcome.REMEMBERED) == 10
    assert door.log_in("gate", "open sesamf") == WRONG


def test_a_new_password_is_checked_again_and_the_old_one_is_wrong(door: Doorway) -> None:
    door.log_in("gate", "open sesame")
    changed = passwords.hash_password(b"close sesame", door.world.entropy)
    door.users.change("gate", {}, changed)
    assert door.log_in("gate", "open sesame") == WRONG
    assert name_of(door.log_in("gate", "close sesame")) == "gate"


def test_a_password_that_is_changed_while_it_is_checked_is_wrong(door: Doorway) -> None:
    decided = door.begin("gate", "open sesame")
    changed = passwords.hash_password(b"close sesame", door.world.entropy)
    door.users.change("gate", {}, changed)
    door.world.made.work()
    assert decided == [WRONG]


def test_logins_with_the_same_password_share_one_hash(door: Doorway) -> None:
    decided = [door.begin("gate", "open sesame") for _ in range(100)]
    door.world.made.work()
    assert [name_of(decision) for [decision] in decided] == ["gate"] * 100
    assert door.world.made.done == 1


def test_as_many_passwords_are_checked_as_may_be_and_others_come_back_later(
    door: Doorway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "PASSWORD_CHECKS_WAITING_MAXIMUM", 4)
    decided = [door.begin("gate", f"guess {number}") for number in range(10)]
    assert len(door.world.made.waiting) == PASSWORD_CHECKS_AT_ONCE
    assert decided[PASSWORD_CHECKS_AT_ONCE + 4 :] == [[BUSY]] * (6 - PASSWORD_CHECKS_AT_ONCE)
    door.world.made.work()
    assert decided[: PASSWORD_CHECKS_AT_ONCE + 4] == [[WRONG]] * (PASSWORD_CHECKS_AT_ONCE + 4)


def test_who_guesses_is_banned_and_who_is_known_is_not(door: Doorway) -> None:
    door.log_in("gate", "open sesame")
    for number in range(3):
        assert door.log_in("gate", f"guess {number}") == WRONG
    before = door.world.made.done
    assert door.log_in("gate", "guess") == BANNED
    assert door.world.made.done == before
    assert name_of(door.log_in("gate", "open sesame")) == "gate"
    assert door.counts.total(Event.LOGINS, LoginOutcome.FAILED) == 3
    assert door.counts.total(Event.ADDRESSES_BANNED) == 1
    door.world.at_us = 60_000_000
    assert door.log_in("gate", "guess") == WRONG


def test_a_user_that_is_guessed_at_from_everywhere_is_slowed_down(door: Doorway) -> None:
    for number in range(3):
        door.log_in("gate", f"guess {number}", peer=f"10.0.0.{number}:1")
    assert door.log_in("gate", "guess", peer="10.0.1.1:1") == BUSY
    door.world.at_us = 1_000_000
    assert door.log_in("gate", "guess", peer="10.0.1.1:1") == WRONG


def test_a_certificate_lets_in_as_its_name(door: Doorway) -> None:
    door.add("reader-7.example", proof="certificate")
    shown = {"certificate_name": "reader-7.example"}
    assert name_of(door.log_in(**shown)) == "reader-7.example"
    assert name_of(door.log_in("reader-7.example", **shown)) == "reader-7.example"
    # A certificate is no password, and another's name is no certificate.
    assert door.log_in("gate", **shown) == WRONG
    assert door.log_in("reader-7.example", "word") == WRONG
    assert door.log_in("reader-7.example") == WRONG
    assert door.log_in(certificate_name="gate") == NOT_AUTHORIZED
    assert door.log_in(certificate_name="unknown") == NOT_AUTHORIZED


def test_a_client_identifier_lets_in_who_has_nothing_else(door: Doorway) -> None:
    door.add("readers", proof="identifier", client_identifiers="reader-*")
    assert name_of(door.log_in()) == "readers"
    assert name_of(door.log_in("readers")) == "readers"
    assert door.log_in(client_identifier="writer-1") == NOT_AUTHORIZED
    door.open()
    assert name_of(door.log_in()) == "readers"
    door.users.remove("readers")
    assert door.log_in() == NOT_AUTHORIZED


def test_a_user_may_use_its_client_identifiers_only(door: Doorway) -> None:
    door.users.change("gate", {"client_identifiers": "reader-*"}, None)
    assert name_of(door.log_in("gate", "open sesame")) == "gate"
    assert door.log_in("gate", "open sesame", client_identifier="x") == NOT_AUTHORIZED


def test_a_disabled_user_is_not_let_in(door: Doorway) -> None:
    door.users.change("gate", {"enabled": False}, None)
    assert door.log_in("gate", "open sesame") == NOT_AUTHORIZED
    assert door.log_in("gate", "wrong") == WRONG


def test_an_identity_ends_with_what_proved_it(door: Doorway) -> None:
    identity = door.log_in("gate", "open sesame")
    assert isinstance(identity, Identity)
    door.users.change("gate", {"messages_per_second": 5}, None)
    renewed = door.access.renewed(identity, "reader-7")
    assert renewed is not None
    assert renewed.messages_per_second == 5
    door.users.change("gate", {"client_identifiers": "writer-*"}, None)
    assert door.access.renewed(identity, "reader-7") is None
    assert door.access.renewed(identity, "writer-1") is not None
    changed = passwords.hash_password(b"open sesame", door.world.entropy)
    door.users.change("gate", {}, changed)
    assert door.access.renewed(identity, "writer-1") is None


def test_anonymous_clients_end_with_the_first_user() -> None:
    door = Doorway()
    identity = door.log_in()
    assert isinstance(identity, Identity)
    assert door.access.renewed(identity, "reader-7") is not None
    door.add("gate", "open sesame")
    assert door.access.renewed(identity, "reader-7") is None


def test_who_watches_is_told_whom_a_change_concerns(door: Doorway) -> None:
    told: list[str | None] = []
    door.access.watchers.append(told.append)
    door.add("second", "word")
    door.add("third", "word", allow=["a"])
    door.add("fourth", "word", allow=["a"])
    door.users.add_rule("third", {"action": "all", "topic_filter": "b", "allowed": True})
    door.users.add_rule("everyone", {"action": "all", "topic_filter": "b", "allowed": True})
    # The first rule of all concerns everybody, since from then on rules are asked for.
    assert told == ["second", "third", None, "fourth", "fourth", "third", None]


def test_nobody_may_do_anything_without_a_rule(door: Doorway) -> None:
    identity = door.log_in("gate", "open sesame")
    assert isinstance(identity, Identity)
    assert door.access.publish_grant(identity, "reader-7") == []
    assert not door.access.may_subscribe(identity, "reader-7")("a")
    door.users.add_rule("everyone", {"action": "all", "topic_filter": "a", "allowed": True})
    door.users.add_rule("gate", {"action": "publish", "topic_filter": "a", "allowed": False})
    assert door.access.may_subscribe(identity, "reader-7")("a")
    assert not door.access.may_publish(identity, "reader-7", "a")


def test_anonymous_clients_may_do_everything_until_there_is_a_rule() -> None:
    door = door_with_user(anonymous=True)
    identity = door.log_in()
    assert isinstance(identity, Identity)
    assert door.access.publish_grant(identity, "reader-7") is None
    door.users.add_rule("anonymous", {"action": "publish", "topic_filter": "a", "allowed": True})
    assert door.access.may_publish(identity, "reader-7", "a")
    assert not door.access.may_publish(identity, "reader-7", "b")


def test_a_shared_subscription_has_to_be_received_as_a_whole(door: Doorway) -> None:
    door.users.replace_rules(
        "gate",
        [
            {"action": "receive", "topic_filter": "a/secret/#", "allowed": False},
            {"action": "subscribe", "topic_filter": "a/#", "allowed": True},
        ],
    )
    identity = door.log_in("gate", "open sesame")
    assert isinstance(identity, Identity)
    wanted = ["a/+", "$share/g/a/+", "$share/g/a/b", "$share/g/#", "$share/g", "$share/g/"]
    found = list(map(door.access.may_subscribe(identity, "reader-7"), wanted))
    assert found == [True, False, True, False, False, False]


def test_rules_are_gone_through_once_for_all_filters_of_a_packet(
    door: Doorway, monkeypatch: pytest.MonkeyPatch
) -> None:
    door.users.add_rule("gate", {"action": "all", "topic_filter": "a/#", "allowed": True})
    identity = door.log_in("gate", "open sesame")
    assert isinstance(identity, Identity)
    compiled, compile_grant = list[object](), rules.compile_grant

    def noted(*arguments: Any, **names: Any) -> rules.Grant:
        compiled.append(arguments)
        return compile_grant(*arguments, **names)

    monkeypatch.setattr(rules, "compile_grant", noted)
    is_allowed = door.access.may_subscribe(identity, "reader-7")
    assert all(is_allowed(f"a/{number}") for number in range(100))
    assert len(compiled) == 2, "what it may subscribe to, and what it may receive"


def test_users_and_rules_come_back_from_the_log(door: Doorway) -> None:
    door.add("second", "word", allow=["a/%c"])
    before = door.users.page("", 10), door.users.rules_page("", 10)
    door.open()
    assert (door.users.page("", 10), door.users.rules_page("", 10)) == before
    assert (door.access.book.credentials, door.access.book.owners) == (2, 1)
    door.users.remove("second")
    door.users.remove("gate")
    door.open()
    assert (door.access.book.credentials, door.access.book.owners) == (0, 0)
    assert not door.access.restricts


def test_an_administrator_is_known_by_its_password(door: Doorway) -> None:
    door.add("root", "word", administrator=True)

    async def ask(name: str, password: str) -> bool | None:
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(door.access.identify(name, password, PEER))
            await asyncio.sleep(0)
            door.world.made.work()
        found = asked.result()
        return None if found is None else found.administrator

    assert asyncio.run(ask("root", "word"))
    assert asyncio.run(ask("root", "word"))
    assert asyncio.run(ask("root", "wrong")) is None
    assert asyncio.run(ask("gate", "open sesame")) is False
    assert asyncio.run(ask("nobody", "word")) is None


def test_who_asks_over_http_while_nobody_is_looked_at_is_told_to_come_back(
    door: Doorway, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(passwords, "PASSWORD_CHECKS_WAITING_MAXIMUM", 0)
        with pytest.raises(BrokerBusyError, match="ask again in a moment"):
            asyncio.run(door.access.identify("gate", "open sesame", PEER))
    for number in range(3):
        assert door.log_in("gate", f"guess {number}") == WRONG
    with pytest.raises(BrokerBusyError, match="too many logins from this address have failed"):
        asyncio.run(door.access.identify("gate", "open sesame", PEER))


def test_a_login_shows_no_password() -> None:
    login = Login(client_identifier="c", user_name="u", password=b"open sesame", peer=PEER)
    assert "sesame" not in repr(login)
