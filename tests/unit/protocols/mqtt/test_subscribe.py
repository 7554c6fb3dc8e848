"""What SUBSCRIBE and UNSUBSCRIBE lead to."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.store.tables import format_subscriptions
from holdfast.core.held_subscriptions import NOTHING_HELD, HeldSubscriptions
from holdfast.core.limits import SHARED_PER_SESSION_MAXIMUM, SUBSCRIPTIONS_PER_SESSION_MAXIMUM
from holdfast.core.subscription import IN_FORCE, Subscription, without_past
from holdfast.kernel import LIMITS
from holdfast.protocols.mqtt.packets import SubscriptionRequest
from holdfast.protocols.mqtt.subscribe import Subscribed, plan_subscribe, plan_unsubscribe
from tests.unit.protocols.mqtt.builders import request, subscription

FORBIDDEN = "forbidden/#"
MIXED = "$share/mixed/"


def subscribe(
    *requests: SubscriptionRequest,
    current: HeldSubscriptions | tuple[Subscription, ...] = (),
    offset: int = 100,
    protocol_version: int = 5,
    has_room: bool = True,
) -> Subscribed:
    return plan_subscribe(
        requests,
        current if isinstance(current, HeldSubscriptions) else NOTHING_HELD.joined_by(current),
        offset=offset,
        protocol_version=protocol_version,
        is_allowed=lambda topic_filter: topic_filter != FORBIDDEN,
        is_mixed=lambda name: name.startswith(MIXED),
        has_room=lambda _name, others: has_room and others < 2,
    )


def subscribe_to(held: HeldSubscriptions, *topic_filters: str) -> Subscribed:
    return subscribe(*map(request, topic_filters), current=held)


def test_a_group_that_nobody_may_share_is_refused_and_others_are_not() -> None:
    outcome = subscribe(request(f"{MIXED}a"), request("$share/prod/a", qos=1))
    assert outcome.reason_codes == (0x83, 1)
    assert [item.topic_filter for item in outcome.granted] == ["$share/prod/a"]
    assert subscribe(request(f"{MIXED}a"), protocol_version=4).reason_codes == (0x80,)


def test_a_new_subscription_holds_from_now_on() -> None:
    outcome = subscribe(request("a/+", qos=2))
    assert outcome.reason_codes == (2,)
    assert outcome.held.all() == (subscription("a/+", qos=2, from_offset=100),)
    assert outcome.granted == outcome.retained == outcome.held.all()


def test_mqtt_3_8_4_3_the_same_filter_replaces_and_keeps_what_was_queued() -> None:
    before = subscription("a/+", qos=1, from_offset=10)
    outcome = subscribe(request("a/+", qos=2), current=(before,))
    assert outcome.held.all() == (
        subscription("a/+", qos=1, from_offset=10, until_offset=100),
        subscription("a/+", qos=2, from_offset=100),
    )


def test_the_same_subscription_again_changes_nothing_but_sends_retained_messages() -> None:
    before = subscription("a/+", from_offset=10)
    outcome = subscribe(request("a/+"), current=(before,))
    assert outcome.held.all() == (before,)
    assert outcome.retained == (before,)


def test_mqtt_3_3_1_10_retain_handling_one_sends_to_new_subscriptions_only() -> None:
    before = subscription("a/+", from_offset=10)
    new, known = request("b/+", retain_handling=1), request("a/+", retain_handling=1)
    outcome = subscribe(new, known, current=(before,))
    assert [item.topic_filter for item in outcome.retained] == ["b/+"]


def test_mqtt_3_3_1_11_retain_handling_two_sends_none() -> None:
    assert subscribe(request(retain_handling=2)).retained == ()


def test_a_filter_that_is_not_allowed_is_refused_and_the_others_are_granted() -> None:
    wanted = (request(FORBIDDEN), request("a/+", qos=1))
    outcome = subscribe(*wanted)
    assert outcome.reason_codes == (0x87, 1)
    assert [item.topic_filter for item in outcome.held.all()] == ["a/+"]
    assert subscribe(*wanted, protocol_version=4).reason_codes == (0x80, 1)


def test_a_shared_subscription_is_sent_no_retained_messages() -> None:
    outcome = subscribe(request("$share/group/a"), request("b"))
    assert outcome.reason_codes == (1, 1)
    assert [item.topic_filter for item in outcome.granted] == ["$share/group/a", "b"]
    assert [item.topic_filter for item in outcome.retained] == ["b"]


def test_a_shared_subscription_has_no_past() -> None:
    before = subscription("$share/group/a", from_offset=10)
    outcome = subscribe(request("$share/group/a", qos=2), current=(before,))
    assert outcome.held.all() == (subscription("$share/group/a", qos=2, from_offset=100),)
    ended = plan_unsubscribe(["$share/group/a"], outcome.held, offset=200)
    assert (ended.reason_codes, ended.held.all()) == ((0x00,), ())


def test_a_group_or_a_session_that_is_full_takes_no_more() -> None:
    assert subscribe(request("$share/g/a"), has_room=False).reason_codes == (0x97,)
    several = [request(f"$share/{name}/a") for name in "abc"]
    assert subscribe(*several).reason_codes == (1, 1, 0x97)
    full = tuple(subscription(f"$share/{number}/a") for number in range(SHARED_PER_SESSION_MAXIMUM))
    outcome = subscribe(request("$share/g/a"), request("$share/7/a", qos=2), current=full)
    assert outcome.reason_codes == (0x97, 2)


def test_mqtt_4_7_1_2_a_filter_that_is_none_is_refused() -> None:
    assert subscribe(request("a/#/b")).reason_codes == (0x8F,)


def test_older_versions_know_one_failure() -> None:
    outcome = subscribe(request("$share//a"), request("a/#/b"), protocol_version=4)
    assert outcome.reason_codes == (0x80, 0x80)


def test_a_session_has_only_so_many_subscriptions() -> None:
    full = tuple(subscription(str(number)) for number in range(SUBSCRIPTIONS_PER_SESSION_MAXIMUM))
    outcome = subscribe(request("one more"), request("7", qos=2), current=full)
    assert outcome.reason_codes == (0x97, 2)


def test_a_filter_has_only_so_many_levels() -> None:
    most = LIMITS["topic_levels_maximum"]
    deep = ["/".join("+" * levels) for levels in (most, most + 1)]
    assert subscribe(*map(request, deep)).reason_codes == (1, 0x8F)


def test_a_session_s_filters_have_only_so_many_bytes() -> None:
    long = [f"{number:05}/" + "x" * 65_000 for number in range(20)]
    outcome = subscribe(*map(request, long))
    assert outcome.reason_codes == (1,) * 16 + (0x97,) * 4
    assert subscribe(request("a"), current=outcome.held.all()).reason_codes == (1,)
    again = subscribe(request(long[0], qos=2), current=outcome.held.all())
    assert again.reason_codes == (0x97,), "what is replaced may stay behind"
    # Whatever characters they are of, they fit into one control record.
    worst = subscribe(*(request("\x01" * 65_000 + str(number)) for number in range(20)))
    size_bytes = len(format_subscriptions(worst.held.all()))
    assert 0 < size_bytes < LIMITS["control_bytes_maximum"] / 2


def test_mqtt_3_10_4_unsubscribe_ends_a_subscription_now() -> None:
    current = (subscription("a", from_offset=10), subscription("b"))
    outcome = plan_unsubscribe(["a", "c"], NOTHING_HELD.joined_by(current), offset=100)
    assert outcome.reason_codes == (0x00, 0x11)
    assert outcome.removed == ("a",)
    assert set(outcome.held.all()) == {
        subscription("a", from_offset=10, until_offset=100),
        subscription("b"),
    }


def test_a_subscription_that_never_held_leaves_nothing() -> None:
    current = (subscription("a", from_offset=100),)
    held = NOTHING_HELD.joined_by(current)
    assert plan_unsubscribe(["a"], held, offset=100).held == NOTHING_HELD


def test_past_subscriptions_go_when_everything_before_their_end_is_done() -> None:
    past = subscription("a", from_offset=10, until_offset=100)
    present = subscription("b")
    assert without_past((past, present), 99) == (past, present)
    assert without_past((past, present), 100) == (present,)
    held = NOTHING_HELD.joined_by((past, present))
    assert held.without_past(99) is held
    assert held.without_past(100) == NOTHING_HELD.joined_by((present,))


def test_what_has_not_changed_is_the_same_object() -> None:
    both = (subscription("a"), subscription("$share/g/a"))
    held = NOTHING_HELD.joined_by(both)
    assert subscribe_to(held, "a", "$share/g/a").held is held
    assert plan_unsubscribe(["b"], held, offset=100).held is held
    more = subscribe_to(held, "b").held
    assert (more.shared is held.shared, more.own is held.own) == (True, False)
    member = subscribe_to(held, "$share/h/a").held
    assert (member.shared is held.shared, member.own is held.own) == (False, True)


steps = st.lists(
    st.tuples(
        st.sampled_from(["subscribe", "unsubscribe"]), st.sampled_from("abc"), st.integers(0, 2)
    ),
    max_size=30,
)


@given(steps=steps, gaps=st.lists(st.integers(0, 2), min_size=30, max_size=30))
def test_the_terms_at_an_offset_are_those_that_held_when_it_was_stored(
    steps: list[tuple[str, str, int]], gaps: list[int]
) -> None:
    offset = 0
    current = NOTHING_HELD
    held: dict[str, int] = {}
    expected: dict[int, dict[str, int]] = {}
    for (kind, topic_filter, qos), gap in zip(steps, gaps, strict=False):
        for _ in range(gap):
            expected[offset] = dict(held)
            offset += 1
        if kind == "subscribe":
            asked = request(topic_filter, qos=qos)
            current = subscribe(asked, current=current, offset=offset).held
            held[topic_filter] = qos
        else:
            current = plan_unsubscribe([topic_filter], current, offset=offset).held
            held.pop(topic_filter, None)

    for at, terms in expected.items():
        found = [item for item in current.all() if item.from_offset <= at < item.until_offset]
        assert {item.topic_filter: item.qos for item in found} == terms
        assert len(found) == len(terms)
    in_force = {item.topic_filter: item.qos for item in current.own.values()}
    assert in_force == held
    assert all(item.until_offset == IN_FORCE for item in current.own.values())
    assert current == NOTHING_HELD.joined_by(current.all()), "its bytes are counted along"
