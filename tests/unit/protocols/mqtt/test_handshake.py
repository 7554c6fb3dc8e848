"""What CONNECT leads to, and what CONNACK says."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kernel import encode_packet
from holdfast.protocols.mqtt.handshake import (
    TERMS_REMEMBERED_MAXIMUM,
    Handshake,
    Refusal,
    accepted,
    connack,
    plan_disconnect_expiry_s,
)
from tests.unit.protocols.mqtt.builders import ENTROPY, OFFER, POLICY, connect, opening, will


def properties(offer=OFFER, **fields):
    planned = opening(offer, **fields)
    assigned = planned.client_identifier if planned.identifier_assigned else None
    return connack(planned.terms, assigned, session_present=False)["properties"]


def refusal(**fields) -> int:
    decision = Handshake(OFFER).plan(connect(**fields), ENTROPY)
    assert isinstance(decision, Refusal)
    return decision.reason_code


@pytest.mark.accepts("S2.2")
@pytest.mark.parametrize("protocol_version", [3, 4])
def test_an_older_client_without_identifier_cannot_have_a_persistent_session(protocol_version):
    code = refusal(protocol_version=protocol_version, client_identifier="", clean_start=False)
    assert code == 0x85


def test_mqtt_3_1_3_6_a_client_without_identifier_is_given_one():
    named = opening(client_identifier="", properties={"session_expiry_interval": 60})
    assert named.client_identifier == f"holdfast-{ENTROPY.hex()}"
    assert properties(client_identifier="")["assigned_client_identifier"] == named.client_identifier
    assert "assigned_client_identifier" not in properties(client_identifier="reader-7")


def test_mqtt_3_1_1_a_clean_session_needs_no_identifier():
    assert opening(protocol_version=4, client_identifier="").identifier_assigned


def test_an_identifier_that_is_too_long_is_refused():
    assert opening(client_identifier="x" * 1_024)
    assert refusal(client_identifier="x" * 1_025) == 0x85


def test_an_authentication_method_is_refused():
    assert refusal(properties={"authentication_method": "SCRAM"}) == 0x8C


def test_a_will_on_a_filter_is_refused():
    assert refusal(will=will(topic_name="zebra/+/state")) == 0x90


@pytest.mark.accepts("S2.42")
def test_connack_says_the_expiry_that_the_session_really_has():
    asked = {"session_expiry_interval": 604_801}
    assert properties(properties=asked)["session_expiry_interval"] == 604_800
    granted = {"session_expiry_interval": 604_800}
    assert "session_expiry_interval" not in properties(properties=granted)


def test_connack_says_that_a_session_is_kept_although_nobody_asked():
    assert properties(clean_start=False)["session_expiry_interval"] == 604_800
    kept = replace(OFFER, sessions=replace(POLICY, ttl_s=0))
    assert properties(kept, clean_start=False)["session_expiry_interval"] == 0xFFFFFFFF


def test_connack_says_our_limits_where_they_are_not_the_default():
    limited = replace(
        OFFER, receive_maximum=20, maximum_packet_size_bytes=2**20, topic_alias_maximum=8
    )
    said = properties(limited)
    assert said["receive_maximum"] == 20
    assert said["maximum_packet_size"] == 2**20
    assert said["topic_alias_maximum"] == 8
    assert (
        not said.keys()
        - properties()
        - {
            "receive_maximum",
            "maximum_packet_size",
            "topic_alias_maximum",
        }
    )


def test_connack_says_a_shorter_keep_alive_only_to_mqtt_5():
    limited = replace(OFFER, keep_alive_maximum_s=30)
    assert properties(limited, keep_alive_s=60)["server_keep_alive"] == 30
    assert "server_keep_alive" not in properties(limited, keep_alive_s=20)
    assert opening(limited, protocol_version=4, keep_alive_s=60).terms.keep_alive_s == 60


@pytest.mark.parametrize("present", [False, True])
def test_connack_says_whether_the_session_was_there(present):
    assert connack(opening().terms, None, session_present=present)["session_present"] is present


def test_limits_of_the_client_are_taken_over():
    asked = {"receive_maximum": 5, "maximum_packet_size": 100, "topic_alias_maximum": 3}
    terms = opening(properties=asked).terms
    assert terms.receive_maximum == 5
    assert terms.maximum_packet_size_bytes == 100
    assert terms.topic_alias_maximum == 3


def test_disconnect_may_change_an_expiry_that_was_there():
    terms = opening(properties={"session_expiry_interval": 60}).terms
    assert plan_disconnect_expiry_s(terms, OFFER, None) == 60
    assert plan_disconnect_expiry_s(terms, OFFER, 10) == 10
    assert plan_disconnect_expiry_s(terms, OFFER, 10**9) == 604_800


def test_disconnect_with_expiry_zero_ends_a_session_that_would_have_been_kept():
    assert plan_disconnect_expiry_s(opening(clean_start=False).terms, OFFER, 0) == 0


def test_mqtt_3_14_2_2_2_an_expiry_that_was_zero_stays_zero():
    assert plan_disconnect_expiry_s(opening().terms, OFFER, 10) == Refusal(0x82)


ASKED = st.fixed_dictionaries(
    {
        "protocol_version": st.sampled_from([3, 4, 5]),
        "client_identifier": st.sampled_from(["", "reader-7", "reader-8"]),
        "clean_start": st.booleans(),
        "keep_alive_s": st.sampled_from([0, 60, 61]),
        "properties": st.fixed_dictionaries(
            {},
            optional={
                "session_expiry_interval": st.sampled_from([0, 1, 10**6]),
                "receive_maximum": st.sampled_from([1, 65_535]),
                "maximum_packet_size": st.sampled_from([4, 5, 30, 60, 10**6]),
                "topic_alias_maximum": st.sampled_from([0, 1]),
                "request_problem_information": st.sampled_from([0, 1]),
                "user_property": st.just([("environment", "prod")]),
            },
        ),
    }
)


@given(st.lists(ASKED, min_size=2, max_size=12))
def test_who_has_come_before_makes_no_difference_to_what_is_agreed_on(clients):
    limited = replace(OFFER, keep_alive_maximum_s=60, receive_maximum=20)
    used = Handshake(limited)
    for asked in clients:
        plan = used.plan(connect(**asked), ENTROPY)
        assert plan == Handshake(limited).plan(connect(**asked), ENTROPY)
        if isinstance(plan, Refusal):
            continue
        for present in (False, True):
            assigned = None if asked["client_identifier"] else plan.client_identifier
            fields = connack(plan.terms, assigned, session_present=present)
            packet = encode_packet("connack", fields, protocol_version=asked["protocol_version"])
            assert accepted(plan, session_present=present) == packet
            assert len(packet) <= plan.terms.maximum_packet_size_bytes


def test_no_more_terms_are_remembered_than_the_limit():
    handshake = Handshake(OFFER)
    first = handshake.plan(connect(keep_alive_s=0), ENTROPY)
    assert handshake.plan(connect(keep_alive_s=0), ENTROPY).terms is first.terms
    for keep_alive_s in range(TERMS_REMEMBERED_MAXIMUM + 1):
        plan = handshake.plan(connect(keep_alive_s=keep_alive_s), ENTROPY)
        assert plan.terms.keep_alive_s == keep_alive_s
    again = handshake.plan(connect(keep_alive_s=0), ENTROPY)
    assert again == first
    assert again.terms is not first.terms
