"""What a bridge's settings mean to the stages."""

from holdfast.broker.bridge.terms import receive_grant, rules
from holdfast.core.bridge import Bridge, LocalSubscription


def test_a_bridge_without_excludes_is_granted_everything_that_it_reads() -> None:
    out = LocalSubscription(filters=("plant/#",))
    bridge = Bridge(name="b", address="h", local_subscriptions=(out,))
    assert receive_grant(rules(bridge)) is None, "so a loss is never said to be a denial"


def test_excludes_come_before_the_filters_of_their_subscription() -> None:
    first = LocalSubscription(filters=("plant/+",))
    second = LocalSubscription(filters=("all/#",), excludes=("secret/#",))
    bridge = Bridge(name="b", address="h", local_subscriptions=(first, second))
    told = (("plant/+", True), ("secret/#", False), ("all/#", True))
    assert rules(bridge) == told
    by_former_settings = (b"#", True)
    granted = [(text.encode(), keeps) for text, keeps in told]
    assert receive_grant(rules(bridge)) == [*granted, by_former_settings]
