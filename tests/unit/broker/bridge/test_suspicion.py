"""When a message is found to be what a remote cannot take, and when it never is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.bridge.backoff import LASTING_S
from holdfast.broker.bridge.suspicion import (
    FRUITLESS_MAXIMUM,
    QUIET_S,
    SOON_S,
    TRIES,
    Parting,
    Suspicion,
)

SOON = 0.1


def ended(
    *offsets: int,
    after_s: float = SOON,
    by_remote: bool = True,
    is_answered: bool = False,
    others: int = 0,
) -> Parting:
    """A connection on which these were sent, and others that needed no answer."""
    return Parting(
        by_remote=by_remote,
        is_answered=is_answered,
        sent=len(offsets) + others,
        unanswered=dict.fromkeys(offsets, after_s),
    )


def raised() -> Suspicion:
    suspicion = Suspicion()
    for _ in range(FRUITLESS_MAXIMUM):
        assert not suspicion.is_raised
        assert suspicion.ended(ended(7, 8)) is None
    assert suspicion.is_raised
    return suspicion


def test_a_message_that_ends_each_connection_of_its_own_is_found() -> None:
    suspicion = raised()
    found = [suspicion.ended(ended(7)) for _ in range(TRIES)]
    assert found == [None] * (TRIES - 1) + [7]
    assert (suspicion.refused, suspicion.is_raised) == (1, True)
    found = [suspicion.ended(ended(8)) for _ in range(TRIES)]
    assert found == [None] * (TRIES - 1) + [8]
    assert suspicion.refused == 2
    suspicion.ended(ended(is_answered=True))
    assert (suspicion.refused, suspicion.is_raised) == (0, False)


@pytest.mark.parametrize(
    "other",
    [
        ended(8),
        ended(),
        ended(7, 8),
        ended(7, others=1),
        ended(7, after_s=SOON_S + 0.1),
        ended(7, by_remote=False),
    ],
)
def test_a_connection_that_ends_otherwise_in_between_begins_the_count_anew(other: Parting) -> None:
    suspicion = raised()
    for parting in [*[ended(7)] * (TRIES - 1), other, *[ended(7)] * (TRIES - 1)]:
        assert suspicion.ended(parting) is None
    assert suspicion.ended(ended(7)) == 7


@pytest.mark.parametrize("other", [ended(), ended(others=3), ended(7, by_remote=False)])
def test_what_says_nothing_of_messages_raises_no_suspicion(other: Parting) -> None:
    suspicion = Suspicion()
    for _ in range(100):
        assert suspicion.ended(other) is None
    assert not suspicion.is_raised


def test_a_connection_for_one_message_is_over_before_it_is_a_success() -> None:
    assert QUIET_S + SOON_S < LASTING_S


PARTINGS = st.builds(
    lambda offset, after_s, by_remote, is_answered, others: ended(
        offset, after_s=after_s, by_remote=by_remote, is_answered=is_answered, others=others
    ),
    st.sampled_from([7, 8]),
    st.sampled_from([SOON, SOON_S, SOON_S + 1.0]),
    st.sampled_from([True, True, True, False]),
    st.sampled_from([False, False, False, True]),
    st.sampled_from([0, 0, 0, 1]),
)


@given(st.lists(PARTINGS, max_size=60))
def test_nothing_is_refused_without_so_many_proofs_in_a_row(partings: list[Parting]) -> None:
    suspicion = Suspicion()
    for at, parting in enumerate(partings):
        offset = suspicion.ended(parting)
        if offset is not None:
            proofs = partings[at + 1 - TRIES : at + 1]
            assert len(proofs) == TRIES
            for proof in proofs:
                ((only, after_s),) = proof.unanswered.items()
                assert (only, proof.sent, proof.by_remote) == (offset, 1, True)
                assert after_s <= SOON_S
                assert not proof.is_answered
            assert at >= FRUITLESS_MAXIMUM + TRIES - 1
