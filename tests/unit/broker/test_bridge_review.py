"""What is told of a bridge that goes round by itself, makes one topic of several, or says two
things of one topic."""

import pytest

from holdfast.broker.bridge import review
from holdfast.broker.bridge.review import doubts, parse_checked
from holdfast.core.bridge import Bridge
from holdfast.core.errors import ConfigurationError
from holdfast.core.limits import BRIDGE_FILTERS_MAXIMUM
from holdfast.kernel import LIMITS, topic_matches


def bridge(filters: list[str], destination: str, **fields: object) -> dict[str, object]:
    excludes = fields.pop("excludes", [])
    out = {"filters": filters, "destination": destination, "excludes": excludes}
    return {"name": "b", "address": "x", "local_subscriptions": [out], **fields}


def checked(filters: list[str], destination: str, **fields: object) -> Bridge:
    return parse_checked(bridge(filters, destination, **fields), "the bridge")


@pytest.mark.parametrize(
    ("filters", "destination", "excludes"),
    [
        (["#"], "{#}", []),
        (["plant/#"], "plant/copy/{#}", []),
        (["plant/+"], "plant/{2}", []),
        (["a/#", "site7/+"], "site7/{1}", []),
        (["plant/#"], "plant/copy/{#}", ["elsewhere/#"]),
    ],
)
def test_a_bridge_that_carries_what_it_has_carried_needs_loop_prevention(
    filters: list[str], destination: str, excludes: list[str]
) -> None:
    checked(filters, destination, excludes=excludes)
    with pytest.raises(ConfigurationError, match=r"the bridge: local_subscriptions 1: .* again"):
        checked(filters, destination, excludes=excludes, loop_prevention=False)


@pytest.mark.parametrize(
    ("filters", "destination", "excludes"),
    [
        (["plant/#"], "site7/{#}", []),
        (["plant/+"], "plant/{2}/x", []),
        (["plant/#"], "plant/copy/{#}", ["plant/copy/#"]),
    ],
)
def test_a_bridge_whose_topics_lead_away_needs_none(
    filters: list[str], destination: str, excludes: list[str]
) -> None:
    assert checked(filters, destination, excludes=excludes, loop_prevention=False).name == "b"


@pytest.mark.parametrize(
    ("filters", "destination"),
    [
        (["plant/+/reads"], "reads/{3}"),
        (["plant/#"], "{1}"),
        (["plant/#"], "{1}/{2}"),
        (["a", "b"], "x"),
    ],
)
def test_topics_that_become_one_are_told_of_once(filters: list[str], destination: str) -> None:
    (found,) = doubts(checked(filters, destination))
    assert f'the destination "{destination}" makes one topic of several' in found


@pytest.mark.parametrize(
    ("filters", "destination"),
    [
        (["plant/+/reads"], "reads/{2}"),
        (["plant/#"], "site7/{#}"),
        (["+/+"], "{2}/{1}"),
        (["a", "b"], "x/{1}"),
    ],
)
def test_of_topics_that_stay_apart_nothing_is_told(filters: list[str], destination: str) -> None:
    assert doubts(checked(filters, destination)) == ()


def test_hops_that_cannot_be_counted_are_told_of() -> None:
    (found,) = doubts(checked(["a"], "{#}", protocol_version="3.1.1"))
    assert "MQTT 3.1.1 has no user properties" in found


@pytest.mark.parametrize("other", [{"max_qos": 1}, {"persist": False}])
def test_two_that_carry_a_topic_with_different_qos_are_told(other: dict[str, object]) -> None:
    wide: dict[str, object] = {"filters": ["a/#"]}
    table = {"name": "b", "address": "there", "local_subscriptions": [wide]}

    def told(*items: dict[str, object]) -> list[str]:
        bridge = parse_checked(table | {"local_subscriptions": [*items]}, "here")
        return [sentence for sentence in doubts(bridge) if "both are about" in sentence]

    assert told(wide, {"filters": ["a/b"]}) == []
    assert told({"filters": ["c/b"], **other}, wide) == []
    assert told({"filters": ["a/b"], **other}, wide | {"excludes": ["a/b"]}) == []
    (sentence,) = told({"filters": ["a/b"], **other}, wide)
    assert sentence == (
        "local_subscriptions 1 and 2: both are about a/b; 1 says what becomes of it, but it is"
        " carried with QoS 2, the higher one of both"
    )


LEVELS = LIMITS["topic_levels_maximum"]


def checked_with(direction: str, *items: dict[str, object]) -> Bridge:
    return parse_checked({"name": "b", "address": "x", direction: [*items]}, "the bridge")


@pytest.mark.parametrize("direction", ["local_subscriptions", "remote_subscriptions"])
def test_what_the_stages_do_not_take_is_refused(direction: str) -> None:
    assert LIMITS["grant_rules_maximum"] > BRIDGE_FILTERS_MAXIMUM
    tens = [{"filters": [f"{number}/a", f"{number}/b"]} for number in range(499)]
    checked_with(direction, *tens, {"filters": ["/" * (LEVELS - 1)], "excludes": ["x"]})
    with pytest.raises(ConfigurationError, match=f"the bridge: {direction} have 1001 filters and"):
        checked_with(direction, *tens, {"filters": ["a", "b"], "excludes": ["x"]})
    with pytest.raises(ConfigurationError, match=f"{direction} 2: a filter has 129 levels; it can"):
        checked_with(direction, {"filters": ["a"]}, {"filters": ["/" * LEVELS]})


def test_excludes_of_more_subscriptions_than_can_be_counted_are_refused() -> None:
    items = [{"filters": [f"{number}/#"], "excludes": [f"{number}/x"]} for number in range(101)]
    checked_with("local_subscriptions", *items[:100], {"filters": ["a"]})
    checked_with("remote_subscriptions", *items)
    with pytest.raises(ConfigurationError, match="101 of the local_subscriptions have excludes"):
        checked_with("local_subscriptions", *items)


def test_whoever_asks_waits_for_a_bounded_number_of_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[bytes] = []

    def noted(topic_filter: bytes, topic: bytes) -> bool:
        tried.append(topic)
        return topic_matches(topic_filter, topic)

    monkeypatch.setattr(review, "topic_matches", noted)
    deep = "/".join(["+"] * LEVELS)
    items = [{"filters": [f"{number}/+", deep], "max_qos": number % 3} for number in range(500)]
    settings = {"name": "b", "address": "x", "local_subscriptions": items}
    bridge = parse_checked(settings | {"loop_prevention": True}, "the bridge")
    assert doubts(bridge)
    with pytest.raises(ConfigurationError, match="can go round"):
        parse_checked(settings | {"loop_prevention": False}, "the bridge")
    assert len(tried) < 10 * review.TOPICS_MAXIMUM
