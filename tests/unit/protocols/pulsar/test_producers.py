"""Which producers there may be, and what they are called."""

from dataclasses import replace

import pytest

from holdfast.protocols.pulsar.commands import read_answer, write_command
from holdfast.protocols.pulsar.fields import Producer, ProducerAccessMode, ProducerSuccess, Schema
from holdfast.protocols.pulsar.producers import (
    Entry,
    Producing,
    plan_entry,
    plan_producer,
    producer_success,
)
from holdfast.protocols.pulsar.refusals import Refusal

ENTROPY = bytes(range(8))


def plan(**fields):
    command = Producer(**{"topic": "orders", "producer_id": 1, "request_id": 7} | fields)
    return plan_producer(command, namespaces=(), entropy=ENTROPY)


def producing(**fields) -> Producing:
    decision = plan(**fields)
    assert isinstance(decision, Producing)
    return decision


def entry(
    asked: Producing,
    *,
    of_id: Producing | None = None,
    of_name: Producing | None = None,
    same_connection: bool = False,
):
    return plan_entry(asked, of_id=of_id, of_name=of_name, same_connection=same_connection)


@pytest.mark.accepts("S4.10")
@pytest.mark.parametrize("given", [None, ""])
def test_a_producer_without_a_name_is_given_one(given):
    asked = producing(producer_name=given, user_provided_producer_name=False)
    assert asked.name == "holdfast-0001020304050607"
    answer = read_answer(write_command(producer_success(7, asked))[8:])
    assert isinstance(answer, ProducerSuccess)
    assert (answer.request_id, answer.producer_name) == (7, asked.name)
    assert answer.last_sequence_id == -1


def test_an_answer_says_that_no_schema_has_a_version():
    # The client for Java closes the connection on an answer without the field.
    answer = read_answer(write_command(producer_success(7, producing()))[8:])
    assert isinstance(answer, ProducerSuccess)
    assert answer.schema_version == b""


def test_a_name_that_is_given_is_kept():
    assert producing(producer_name="press").name == "press"


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"producer_access_mode": ProducerAccessMode.EXCLUSIVE}, Refusal.PRODUCER_ACCESS_MODE),
        ({"txn_enabled": True}, Refusal.TRANSACTIONS),
        (
            {"schema": Schema(name="", schema_data=b"{}", schema_type=4)},
            Refusal.SCHEMA,
        ),
        ({"producer_name": "é" * 513}, Refusal.PRODUCER_NAME_TOO_LONG),
        ({"initial_subscription_name": "a" * 1_025}, Refusal.SUBSCRIPTION_NAME_TOO_LONG),
        ({"topic": "a/b"}, Refusal.TOPIC_NAME_INVALID),
        ({"topic": "private/default/a"}, Refusal.NAMESPACE_UNKNOWN),
        ({"topic": "$SYS"}, Refusal.TOPIC_RESERVED),
        ({"topic": "$SYS%2Fbroker"}, Refusal.TOPIC_RESERVED),
    ],
)
def test_what_is_not_served_is_refused(fields, refusal):
    assert plan(**fields) is refusal


def test_what_only_looks_like_it_is_taken():
    assert producing(schema=Schema(name="", schema_data=b"", schema_type=0))
    assert producing(topic="$SYSTEM")
    assert producing(producer_name="é" * 512)
    assert producing(initial_subscription_name="a").initial_subscription == "a"
    assert producing(initial_subscription_name="").initial_subscription is None


def test_a_name_is_one_producers_at_a_time():
    present = producing(producer_name="press")
    assert entry(present) is Entry.NEW
    asked = replace(present, producer_id=2)
    assert entry(asked, of_name=present) is Refusal.PRODUCER_NAME_TAKEN


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"epoch": 1}, Entry.INSTEAD),
        ({"epoch": 0}, Refusal.PRODUCER_NAME_TAKEN),
        ({"epoch": 1, "producer_id": 2}, Refusal.PRODUCER_NAME_TAKEN),
        ({"epoch": 1, "is_of_user": True}, Refusal.PRODUCER_NAME_TAKEN),
    ],
)
def test_a_producer_that_comes_back_replaces_itself(changes, outcome):
    first = producing(user_provided_producer_name=False)
    again = producing(producer_name=first.name, user_provided_producer_name=False)
    assert entry(replace(again, **changes), of_name=first) is outcome


def test_on_its_own_connection_a_chosen_name_is_the_same_producers():
    present = producing(producer_name="press")
    asked = replace(present, epoch=1)
    assert entry(asked, of_name=present) is Refusal.PRODUCER_NAME_TAKEN
    assert entry(asked, of_name=present, same_connection=True) is Entry.INSTEAD


def test_an_id_that_is_used_twice():
    present = producing()
    assert entry(producing(), of_id=present) is Entry.AGAIN
    assert entry(producing(epoch=1), of_id=present) is Entry.INSTEAD
    assert entry(producing(topic="other"), of_id=present) is Refusal.PRODUCER_ID_TAKEN
    assert entry(producing(producer_name="press"), of_id=present) is Refusal.PRODUCER_ID_TAKEN
