"""Control records are read back as they were written."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.mqtt.session import Session
from holdfast.broker.mqtt.session_records import format_session, parse_session
from holdfast.broker.store.tables import (
    Loss,
    format_loss,
    format_subscriptions,
    parse_loss,
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
)


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
