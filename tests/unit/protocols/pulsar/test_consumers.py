"""Which consumers there may be."""

from dataclasses import replace

import pytest

from holdfast.protocols.pulsar.consumers import (
    Joining,
    Subscribing,
    plan_join,
    plan_subscribe,
    plan_unsubscribe,
)
from holdfast.protocols.pulsar.fields import (
    InitialPosition,
    Schema,
    Subscribe,
    SubType,
    Unsubscribe,
)
from holdfast.protocols.pulsar.refusals import Refusal
from holdfast.protocols.pulsar.topic_names import TopicName

ASKED = Subscribe(
    topic="orders",
    subscription="billing",
    sub_type=SubType.EXCLUSIVE,
    consumer_id=1,
    request_id=7,
)


def plan(**fields):
    return plan_subscribe(replace(ASKED, **fields), namespaces=())


def subscribing(**fields) -> Subscribing:
    decision = plan(**fields)
    assert isinstance(decision, Subscribing)
    return decision


@pytest.mark.parametrize("sub_type", [SubType.EXCLUSIVE, SubType.SHARED])
@pytest.mark.parametrize("position", InitialPosition)
def test_what_is_asked_for(sub_type, position):
    asked = subscribing(sub_type=sub_type, initial_position=position, force_topic_creation=False)
    assert isinstance(asked.topic, TopicName)
    assert str(asked.topic) == "persistent://public/default/orders"
    assert (asked.subscription, asked.sub_type) == ("billing", sub_type)
    assert asked.initial_position is position
    assert not asked.creates_topic


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"sub_type": SubType.FAILOVER}, Refusal.SUBSCRIPTION_TYPE),
        ({"sub_type": SubType.KEY_SHARED}, Refusal.SUBSCRIPTION_TYPE),
        ({"durable": False, "subscription": ""}, Refusal.NON_DURABLE),
        ({"subscription": ""}, Refusal.SUBSCRIPTION_NAME_EMPTY),
        ({"subscription": "é" * 513}, Refusal.SUBSCRIPTION_NAME_TOO_LONG),
        ({"consumer_name": "a" * 1_025}, Refusal.CONSUMER_NAME_TOO_LONG),
        ({"read_compacted": True}, Refusal.READ_COMPACTED),
        ({"start_message_rollback_duration_sec": 1}, Refusal.ROLLBACK),
        ({"schema": Schema(name="", schema_data=b"", schema_type=1)}, Refusal.SCHEMA),
        ({"topic": "a/b"}, Refusal.TOPIC_NAME_INVALID),
        ({"topic": "private/default/a"}, Refusal.NAMESPACE_UNKNOWN),
    ],
)
def test_what_is_not_served_is_refused(fields, refusal):
    assert plan(**fields) is refusal


def test_the_first_consumer_decides_how_it_is_shared():
    for sub_type in (SubType.EXCLUSIVE, SubType.SHARED):
        asked = subscribing(sub_type=sub_type)
        assert plan_join(asked, of_id=None, members=None) is Joining.NEW


@pytest.mark.parametrize(
    ("asked", "members", "outcome"),
    [
        (SubType.SHARED, SubType.SHARED, Joining.NEW),
        (SubType.EXCLUSIVE, SubType.EXCLUSIVE, Refusal.SUBSCRIPTION_EXCLUSIVE),
        (SubType.EXCLUSIVE, SubType.SHARED, Refusal.SUBSCRIPTION_OF_ANOTHER_TYPE),
        (SubType.SHARED, SubType.EXCLUSIVE, Refusal.SUBSCRIPTION_OF_ANOTHER_TYPE),
    ],
)
def test_a_second_consumer_shares_as_the_first_does(asked, members, outcome):
    assert plan_join(subscribing(sub_type=asked), of_id=None, members=members) is outcome


def test_an_id_that_is_used_twice():
    present = subscribing()
    again = plan_join(present, of_id=present, members=SubType.EXCLUSIVE)
    assert again is Joining.AGAIN
    other = subscribing(subscription="audit")
    assert plan_join(other, of_id=present, members=None) is Refusal.CONSUMER_ID_TAKEN


def test_a_subscription_ends_with_its_last_consumer():
    command = Unsubscribe(consumer_id=1, request_id=7)
    assert plan_unsubscribe(command, is_consumer=True, other_consumers=0) is None
    in_use = plan_unsubscribe(command, is_consumer=True, other_consumers=1)
    assert in_use is Refusal.SUBSCRIPTION_IN_USE
    forced = replace(command, force=True)
    assert plan_unsubscribe(forced, is_consumer=True, other_consumers=1) is None
    unknown = plan_unsubscribe(forced, is_consumer=False, other_consumers=0)
    assert unknown is Refusal.CONSUMER_UNKNOWN
