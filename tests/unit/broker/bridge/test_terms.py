"""What a bridge's queue reads."""

from holdfast.broker.bridge.terms import reads
from holdfast.core.bridge import Bridge, BridgeSubscription, LocalSubscription

OUT = LocalSubscription(filters=("up/#",))
BACK = BridgeSubscription(filters=("down/#",))


def test_only_a_bridge_that_brings_something_asks_who_published_a_message() -> None:
    one_way = Bridge(name="b", address="there", local_subscriptions=(OUT,))
    both_ways = Bridge(
        name="b", address="there", local_subscriptions=(OUT,), remote_subscriptions=(BACK,)
    )
    assert [item.no_local for item in reads(one_way, 7)] == [False]
    assert [item.no_local for item in reads(both_ways, 7)] == [True]
