"""What CONNECT leads to, and what CONNECTED says."""

import pytest

from holdfast.protocols.pulsar.fields import Connect, Connected, FeatureFlags
from holdfast.protocols.pulsar.handshake import Offer, Opening, connected, plan_handshake
from holdfast.protocols.pulsar.refusals import Refusal

OFFER = Offer(server_version="Holdfast-0.1.0", max_message_size_bytes=5_242_880)


def connect(**fields) -> Connect:
    return Connect(**{"client_version": "CPP-v4.2.0", "protocol_version": 20} | fields)


def opening(**fields) -> Opening:
    decision = plan_handshake(connect(**fields))
    assert isinstance(decision, Opening)
    return decision


@pytest.mark.parametrize(
    ("theirs", "spoken"), [(20, 20), (19, 19), (21, 20), (1, 1), (0, 0), (-1, 0)]
)
def test_the_older_of_two_versions_is_spoken(theirs, spoken):
    told = connected(opening(protocol_version=theirs), OFFER)
    assert told.protocol_version == spoken


def test_the_client_is_told_what_it_may_send():
    assert connected(opening(), OFFER) == Connected(
        server_version="Holdfast-0.1.0",
        protocol_version=20,
        max_message_size=5_242_880,
        feature_flags=FeatureFlags(),
    )


@pytest.mark.accepts("S4.19")
def test_a_frame_may_have_ten_kib_more_than_a_message():
    assert OFFER.frame_bytes_maximum == 5_253_120


@pytest.mark.parametrize("method", ["", "none"])
def test_a_client_need_not_say_who_it_is(method):
    assert opening(auth_method_name=method).user_name is None


def test_basic_is_a_user_name_and_a_password():
    terms = opening(auth_method_name="basic", auth_data="é:a:b".encode())
    assert (terms.user_name, terms.password) == ("é", b"a:b")
    assert "a:b" not in repr(terms)


@pytest.mark.parametrize(
    ("method", "data", "refusal"),
    [
        ("token", b"eyJ", Refusal.AUTHENTICATION_METHOD_UNKNOWN),
        ("basic", None, Refusal.AUTHENTICATION_DATA_MALFORMED),
        ("basic", b"user", Refusal.AUTHENTICATION_DATA_MALFORMED),
        ("basic", b":password", Refusal.AUTHENTICATION_DATA_MALFORMED),
        ("basic", b"\xff:password", Refusal.AUTHENTICATION_DATA_MALFORMED),
    ],
)
def test_other_credentials_are_refused(method, data, refusal):
    assert plan_handshake(connect(auth_method_name=method, auth_data=data)) is refusal
