"""Each refusal has a row, and is told in the answer that its request has."""

import pytest

from holdfast.core.limits import PRODUCER_NAME_BYTES_MAXIMUM, SUBSCRIPTION_NAME_BYTES_MAXIMUM
from holdfast.protocols.pulsar.fields import (
    FROM_CLIENTS,
    NO_REQUEST,
    Connect,
    ConsumerStats,
    ConsumerStatsResponse,
    Error,
    GetOrCreateSchema,
    GetOrCreateSchemaResponse,
    GetSchema,
    GetSchemaResponse,
    Lookup,
    LookupResponse,
    LookupType,
    PartitionedMetadata,
    PartitionedMetadataResponse,
    PartitionedMetadataType,
    Seek,
    TcClientConnectRequest,
    TcClientConnectResponse,
)
from holdfast.protocols.pulsar.refusals import REFUSALS, UNSERVED, Refusal, refuse
from holdfast.protocols.pulsar.server_error import Reaction, ServerError, usual_reaction
from holdfast.protocols.pulsar.topic_names import TOPIC_NAME_BYTES_MAXIMUM

NOT_ALLOWED = ServerError.NOT_ALLOWED_ERROR
SENTENCE = REFUSALS[Refusal.NOT_SERVED].sentence


def test_each_refusal_has_a_row():
    assert list(REFUSALS) == list(Refusal)


def test_all_that_is_refused_whatever_is_in_it_is_given_up_on():
    assert set(UNSERVED) <= set(FROM_CLIENTS.values())
    assert {REFUSALS[refusal].reaction for refusal in UNSERVED.values()} == {Reaction.GIVE_UP}
    assert UNSERVED[TcClientConnectRequest] is Refusal.TRANSACTIONS


def test_names_of_errors_are_the_protocols():
    assert ServerError.NOT_ALLOWED_ERROR.wire_name == "NotAllowedError"
    blocked = ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION
    assert blocked.wire_name == "ProducerBlockedQuotaExceededException"


def test_what_cannot_succeed_is_not_repeated():
    """All else that clients repeat may be otherwise at the next try, or is a CONNECT."""
    repeated = [row for row in REFUSALS.values() if row.reaction is Reaction.REPEAT]
    assert {row.told_to for row in repeated if row.error != ServerError.SERVICE_NOT_READY} == {
        "CONNECT"
    }
    assert usual_reaction(ServerError.INVALID_TOPIC_NAME) is Reaction.REPEAT
    assert usual_reaction(ServerError.NOT_ALLOWED_ERROR) is Reaction.GIVE_UP


@pytest.mark.parametrize(
    ("refusal", "limit"),
    [
        (Refusal.PRODUCER_NAME_TOO_LONG, PRODUCER_NAME_BYTES_MAXIMUM),
        (Refusal.SUBSCRIPTION_NAME_TOO_LONG, SUBSCRIPTION_NAME_BYTES_MAXIMUM),
        (Refusal.CONSUMER_NAME_TOO_LONG, SUBSCRIPTION_NAME_BYTES_MAXIMUM),
        (Refusal.TOPIC_NAME_TOO_LONG, TOPIC_NAME_BYTES_MAXIMUM),
    ],
)
def test_a_sentence_tells_the_limit_that_there_is(refusal, limit):
    assert f"at most {limit} bytes" in REFUSALS[refusal].sentence


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (
            Seek(consumer_id=1, request_id=7),
            Error(request_id=7, error=NOT_ALLOWED, message=SENTENCE),
        ),
        (
            Connect(client_version="1"),
            Error(request_id=NO_REQUEST, error=NOT_ALLOWED, message=SENTENCE),
        ),
        (
            Lookup(topic="t", request_id=7),
            LookupResponse(
                request_id=7, response=LookupType.FAILED, error=NOT_ALLOWED, message=SENTENCE
            ),
        ),
        (
            PartitionedMetadata(topic="t", request_id=7),
            PartitionedMetadataResponse(
                request_id=7,
                response=PartitionedMetadataType.FAILED,
                error=NOT_ALLOWED,
                message=SENTENCE,
            ),
        ),
        (
            ConsumerStats(consumer_id=1, request_id=7),
            ConsumerStatsResponse(request_id=7, error_code=NOT_ALLOWED, error_message=SENTENCE),
        ),
        (
            GetSchema(topic="t", request_id=7),
            GetSchemaResponse(request_id=7, error_code=NOT_ALLOWED, error_message=SENTENCE),
        ),
        (
            GetOrCreateSchema(topic="t", request_id=7),
            GetOrCreateSchemaResponse(request_id=7, error_code=NOT_ALLOWED, error_message=SENTENCE),
        ),
        (
            TcClientConnectRequest(tc_id=0, request_id=7),
            TcClientConnectResponse(request_id=7, error=NOT_ALLOWED, message=SENTENCE),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_request_is_refused_in_its_own_answer(command, answer):
    assert refuse(command, Refusal.NOT_SERVED) == answer


def test_a_sentence_names_what_it_leaves_open():
    lookup = Lookup(topic="t", request_id=7, advertised_listener_name="test")
    answer = refuse(lookup, Refusal.LISTENER_UNKNOWN)
    assert isinstance(answer, LookupResponse)
    assert answer.message == "the broker do not have test listener"
    assert answer.error == ServerError.SERVICE_NOT_READY
