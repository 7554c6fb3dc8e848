"""Rules as grants: order, placeholders, and which subscriptions are allowed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.access.credential import Rule
from holdfast.broker.access.rules import (
    PUBLISH,
    RECEIVE,
    SUBSCRIBE,
    allows_filter,
    allows_topic,
    compile_grant,
)
from holdfast.kernel import topic_matches
from tests.unit.broker.access.test_filters import topic_filters, topic_names


def allow(topic_filter: str, action: str = "all") -> Rule:
    return Rule(action=action, topic_filter=topic_filter, allowed=True)


def deny(topic_filter: str, action: str = "all") -> Rule:
    return Rule(action=action, topic_filter=topic_filter, allowed=False)


def table(
    *rules: Rule,
    actions: frozenset[str] = PUBLISH,
    client: str = "reader-7",
    user: str | None = "gate",
) -> list[tuple[bytes, bool]]:
    return compile_grant(rules, actions, client_identifier=client, user_name=user)


def test_the_first_rule_that_matches_decides() -> None:
    rules = table(deny("a/secret"), allow("a/#"), deny("#"))
    assert allows_topic(rules, "a/b")
    assert not allows_topic(rules, "a/secret")
    assert not allows_topic(rules, "b")


def test_what_no_rule_matches_is_denied() -> None:
    assert not allows_topic(table(), "a")
    assert not allows_topic(table(allow("a")), "b")


def test_without_a_table_everything_is_allowed() -> None:
    assert allows_topic(None, "a")
    assert allows_filter(None, "#")


@pytest.mark.parametrize(
    ("action", "publish", "subscribe", "receive"),
    [
        ("publish", True, False, False),
        ("subscribe", False, True, True),
        ("receive", False, False, True),
        ("all", True, True, True),
    ],
)
def test_a_rule_is_about_its_action(
    action: str, publish: bool, subscribe: bool, receive: bool
) -> None:
    rule = allow("a", action)
    found = [bool(table(rule, actions=actions)) for actions in (PUBLISH, SUBSCRIBE, RECEIVE)]
    assert found == [publish, subscribe, receive]


def test_receive_narrows_what_subscribe_allows() -> None:
    rules = (deny("a/secret", "receive"), allow("a/#", "subscribe"))
    assert allows_filter(table(*rules, actions=SUBSCRIBE), "a/#")
    assert allows_topic(table(*rules, actions=RECEIVE), "a/b")
    assert not allows_topic(table(*rules, actions=RECEIVE), "a/secret")


@pytest.mark.parametrize(
    ("rules", "topic_filter", "expected"),
    [
        ([allow("a/#")], "a/+/b", True),
        ([allow("a/#")], "#", False),
        ([allow("a/b")], "a/+", False),
        ([deny("a/b"), allow("a/#")], "a/#", False),
        ([deny("a/b"), allow("a/#")], "a/c", True),
        ([allow("a/#"), deny("a/b")], "a/#", True),
        ([allow("a/b"), deny("a/+"), allow("a/#")], "a/b", True),
        ([allow("a/b"), allow("a/+")], "a/+", True),
        ([], "a", False),
    ],
)
def test_a_subscription_needs_a_rule_that_covers_it(
    rules: list[Rule], topic_filter: str, expected: bool
) -> None:
    assert allows_filter(table(*rules, actions=SUBSCRIBE), topic_filter) is expected


@given(
    st.lists(st.tuples(topic_filters(), st.booleans()), max_size=5), topic_filters(), topic_names
)
def test_a_subscription_that_is_allowed_matches_nothing_that_is_denied(
    rules: list[tuple[str, bool]], topic_filter: str, name: str
) -> None:
    found = [(item.encode(), allowed) for item, allowed in rules]
    if allows_filter(found, topic_filter) and topic_matches(topic_filter.encode(), name.encode()):
        assert allows_topic(found, name)


def test_placeholders_stand_for_the_client() -> None:
    rules = table(allow("zebra/%u/%c/#"), client="reader-7", user="gate")
    assert rules == [(b"zebra/gate/reader-7/#", True)]


def test_placeholders_in_a_name_are_only_characters() -> None:
    assert table(allow("a/%c/%u"), client="%u", user="%c") == [(b"a/%u/%c", True)]


UNSAFE = ["+", "#", "a/b", "a+", "", "/"]


@pytest.mark.parametrize("name", [*UNSAFE, "$SYS"])
def test_a_name_that_is_no_level_makes_no_rule_wider(name: str) -> None:
    assert table(allow("%c/#"), allow("a/%c"), client=name) == []
    assert table(allow("%u/#"), user=name) == []


def test_a_client_without_a_user_name_has_no_rules_with_one() -> None:
    assert table(allow("a/%u/#"), user=None) == []


@pytest.mark.parametrize("name", UNSAFE)
def test_a_name_that_is_no_level_makes_no_denial_narrower(name: str) -> None:
    rules = table(deny("a/%c/secret"), allow("a/#"), allow("b"), client=name)
    assert not allows_topic(rules, f"a/{name.replace('+', 'x').replace('#', 'x')}/secret")
    assert allows_topic(rules, "b")


names = st.text(st.sampled_from("ab+#/$%cu"), max_size=5)


@given(names, topic_names)
def test_a_rule_reaches_no_further_than_one_level_whatever_the_name(name: str, topic: str) -> None:
    found = table(allow("own/%c/x"), client=name)
    if allows_topic(found, topic):
        levels = topic.split("/")
        assert levels == ["own", name, "x"]
