"""Credentials and rules as values: what they may say, and how they are stored."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.access.credential import (
    Credential,
    Rule,
    check_credential,
    check_name,
    check_rule,
    check_rules,
    format_credential,
    format_rules,
    matches_pattern,
    parse_credential,
    parse_rules,
)
from holdfast.core.limits import RULES_PER_OWNER_MAXIMUM

CREDENTIAL = Credential(name="gate", proof="password", password_hash="$argon2id$")
RULE = Rule(action="all", topic_filter="a/%c/#", allowed=True)


def test_a_credential_comes_back_from_its_record() -> None:
    changed = replace(CREDENTIAL, client_identifiers="%u-*", administrator=True, enabled=False)
    assert parse_credential(format_credential(changed)) == changed


def test_what_a_newer_version_added_to_a_credential_is_not_looked_at() -> None:
    value = format_credential(CREDENTIAL).replace(b'"enabled"', b'"colour":"blue","enabled"')
    assert parse_credential(value) == CREDENTIAL


def test_rules_come_back_from_their_record() -> None:
    rules = (RULE, replace(RULE, allowed=False, action="receive"))
    assert parse_rules(format_rules(rules)) == rules
    assert format_rules(()) == b""
    assert parse_rules(b"") == ()


@pytest.mark.parametrize(
    "credential",
    [
        replace(CREDENTIAL, proof="faith"),
        replace(CREDENTIAL, password_hash=None),
        replace(CREDENTIAL, proof="certificate"),
        replace(CREDENTIAL, proof="identifier", password_hash=None),
        replace(CREDENTIAL, client_identifiers=""),
        replace(CREDENTIAL, client_identifiers=7),
        replace(CREDENTIAL, messages_per_second=-1),
        replace(CREDENTIAL, bytes_per_second=True),
        replace(CREDENTIAL, administrator="yes"),
        replace(CREDENTIAL, proof=["password"]),
    ],
)
def test_what_no_credential_may_say(credential: Credential) -> None:
    check_credential(CREDENTIAL)
    with pytest.raises(ValueError, match=r"."):
        check_credential(credential)


@pytest.mark.parametrize(
    "name", ["", "everyone", "anonymous", "a\n", "x" * 1_025, 7, None, "\ud800"]
)
def test_what_cannot_be_a_user_name(name: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        check_name(name)


@pytest.mark.parametrize(
    "rule",
    [
        replace(RULE, action="eat"),
        replace(RULE, action=[]),
        replace(RULE, topic_filter="a/#/b"),
        replace(RULE, topic_filter=""),
        replace(RULE, topic_filter="$share/g/a"),
        replace(RULE, topic_filter=["a"]),
        replace(RULE, allowed=1),
    ],
)
def test_what_no_rule_may_say(rule: Rule) -> None:
    check_rule(RULE)
    with pytest.raises(ValueError, match=r"."):
        check_rule(rule)


def test_rules_have_a_maximum() -> None:
    check_rules([RULE] * RULES_PER_OWNER_MAXIMUM)
    with pytest.raises(ValueError, match="more than"):
        check_rules([RULE] * (RULES_PER_OWNER_MAXIMUM + 1))


@pytest.mark.parametrize(
    ("pattern", "client_identifier", "expected"),
    [
        ("reader-7", "reader-7", True),
        ("reader-7", "reader-77", False),
        ("reader-*", "reader-", True),
        ("reader-*", "writer-1", False),
        ("*", "", True),
        ("a*b*c", "a-b-c", True),
        ("a*b*c", "ac", False),
        ("ab*ba", "aba", False),
        ("%u", "gate", True),
        ("%u-*", "gate-1", True),
        ("%u-*", "other-1", False),
    ],
)
def test_a_pattern_of_client_identifiers(
    pattern: str, client_identifier: str, expected: bool
) -> None:
    assert matches_pattern(pattern, "gate", client_identifier) is expected


def test_a_wildcard_in_a_user_name_is_only_a_character() -> None:
    assert not matches_pattern("%u", "*", "gate")
    assert matches_pattern("%u", "*", "*")


parts = st.lists(st.text("ab", max_size=3), min_size=1, max_size=4)


@given(parts, st.lists(st.text("ab", max_size=3), min_size=3, max_size=3))
def test_whatever_stands_for_a_star_matches(parts: list[str], fillings: list[str]) -> None:
    whole = parts[0] + "".join(
        filling + part for filling, part in zip(fillings, parts[1:], strict=False)
    )
    assert matches_pattern("*".join(parts), "u", whole)
