"""Control records are read back as they were written."""

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.mqtt.session import Session
from holdfast.broker.mqtt.session_records import format_session, parse_session
from holdfast.broker.store.tables import (
    Loss,
    PendingBatch,
    ProducerRecord,
    QueueRecord,
    Table,
    format_loss,
    format_producer,
    format_queue,
    format_subscriptions,
    key_party,
    parse_loss,
    parse_producer,
    parse_queue,
    parse_queue_fields,
    parse_subscriptions,
)
from holdfast.core.loss_reason import LossReason
from holdfast.core.subscription import Subscription
from holdfast.protocols.mqtt.packets import Will

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
number = st.integers(0, 2**63 - 1)
properties = st.fixed_dictionaries(
    {},
    optional={
        "content_type": text,
        "correlation_data": st.binary(max_size=20),
        "message_expiry_interval": st.integers(0, 2**32 - 1),
        "user_property": st.lists(st.tuples(text, text), max_size=3),
    },
)
wills = st.builds(
    Will,
    topic_name=text,
    payload=st.binary(max_size=50),
    qos=st.integers(0, 2),
    retain=st.booleans(),
    delay_interval_s=st.integers(0, 2**32 - 1),
    properties=properties,
)
sessions = st.builds(
    Session,
    client_identifier=text,
    party=st.integers(1, 2**31 - 1),
    protocol_version=st.sampled_from([3, 4, 5]),
    created_at_offset=number,
    expiry_s=st.none() | number,
    connected=st.booleans(),
    expires_at_us=st.none() | number,
    will=st.none() | wills,
    will_due_at_us=st.none() | number,
)
subscriptions = st.builds(
    Subscription,
    topic_filter=text,
    qos=st.integers(0, 2),
    no_local=st.booleans(),
    retain_as_published=st.booleans(),
    identifier=st.none() | st.integers(1, 268_435_455),
    from_offset=number,
    until_offset=st.integers(0, 2**64 - 1),
    keeps_all=st.booleans(),
)


queues = st.builds(
    QueueRecord,
    party=st.integers(1, 2**31 - 1),
    kind=st.sampled_from(["client", "group", "redrive"]),
    owner=text,
    created_at_offset=number,
    reads=st.lists(subscriptions, max_size=3).map(tuple),
    rules=st.lists(st.tuples(text, st.booleans()), max_size=3).map(tuple),
    queue_name=st.none() | text,
    ends_at_us=st.none() | number,
    target=st.integers(0, 2**31 - 1),
    end_offset=number,
)
PAGE = Path(__file__).parents[3] / "docs" / "formats" / "control-records.md"


@given(sessions)
def test_a_session(session: Session) -> None:
    assert parse_session(format_session(session)) == session


@given(st.lists(subscriptions, max_size=5).map(tuple))
def test_subscriptions(items: tuple[Subscription, ...]) -> None:
    assert parse_subscriptions(format_subscriptions(items)) == items


@given(
    st.builds(
        Loss,
        client_identifier=text,
        party=number,
        reason=st.sampled_from(LossReason),
        first_offset=number,
        end_offset=number,
        count=number,
        at_us=number,
    )
)
def test_a_loss(loss: Loss) -> None:
    assert parse_loss(format_loss(loss)) == loss


@given(queues)
def test_a_queue(queue: QueueRecord) -> None:
    value = format_queue(queue)
    assert parse_queue(value) == queue
    assert value.startswith(b'{"kind":"%s"' % queue.kind.encode())
    assert parse_queue_fields(value.decode())["reads"] == list(queue.reads)


def test_what_is_as_it_is_by_default_is_left_out_of_a_record() -> None:
    # A fleet's records are the most of its log, and are written anew whenever their segment goes.
    session = Session(
        client_identifier="device-7",
        party=7,
        protocol_version=4,
        created_at_offset=0,
        expiry_s=None,
        connected=False,
    )
    assert format_session(session) == (
        b'{"client_identifier":"device-7","party":7,"protocol_version":4,"created_at_offset":0,'
        b'"expiry_s":null,"connected":false}'
    )
    item = Subscription(topic_filter="a", qos=1, from_offset=3)
    assert format_subscriptions((item,)) == b'[{"topic_filter":"a","qos":1,"from_offset":3}]'


def test_records_in_which_nothing_was_left_out_are_read() -> None:
    value = (
        b'[{"topic_filter":"a","qos":1,"no_local":false,"retain_as_published":true,'
        b'"identifier":null,"from_offset":3,"until_offset":18446744073709551615}]'
    )
    item = Subscription(topic_filter="a", qos=1, from_offset=3, retain_as_published=True)
    assert parse_subscriptions(value) == (item,)


def test_the_page_of_control_records_has_all_tables_and_its_queue_is_one() -> None:
    page = PAGE.read_text()
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", page, re.MULTILINE)
    assert rows == [(str(table.value), table.name) for table in Table]
    key, value = re.findall(r"^```\w*\n(.*)\n```$", page, re.MULTILINE)
    queue = parse_queue(value.encode())
    assert key_party(bytes.fromhex(key)) == queue.party
    assert format_queue(queue) == value.encode()


producers = st.builds(
    ProducerRecord,
    party=st.integers(1, 2**31 - 1),
    user_name=st.none() | text,
    sequence=st.integers(-1, 2**63),
    rows=st.integers(0, 2**63),
    forget_at_us=st.none() | st.integers(0, 2**63),
    pending=st.none()
    | st.builds(
        PendingBatch,
        sequence=st.integers(0, 2**63),
        parts=st.lists(text).map(tuple),
        rows=st.integers(0, 2**63),
        offset=st.integers(0, 2**63),
        is_last=st.booleans(),
    ),
)


@given(producers)
def test_a_producer(producer: ProducerRecord) -> None:
    assert parse_producer(format_producer(producer)) == producer


def test_the_page_of_control_records_shows_a_producer() -> None:
    (value,) = re.findall(r'^    (\{"party".*)$', PAGE.read_text(), re.MULTILINE)
    assert format_producer(parse_producer(value.encode())) == value.encode()
